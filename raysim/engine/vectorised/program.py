"""One step's losses and gradients of several clients at a time, by torch.vmap; on a GPU also as a CUDA graph."""

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from raysim.api.method import ClientHalf, overrides
from raysim.api.step import Step
from raysim.engine.hook_checks import check_like, check_outputs, place_of_hook
from raysim.engine.hosted_client import HostedClient
from raysim.engine.vectorised.layers import Layers, inner
from raysim.engine.vectorised.one_client import Hidden, OneClient, Tensors, with_tensors
from raysim.system.errors import RunError, describe_error
from raysim.system.state import map_tensors, tensors_in

FEWEST = 2  # clients of a program: torch computes a single one by other kernels
SEEN_BEFORE = 2  # programs of a kind before a graph pays off
MOST_GRAPHS = 8  # each has its own tensors
NO_TENSOR = torch.zeros(0)


@dataclass
class Passed:
    """The results of the clients' passes, [n, ...] each."""

    gradient: Tensor
    loss: Tensor
    logits: Tensor
    buffers: Tensor
    integers: Tensor


@dataclass(frozen=True)
class Program:
    """The passes of a step, and the hooks in it.

    Args:
        like: any client of the block.
        halves: the halves with hooks in the step, from `make_halves`.
        clip_norm: the largest norm of a gradient, or None.
    """

    like: HostedClient
    halves: Mapping[str, ClientHalf] = field(default_factory=dict)
    clip_norm: float | None = None

    def __call__(self, tensors: Tensors) -> Passed:
        """Compute the losses and the gradients. BatchNorm changes `buffers` and `integers` of the tensors.

        Raises:
            RunError: the model or a hook cannot compute for several clients at once.
        """
        clients = tensors.clients
        parameters = clients["parameters"] = clients["parameters"].detach().requires_grad_()
        with torch.enable_grad():
            total, loss, logits = torch.vmap(lambda own: self._pass(own, tensors))(clients)
            (gradient,) = torch.autograd.grad(total.sum(), parameters)
        clients["parameters"] = parameters.detach()
        loss, logits = loss.detach(), logits.detach()
        if self.clip_norm is not None or any(self._owners("gradient")):
            refined = torch.vmap(lambda own, *passed: self._refine(own, tensors, *passed))
            gradient = refined(clients, gradient, loss, logits)
        return Passed(gradient, loss, logits, clients["buffers"], clients["integers"])

    @property
    def kind(self) -> tuple[object, ...]:
        """What a graph of the program depends on besides its tensors."""
        plain = [(name, key, value) for name, half in self.halves.items() for key, value in vars(half).items()]
        facts = [(name, key, value) for name, key, value in plain if isinstance(value, int | float | str | None)]
        return self.clip_norm, *facts, *([self.like.lr] if facts else [])

    def _owners(self, hook: str) -> Iterator[ClientHalf]:
        return (half for half in self.halves.values() if overrides(type(half), hook))

    def _pass(self, own: Mapping[str, Any], tensors: Tensors) -> tuple[Tensor, Tensor, Tensor]:
        """Return one client's loss with penalties, its loss without them, and its logits."""
        client, step = self._begin(own, tensors)
        with Layers(own["key"]):
            with _explained(f"model.name: the model {type(client.model.module).__name__}"):
                step.logits = client.model(step.x)
            check_outputs(client.model, step.logits, len(step.x))
            losses = [self._call(half, "task_loss", own, (), step) for half in self._owners("task_loss")]
            total = step.loss = losses[0] if losses else client.loss(step.logits, step.y)
            for half in self._owners("penalty"):
                total = total + self._call(half, "penalty", own, (), step)
        return total, step.loss, step.logits

    def _refine(
        self, own: Mapping[str, Any], tensors: Tensors, gradient: Tensor, loss: Tensor, logits: Tensor
    ) -> Tensor:
        """Return one client's gradient [P] after the hooks and clipping."""
        _, step = self._begin(own, tensors)
        step.loss, step.logits = loss, logits
        with Layers(own["key"]):
            for half in self._owners("gradient"):
                gradient = self._call(half, "gradient", own, gradient.shape, step, gradient)
        if self.clip_norm is not None:
            gradient = gradient * (self.clip_norm / (inner(gradient, gradient).sqrt() + 1e-6)).clamp(max=1.0)
        return gradient

    def _begin(self, own: Mapping[str, Any], tensors: Tensors) -> tuple[OneClient, Step]:
        hidden: Any = Hidden("the step's positions, number or end")
        client = OneClient(self.like, own, tensors.broadcasts)
        return client, Step(client, hidden, hidden, hidden, hidden, own["x"], own["y"])

    def _call(
        self, half: ClientHalf, hook: str, own: Mapping[str, Any], shape: Sequence[int], *arguments: Any
    ) -> Tensor:
        """Return a hook's result for one client. Raises RunError: it cannot run under vmap, or changes its half."""
        mine = with_tensors(half, own["halves"][half.name])
        before = dict(vars(mine))
        with _explained(f"methods.{half.name}: {place_of_hook(type(half), hook)}"):
            result = getattr(mine, hook)(*arguments)
            if any(vars(mine).get(key) is not value for key, value in before.items()) or len(vars(mine)) > len(before):
                raise RunError("it changes the half's attributes")
        return check_like(half, hook, result, shape, self.like.model.dtype)


class Programs:
    """Runs programs, on a GPU as CUDA graphs if `graphs`. Programs of one kind and shape share a graph."""

    def __init__(self, graphs: bool) -> None:
        self._uses_graphs = graphs
        self._seen: Counter[object] = Counter()
        self._graphs: dict[object, tuple[Any, Tensors, Passed]] = {}

    def __call__(self, program: Program, tensors: Tensors) -> Passed:
        """Return the program's results. The next call may overwrite them."""
        if not self._uses_graphs:
            return program(tensors)
        numbers = {name: map_tensors(lambda _: NO_TENSOR, sent.value) for name, sent in tensors.broadcasts.items()}
        names = {name: sorted(own) for name, own in tensors.clients["halves"].items()}
        shapes = [(tensor.shape, tensor.dtype) for tensor in tensors_in(tensors)]
        key = repr((program.kind, numbers, [*tensors.clients], names, shapes))
        if key not in self._graphs:
            self._seen[key] += 1
            if self._seen[key] <= SEEN_BEFORE or len(self._graphs) == MOST_GRAPHS:
                return program(tensors)
            self._graphs[key] = _capture(program, tensors)
        graph, inputs, outputs = self._graphs[key]
        for kept, given in zip(tensors_in(inputs), tensors_in(tensors), strict=True):
            kept.copy_(given)
        graph.replay()
        return outputs


def _capture(program: Program, tensors: Tensors) -> tuple[Any, Tensors, Passed]:
    """Capture a program as a graph, with its inputs and outputs. Raises RunError: it computes other values."""
    inputs: Tensors = map_tensors(lambda tensor: tensor.detach().clone(), tensors)
    leaves = tensors_in(inputs)  # the program puts others into the same dict
    expected = tensors_in(program(map_tensors(torch.clone, inputs)))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for _ in range(SEEN_BEFORE):
            program(map_tensors(torch.clone, inputs))
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    clients = dict(inputs.clients)
    with torch.cuda.graph(graph):
        outputs = program(Tensors(clients, inputs.broadcasts))
    for kept, given in zip(leaves, tensors_in(tensors), strict=True):
        kept.copy_(given)
    graph.replay()
    if not all(map(torch.equal, tensors_in(outputs), expected)):
        raise RunError("resources.cuda_graphs: a step's graph computes other values; set it to false")
    return graph, inputs, outputs


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Raise an error of torch.vmap as a RunError that names the code."""
    try:
        yield
    except (RunError, RuntimeError, TypeError) as error:  # of what is hidden, of vmap, of torch given what is hidden
        reason = str(error) if isinstance(error, RunError) else describe_error(error)
        allowed = "allowed: code that draws nothing, decides by no value and keeps nothing; or training.vectorise=null"
        words = f"training.vectorise: {what} cannot compute for several clients at once: {reason}; {allowed}"
        raise RunError(words) from error
