"""A model's training passes as CUDA graphs: a forward or a backward pass is one launch instead of one for each kernel.

The kernels are the same, and so are the bits: every new graph is checked for this. A graph works on separate tensors at
fixed addresses. It therefore serves batches of one shape, and no second pass may begin in it while the first pass's
activations are in use.
"""

import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from raysim.models.flat import FlatModel
from raysim.system.errors import RunError
from raysim.system.seeding import torch_restored

SEEN_BEFORE = 2  # passes of a shape before a graph pays off
MOST_GRAPHS = 8  # each holds a separate gradient; other shapes run kernel by kernel


class Graphs:
    """The forward pass of a model on a GPU, in place of `model.module`.

    Passes that are not trained through (without a gradient, or in evaluation mode) and those of rare shapes go to the
    module itself. A pass takes a place until autograd drops it. The next pass in the meantime (DER's replayed batch) is
    one place deeper. Graphs of one depth share their memory.

    Args:
        model: the model. Its vectors stay where they are.
    """

    def __init__(self, model: FlatModel) -> None:
        self._model = model
        self._seen: Counter[torch.Size] = Counter()
        self._graphs: dict[tuple[int, torch.Size], Callable[..., Tensor]] = {}
        self._pools: list[Any] = []
        self._taken: set[int] = set()
        self._parameters = [p for p in model.module.parameters() if p.requires_grad]
        number = {id(p): k for k, p in enumerate(self._parameters)}  # tied layers have one
        self._owners = [
            (module, leaf, number[id(p)])
            for module in model.module.modules()
            for leaf, p in module.named_parameters(recurse=False, remove_duplicate=False)
            if id(p) in number
        ]

    def __call__(self, x: Tensor) -> Tensor:
        """Return the logits [n, classes] of x [n, ...]. Raises RunError: the model's pass cannot be a graph."""
        module = self._model.module
        plain: Callable[[Tensor], Tensor] = module
        if not (module.training and torch.is_grad_enabled()):
            return plain(x)
        depth = next(place for place in range(len(self._taken) + 1) if place not in self._taken)
        graph = self._graphs.get((depth, x.shape))
        if graph is None:
            self._seen[x.shape] += 1
            if self._seen[x.shape] <= SEEN_BEFORE or len(self._graphs) == MOST_GRAPHS:
                return plain(x)
            graph = self._graphs[depth, x.shape] = self._capture(depth, x)
        logits = graph(x, *self._parameters)
        self._taken.add(depth)
        weakref.finalize(logits.grad_fn, self._taken.discard, depth).atexit = False
        return logits.clone()  # the graph's own are overwritten by its next pass

    def _capture(self, depth: int, x: Tensor) -> Callable[..., Tensor]:
        """Capture the passes of a batch like x and check them. The model and the generators stay unchanged."""
        if depth == len(self._pools):
            self._pools.append(torch.cuda.graph_pool_handle())
        # separate autograd leaves: a pending pass would draw its CUDA stream into the capture
        leaves = [nn.Parameter(p.detach()) for p in self._parameters]
        with self._unmoved():
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", UserWarning)  # about the streams of the capture's warm-up passes
                    graph: Any = torch.cuda.make_graphed_callables(
                        self._pass_with, (x.clone(), *leaves), allow_unused_input=True, pool=self._pools[depth]
                    )
            except RuntimeError as error:
                raise _refusal(str(error).strip().partition("\n")[0]) from error
        if not all(map(torch.equal, self._try(graph, x), self._try(self._pass_with, x))):
            raise _refusal("it computes other values")
        return cast(Callable[..., Tensor], graph)

    def _pass_with(self, x: Tensor, *parameters: nn.Parameter) -> Tensor:
        """Return the logits of x under other parameters than the model's."""
        try:
            for owner, leaf, number in self._owners:
                setattr(owner, leaf, parameters[number])  # not into its dict, as recurrent layers keep a list too
            logits: Tensor = self._model.module(x)
        finally:
            for owner, leaf, number in self._owners:
                setattr(owner, leaf, self._parameters[number])
        return logits

    def _try(self, function: Callable[..., Tensor], x: Tensor) -> list[Tensor]:
        """Return the logits of x, and the gradients of their sum."""
        with self._unmoved():
            logits = function(x, *self._parameters)
            gradients = torch.autograd.grad(logits, self._parameters, torch.ones_like(logits), materialize_grads=True)
            return [logits.detach().clone(), *(gradient.clone() for gradient in gradients)]

    @contextmanager
    def _unmoved(self) -> Iterator[None]:
        """Restore the model's statistics and torch's generators at the end of this context."""
        model = self._model
        buffers, integers = model.buffers.clone(), model.integers.clone()
        with torch_restored():
            yield
        model.buffers.data.copy_(buffers)  # a pass that is pending must not find its statistics changed
        model.integers.data.copy_(integers)


def _refusal(reason: str) -> RunError:
    return RunError(
        f"resources.cuda_graphs: a pass of the model cannot be a graph ({reason}), allowed: a model whose forward pass "
        "neither waits for the GPU nor decides by values; set it to false"
    )
