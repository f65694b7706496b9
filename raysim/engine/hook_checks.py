"""What methods' hooks return, looked at where it comes in: a hook that returns something else is named, with its line.

Only types, shapes and names are looked at here, for which no GPU is waited for. Values are in `orders.Reply` and
`exchange.update_model`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

import torch
from torch import Tensor

from raysim.api.encoded import Encoded, decoded
from raysim.api.messages import Broadcast, Delta, Reduction, Request, Term, Terms
from raysim.api.method import INSIDE_THE_LOOP, ClientHalf, Half, Method
from raysim.api.step import Step
from raysim.config import Config
from raysim.data.transforms import describe_tensor
from raysim.models.flat import FlatModel, Weights
from raysim.system.custom_code import is_own, place_of
from raysim.system.errors import ConfigError, WrongResult

IN_STEPS = (*INSIDE_THE_LOOP, "train")


def place_of_hook(half: type[Half], hook: str) -> str:
    """Return a hook's name and where it is defined."""
    return place_of(getattr(half, hook))


def describe_own_steps(config: Config, methods: Iterable[Method]) -> str:
    """Return which code of the user's own takes part in a client's steps, with its places; nothing if there is none."""
    parts = [config.model.function(), config.training.optimizer.function()]
    parts += [getattr(method.Client, hook) for method in methods for hook in IN_STEPS]
    own = [place_of(part) for part in parts if is_own(part)]
    return f", made with {', '.join(own)}" if own else ""


def refuse(half: Half, hook: str, found: object, allowed: str, did: str = "returned") -> WrongResult:
    """Return the error about what a hook returned; `found` is described, if it is no text."""
    said = found if isinstance(found, str) else describe(found)
    return WrongResult(f"methods.{half.name}: {place_of_hook(type(half), hook)} {did} {said}, allowed: {allowed}")


def describe(found: object) -> str:
    """Return what something is, in a few words."""
    if isinstance(found, Tensor):
        return describe_tensor(found)
    if isinstance(found, tuple):
        return f"({', '.join(map(describe, found))})"
    return type(found).__name__


def check_delta(half: Half, hook: str, found: object, like: Delta) -> Delta:
    """Return a delta that a hook returned, of the shapes of another."""
    wanted = f"Delta({describe(like.parameters)}, {describe(like.buffers)})"
    if not isinstance(found, Delta):
        raise refuse(half, hook, found, wanted)
    parts = (found.parameters, found.buffers)
    right = all(
        isinstance(part, Tensor) and part.shape == own.shape and part.is_floating_point()
        for part, own in zip(parts, (like.parameters, like.buffers), strict=True)
    )
    if not right:
        raise refuse(half, hook, f"Delta{describe(parts)}", wanted)
    return found


def check_finished(half: ClientHalf, found: object, like: Delta) -> tuple[Delta, Terms]:
    """Return what `finish` returned: a delta and terms."""
    if not isinstance(found, tuple) or len(found) != 2:
        raise refuse(half, "finish", found, "a Delta and the terms, a dict, which may be empty")
    return check_delta(half, "finish", found[0], like), check_terms(half, "finish", found[1])


def check_encoded(half: ClientHalf, found: object, value: Tensor) -> Tensor | Encoded:
    """Return what `encode` made of a vector: one that decodes to as much."""
    if not isinstance(found, Tensor | Encoded):
        raise refuse(half, "encode", found, "a tensor or an Encoded")
    back = decoded(found)
    if (back.shape, back.dtype) != (value.shape, value.dtype):
        raise refuse(half, "encode", f"what decodes to {describe(back)}", f"what it was given, {describe(value)}")
    return found


def check_terms(half: ClientHalf, hook: str, found: object) -> Terms:
    """Return the terms that a hook or an op returned, by the names that the method declares."""
    replies, allowed = half.method.replies, "a dict of Terms, tensors by names that its method's `replies` declare"
    if not isinstance(found, Mapping):
        raise refuse(half, hook, found, allowed)
    for name, term in found.items():
        if name not in replies:
            names = ", ".join(replies) or "none"
            raise refuse(half, hook, f"a term {name!r:.60}", f"those that its method's `replies` declare: {names}")
        if not isinstance(term, Term) or not isinstance(term.value, Tensor | Encoded):
            raise refuse(half, hook, f"{name}: {describe(getattr(term, 'value', term))}", allowed)
        if term.weight is not None and not 0 <= term.weight <= 1:
            raise refuse(half, hook, f"{name} with the weight {term.weight}", "a weight from 0 to 1, or None")
    return found


def check_replies(name: str, method: Method) -> None:
    """Check that a method says of each term how it is reduced. Raises ConfigError."""
    known = get_args(Reduction)
    for term, how in method.replies.items():
        if how not in known:
            raise ConfigError(f"methods.{name}: its replies have {how!r} for {term}, allowed: {', '.join(known)}")


def check_shape(half: ClientHalf, hook: str, found: object, shape: Sequence[int]) -> Tensor:
    """Return a tensor of floating-point numbers of this shape, which a hook returned."""
    if not isinstance(found, Tensor) or found.shape != (*shape,) or not found.is_floating_point():
        raise refuse(half, hook, found, f"a tensor of floating-point numbers {[*shape]}")
    return found


def check_positions(half: ClientHalf, found: object, samples: int) -> Tensor:
    """Return what `samples` returned: positions in a stream of so many samples."""
    allowed = f"positions in the client's stream: int64 [n], on the CPU, from 0 to {samples - 1}"
    if not isinstance(found, Tensor) or found.dtype != torch.int64 or found.dim() != 1 or found.device.type != "cpu":
        raise refuse(half, "samples", found, allowed)
    if len(found) and not 0 <= int(found.min()) <= int(found.max()) < samples:
        raise refuse(half, "samples", f"positions from {found.min()} to {found.max()}", allowed)
    return found


def check_batches(half: ClientHalf, found: object) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield an epoch's batches, which `batches` returned."""
    allowed = "batches of x [n, ...] and y [n], or None"
    if not isinstance(found, Iterable):
        raise refuse(half, "batches", found, allowed)
    for batch in found:
        tensors = isinstance(batch, tuple | list) and all(isinstance(part, Tensor) for part in batch)
        if not tensors or len(batch) != 2 or len(batch[0]) != len(batch[1]):
            raise refuse(half, "batches", describe(batch), allowed, "yielded")
        yield batch[0], batch[1]


def check_batch(half: ClientHalf, step: Step) -> None:
    """Look at a batch to which `batch` may have added rows."""
    if len(step.x) != len(step.y):
        found = f"x {describe(step.x)} and y {describe(step.y)}"
        raise refuse(half, "batch", found, "as many rows in step.x as in step.y", "left")


def check_outputs(model: FlatModel, found: object, samples: int) -> Tensor:
    """Return what the model returned for so many samples in training: as many rows."""
    if not isinstance(found, Tensor) or found.dim() < 1 or len(found) != samples:
        allowed = f"a tensor with a row for each of the {samples} samples of the batch"
        raise WrongResult(f"model.name: {place_of(type(model.module))} returned {describe(found)}, allowed: {allowed}")
    return found


def check_announced(half: Half, found: object) -> tuple[Any, Sequence[Broadcast]]:
    """Return what `announce` returned: message and broadcasts."""
    if not isinstance(found, tuple) or len(found) != 2 or not isinstance(found[1], Sequence):
        raise refuse(half, "announce", found, "message, and a list of Posts, which may be empty")
    other = [broadcast for broadcast in found[1] if not isinstance(broadcast, Broadcast)]
    if other:
        raise refuse(half, "announce", f"broadcasts of {describe(other[0])}", "message, and a list of Posts")
    return found[0], found[1]


def check_ask(half: Half, hook: str, found: object) -> Request:
    """Return what a plan yielded: an ask for something that the client half does."""
    method: Method = half.method
    if not isinstance(found, Request):
        raise refuse(half, hook, f"a plan of {describe(found)}", "a plan that yields Asks")
    if not callable(getattr(method.Client, found.op, None)):
        own = [name for name in vars(method.Client) if not name.startswith("_") and not hasattr(ClientHalf, name)]
        allowed = f"its client half's methods: {', '.join(own) or 'none'}"
        raise refuse(half, hook, f"a plan that asks for {found.op!r:.60}", allowed)
    return found


def check_weights(half: Half, found: object, network: FlatModel) -> Weights | None:
    """Return what `evaluated` returned: weights of the model, or None."""
    own = (network.parameters, network.buffers, network.integers)
    if found is None or (
        isinstance(found, Weights)
        and all(
            isinstance(part, Tensor) and part.shape == mine.shape
            for part, mine in zip((found.parameters, found.buffers, found.integers), own, strict=True)
        )
    ):
        return found
    raise refuse(half, "evaluated", found, f"Weights{describe(own)}, or None for the model")
