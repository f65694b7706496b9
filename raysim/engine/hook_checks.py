"""Checks of what methods' hooks return. The errors name the hook, with its file and line.

The checks cover types, shapes and names, which need no wait for a GPU. Values are checked in `Collection.settle` and in
`Exchange.update_model`.

`CHECKS` has the check of each hook, which `HookCalls` carries out after a call. A check receives the half, the hook's
result, the model and the hook's arguments. It returns the result, or raises WrongResult.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

import torch
from torch import Tensor

from raysim.api.client import Client
from raysim.api.encoded import Encoded, decoded
from raysim.api.messages import Broadcast, Delta, Reduction, Request, Term, Terms
from raysim.api.method import INSIDE_THE_LOOP, ClientHalf, Half, Method, Plan, ServerHalf
from raysim.api.server import Server
from raysim.api.step import Step
from raysim.config import Config
from raysim.data.transforms import describe_tensor
from raysim.engine.exact_total import DTYPES
from raysim.federation.choice import check_chosen
from raysim.models.flat import FlatModel, Weights
from raysim.models.stages import names_left_out
from raysim.system.custom_code import is_custom, place_of
from raysim.system.errors import ConfigError, WrongResult

IN_STEPS = (*INSIDE_THE_LOOP, "train")
Check = Callable[..., Any]
"""Arguments: the half, the result, the model, and the hook's arguments."""


def place_of_hook(half: type[Half], hook: str) -> str:
    """Return a hook's name and where it is defined."""
    return place_of(getattr(half, hook))


def describe_custom_code(config: Config, methods: Iterable[Method]) -> str:
    """Return where the user-defined code in a client's steps is defined, for errors. Empty if there is none."""
    parts = [config.model.function(), config.training.optimizer.function()]
    parts += [getattr(method.Client, hook) for method in methods for hook in IN_STEPS]
    places = [place_of(part) for part in parts if is_custom(part)]
    return f", made with {', '.join(places)}" if places else ""


def name_methods(methods: Iterable[str]) -> str:
    """Return the methods' names for an error message."""
    return ", ".join(methods) or "FedAvg"


def wrong_result(half: Half, hook: str, result: object, allowed: str, did: str = "returned") -> WrongResult:
    """Return the error for a wrong result of a hook. `result` is the result, or a text that describes it."""
    words = result if isinstance(result, str) else describe(result)
    return WrongResult(f"methods.{half.name}: {place_of_hook(type(half), hook)} {did} {words}, allowed: {allowed}")


def describe(value: object) -> str:
    """Return a short description of a value: its type, and a tensor's shape."""
    if isinstance(value, Tensor):
        return describe_tensor(value)
    if isinstance(value, tuple):
        return f"({', '.join(map(describe, value))})"
    return type(value).__name__


def check_delta(half: Half, hook: str, result: object, like: Delta) -> Delta:
    """Check that a hook returned a Delta with the shapes and dtypes of `like`, and return it."""
    if isinstance(result, Delta):
        if _is_like(result.parameters, like.parameters) and _is_like(result.buffers, like.buffers):
            return result
        found: object = f"Delta{describe((result.parameters, result.buffers))}"
    else:
        found = result
    raise wrong_result(half, hook, found, f"Delta({describe(like.parameters)}, {describe(like.buffers)})")


def _is_like(part: object, expected: Tensor) -> bool:
    if not isinstance(part, Tensor) or part.shape != expected.shape or part.dtype != expected.dtype:
        return False
    return part.device == expected.device or part.device.type == expected.device.type


def _check_trained(half: Half, result: object, model: FlatModel, client: object) -> Delta:
    """Check that `train` returned a Delta of the model."""
    return check_delta(half, "train", result, Delta(model.parameters, model.buffers))


def _check_updated(half: Half, result: object, model: FlatModel, server: object, delta: Delta, reply: object) -> Delta:
    """Check that `update` returned a Delta like the one that it received."""
    return check_delta(half, "update", result, delta)


def _check_finished(half: Half, result: object, model: FlatModel, client: object, delta: Delta) -> tuple[Delta, Terms]:
    """Check that `finish` returned a Delta and terms."""
    if not isinstance(result, tuple) or len(result) != 2:
        raise wrong_result(half, "finish", result, "a Delta and the terms, a dict, which may be empty")
    return check_delta(half, "finish", result[0], delta), check_terms(half, "finish", result[1])


def _check_encoded(
    half: Half, result: object, model: FlatModel, name: str, vector: Tensor, draws: object
) -> Tensor | Encoded:
    """Check that `encode` returned a tensor or an Encoded that has the vector's shape and dtype. Return the result."""
    if not isinstance(result, Tensor | Encoded):
        raise wrong_result(half, "encode", result, "a tensor or an Encoded")
    back = decoded(result)
    if (back.shape, back.dtype) != (vector.shape, vector.dtype):
        allowed = f"a value that decodes to {describe(vector)}, like the vector that it received"
        raise wrong_result(half, "encode", f"a value that decodes to {describe(back)}", allowed)
    return result


def check_terms(half: Half, hook: str, result: object) -> Terms:
    """Check that a hook or an op returned terms with names that the method declares, and return them."""
    replies = half.method.replies
    allowed = "a dict from names in the method's `replies` to Terms, each with a tensor or an Encoded"
    if not isinstance(result, Mapping):
        raise wrong_result(half, hook, result, allowed)
    for name, term in result.items():
        if name not in replies:
            names = ", ".join(replies) or "none"
            raise wrong_result(half, hook, f"a term {name!r:.60}", f"the names in the method's `replies`: {names}")
        if not isinstance(term, Term) or not isinstance(term.value, Tensor | Encoded):
            raise wrong_result(half, hook, f"{name}: {describe(getattr(term, 'value', term))}", allowed)
        if term.weight is not None and not 0 <= term.weight <= 1:
            raise wrong_result(half, hook, f"{name} with the weight {term.weight}", "a weight from 0 to 1, or None")
        if replies[name] == "total":
            _check_total(half, hook, name, term)
    return result


def _check_total(half: Half, hook: str, name: str, term: Term) -> None:
    """Check that a term may be added to a total."""
    value = decoded(term.value)
    if value.dtype not in DTYPES:
        raise wrong_result(half, hook, f"{name}: {describe(value)}", "int64 or float64, as it is a total")
    if term.weight is not None:
        raise wrong_result(half, hook, f"{name} with the weight {term.weight}", "None, as it is a total")


def check_replies(name: str, method: Method) -> None:
    """Check the reductions that a method declares. Raises ConfigError."""
    reductions = get_args(Reduction)
    for term, how in method.replies.items():
        if how not in reductions:
            raise ConfigError(f"methods.{name}: its replies have {how!r} for {term}, allowed: {', '.join(reductions)}")


def check_like(half: Half, hook: str, result: object, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Check that a hook returned a tensor with this shape and dtype, and return it."""
    if not isinstance(result, Tensor) or (result.shape, result.dtype) != ((*shape,), dtype):
        raise wrong_result(half, hook, result, f"a tensor {_name(dtype)} {[*shape]}")
    return result


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _check_task_loss(half: Half, result: object, model: FlatModel, step: Step) -> Tensor:
    """Check that `task_loss` returned a scalar."""
    return check_like(half, "task_loss", result, (), model.dtype)


def _check_gradient(half: Half, result: object, model: FlatModel, step: Step, gradient: Tensor) -> Tensor:
    """Check that `gradient` returned a vector [P] like the one that it received."""
    return check_like(half, "gradient", result, gradient.shape, gradient.dtype)


def _check_penalty(half: Half, result: object, model: FlatModel, step: Step) -> Tensor:
    """Check that `penalty` returned a scalar with a gradient, or 0."""
    penalty = check_like(half, "penalty", result, (), model.dtype)
    if not penalty.requires_grad and is_custom(type(half)) and bool(penalty != 0):
        allowed = "0, or a value of step.logits, step.features or the parameters of client.model.module"
        raise wrong_result(half, "penalty", "a value without a gradient, which changes nothing", allowed)
    return penalty


def check_loss(half: ClientHalf | None, model: FlatModel, loss: Tensor) -> None:
    """Check that a batch's loss, from a half's task_loss or the objective, has a gradient."""
    if loss.requires_grad:
        return
    allowed = "one that autograd can follow, without detach() or torch.no_grad()"
    if half is not None:
        raise wrong_result(half, "task_loss", "a loss without a gradient", allowed)
    raise WrongResult(
        f"model.name: {place_of(type(model.module))} returned outputs without a gradient, allowed: {allowed}"
    )


def _check_positions(half: Half, result: object, model: FlatModel, client: Client) -> Tensor:
    """Check that `samples` returned positions in the client's stream, and return them."""
    samples = len(client.stream)
    allowed = f"positions in the client's stream: int64 [n], on the CPU, from 0 to {samples - 1}"
    if (
        not isinstance(result, Tensor)
        or result.dtype != torch.int64
        or result.dim() != 1
        or result.device.type != "cpu"
    ):
        raise wrong_result(half, "samples", result, allowed)
    if len(result) and not 0 <= int(result.min()) <= int(result.max()) < samples:
        raise wrong_result(half, "samples", f"positions from {result.min()} to {result.max()}", allowed)
    if len(result.unique()) < len(result):
        raise wrong_result(half, "samples", "a position twice", f"{allowed}, each at most once")
    return result


def _check_batches(
    half: Half, result: object, model: FlatModel, client: object
) -> Iterator[tuple[Tensor, Tensor]] | None:
    """Return the batches that `batches` returned, each of which is checked when it is used, or None."""
    return None if result is None else _checked_batches(half, result, model)


def _checked_batches(half: Half, result: object, model: FlatModel) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the batches, each after a check."""
    allowed = "batches of x [n, ...] and y [n], or None"
    if not isinstance(result, Iterable):
        raise wrong_result(half, "batches", result, allowed)
    for batch in result:
        tensors = isinstance(batch, tuple | list) and all(isinstance(part, Tensor) for part in batch)
        if not tensors or len(batch) != 2 or len(batch[0]) != len(batch[1]):
            raise wrong_result(half, "batches", describe(batch), allowed, "yielded")
        yield check_inputs(half, "batches", batch[0], model), batch[1]


def check_inputs(half: Half, hook: str, x: Tensor, model: FlatModel, did: str = "yielded x") -> Tensor:
    """Check the dtype of a batch's inputs, and return them. With training.precision=bf16, torch would cast others."""
    if x.is_floating_point() and x.dtype != model.dtype:
        raise wrong_result(half, hook, x, f"{_name(model.dtype)}, or ids", did)
    return x


def _check_batch(half: Half, result: object, model: FlatModel, step: Step) -> None:
    """Check the batch after a `batch` hook, which may have added rows."""
    if len(step.x) != len(step.y):
        rows = f"x {describe(step.x)} and y {describe(step.y)}"
        raise wrong_result(half, "batch", rows, "as many rows in step.x as in step.y", "left")
    check_inputs(half, "batch", step.x, model, "left step.x")


def check_outputs(model: FlatModel, outputs: object, samples: int) -> Tensor:
    """Check that the model returned a tensor with one row for each of `samples` samples, and return it."""
    if not isinstance(outputs, Tensor) or outputs.dim() < 1 or len(outputs) != samples:
        allowed = f"a tensor with a row for each of the {samples} samples of the batch"
        raise WrongResult(
            f"model.name: {place_of(type(model.module))} returned {describe(outputs)}, allowed: {allowed}"
        )
    return outputs


def _check_announced(half: Half, result: object, model: FlatModel, server: object) -> tuple[Any, Sequence[Broadcast]]:
    """Check that `announce` returned a message and broadcasts."""
    allowed = "a message and a list of Broadcasts, which may be empty"
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], Sequence):
        raise wrong_result(half, "announce", result, allowed)
    for broadcast in result[1]:
        if not isinstance(broadcast, Broadcast):
            raise wrong_result(half, "announce", f"broadcasts of {describe(broadcast)}", allowed)
    return result[0], result[1]


def _plans(hook: str) -> Check:
    """Return the check of a hook that returns a plan, or None for an empty one."""

    def check(half: Half, result: object, model: FlatModel, server: object) -> Plan | None:
        if result is None or isinstance(result, Generator):
            return result
        raise wrong_result(half, hook, result, "a plan, which is a generator that yields Requests, or None")

    return check


def _check_trains(half: Half, result: object, model: FlatModel, server: object) -> bool:
    """Check that `trains` returned a truth value."""
    if not isinstance(result, bool):
        raise wrong_result(half, "trains", result, "True or False")
    return result


def _check_selected(half: ServerHalf, result: object, model: FlatModel, server: Server) -> Sequence[int]:
    """Check that `select` returned clients that are present."""
    return check_chosen(result, server.present, f"methods.{half.name}", type(half).select)


def check_request(half: Half, hook: str, yielded: object) -> Request:
    """Check that a plan yielded a request for an op of the client half, and return it."""
    method: Method = half.method
    if not isinstance(yielded, Request):
        raise wrong_result(half, hook, f"a plan of {describe(yielded)}", "a plan that yields Requests")
    if not callable(getattr(method.Client, yielded.op, None)):
        ops = [name for name in vars(method.Client) if not name.startswith("_") and not hasattr(ClientHalf, name)]
        allowed = f"the ops of the method's client half: {', '.join(ops) or 'none'}"
        raise wrong_result(half, hook, f"a plan that requests {yielded.op!r:.60}", allowed)
    if yielded.messages is not None and not isinstance(yielded.messages, Mapping):
        found = f"a plan with messages of type {describe(yielded.messages)}"
        raise wrong_result(half, hook, found, "a dict from ids of clients to messages")
    if yielded.messages is not None and yielded.message is not None:
        raise wrong_result(half, hook, "a plan with a message and messages in a Request", "one of the two")
    return yielded


def _check_evaluated(half: Half, result: object, network: FlatModel, server: object) -> Weights | None:
    """Check that `evaluated` returned weights with the model's shapes, or None."""
    if result is None or (
        isinstance(result, Weights)
        and _fits(result, network)
        and result.frozen.keys() <= network.frozen.keys() - names_left_out(network.module)
        and all(value.shape == network.frozen[name].shape for name, value in result.frozen.items())
    ):
        return result
    allowed = f"Weights{describe(network.vectors)} with frozen parameters of the model by name, or None for the model"
    allowed += "; model.cache has only the features of some" * bool(names_left_out(network.module))
    raise wrong_result(half, "evaluated", _describe_weights(result), allowed)


def _check_personalized(half: Half, result: object, model: FlatModel, client: object, weights: object) -> Weights:
    """Check that `personalize` returned weights with the model's shapes and dtypes."""
    if isinstance(result, Weights) and _fits(result, model):
        return result
    raise wrong_result(half, "personalize", _describe_weights(result), f"Weights{describe(model.vectors)}")


def _fits(weights: Weights, model: FlatModel) -> bool:
    """Return whether weights have the shapes and dtypes of a model's."""
    return all(
        isinstance(part, Tensor) and (part.shape, part.dtype) == (like.shape, like.dtype)
        for part, like in zip(weights.vectors, model.vectors, strict=True)
    )


def _describe_weights(result: object) -> str:
    return f"Weights{describe(result.vectors)}" if isinstance(result, Weights) else describe(result)


CHECKS: Mapping[str, Mapping[str, Check]] = {
    ClientHalf.side: {
        "samples": _check_positions,
        "batches": _check_batches,
        "batch": _check_batch,
        "task_loss": _check_task_loss,
        "penalty": _check_penalty,
        "gradient": _check_gradient,
        "train": _check_trained,
        "finish": _check_finished,
        "personalize": _check_personalized,
        "encode": _check_encoded,
    },
    ServerHalf.side: {
        "select": _check_selected,
        "prepare": _plans("prepare"),
        "trains": _check_trains,
        "announce": _check_announced,
        "evaluated": _check_evaluated,
        "update": _check_updated,
        "conclude": _plans("conclude"),
        "end_task": _plans("end_task"),
    },
}
"""Side of the half -> hook -> check. Hooks that are not here return nothing."""
