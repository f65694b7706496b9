"""A model's training passes as CUDA graphs: a forward or a backward pass is one launch instead of one for each kernel.

The kernels are the same, and so are the bits. A graph works on tensors of its own at fixed addresses, so that it serves
batches of one shape, and a second pass may not begin where the first one's activations are still wanted.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from raysim.models.flat import FlatModel
from raysim.system.errors import RunError
from raysim.system.seeding import torch_restored

SEEN_BEFORE = 2  # how often a shape must have come before it is worth a graph
MOST_GRAPHS = 8  # each has a gradient of its own; the other shapes are computed kernel by kernel


class Graphs:
    """The forward pass of a model on a GPU, in place of `model.module`.

    Passes that are not trained through (without a gradient, or in evaluation mode) and those of rare shapes go to the
    module itself. Graphs of one depth share their memory, as a pass takes a place until nothing refers to it; the next
    pass meanwhile (DER's replayed batch) is one place deeper.

    Args:
        model: the model, whose vectors stay where they are.
    """

    def __init__(self, model: FlatModel) -> None:
        self._model = model
        self._seen: Counter[torch.Size] = Counter()
        self._graphs: dict[tuple[int, torch.Size], Callable[[Tensor], Tensor]] = {}
        self._pools: list[Any] = []
        self._taken: set[int] = set()

    def __call__(self, x: Tensor) -> Tensor:
        """Return the logits [n, classes] of x [n, ...]. Raises RunError: the model's pass cannot be a graph."""
        module = self._model.module
        if not (module.training and torch.is_grad_enabled()):
            return _pass(module, x)
        depth = next(place for place in range(len(self._taken) + 1) if place not in self._taken)
        graph = self._graphs.get((depth, x.shape))
        if graph is None:
            self._seen[x.shape] += 1
            if self._seen[x.shape] <= SEEN_BEFORE or len(self._graphs) == MOST_GRAPHS:
                return _pass(module, x)
            graph = self._graphs[depth, x.shape] = self._capture(depth, x)
        logits = graph(x)
        assert logits.grad_fn is not None
        logits.grad_fn.metadata["place"] = _Place(self._taken, depth)
        return logits.clone()  # the graph's own are overwritten by its next pass

    def _capture(self, depth: int, x: Tensor) -> Callable[[Tensor], Tensor]:
        """Capture the passes of a batch like x; they are tried before, which leaves no trace in model or generators."""
        model = self._model
        if depth == len(self._pools):
            self._pools.append(torch.cuda.graph_pool_handle())
        buffers, integers = model.buffers.clone(), model.integers.clone()
        try:
            with torch_restored():
                graph: Callable[[Tensor], Tensor] = torch.cuda.make_graphed_callables(
                    _Whole(model.module), (x.clone(),), allow_unused_input=True, pool=self._pools[depth]
                )
        except RuntimeError as error:
            reason = str(error).strip().partition("\n")[0]
            raise RunError(
                f"resources.cuda_graphs: a pass of the model cannot be a graph ({reason}), allowed: a model whose "
                "forward pass neither waits for the GPU nor decides by values; set it to false"
            ) from error
        model.buffers.copy_(buffers)
        model.integers.copy_(integers)
        return graph


class _Whole(nn.Module):
    """A module around the model's, which torch can give another forward pass without changing the model's."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        return _pass(self.module, x)


class _Place:
    """What a pass takes while its activations are wanted: it is free again when autograd drops the pass."""

    def __init__(self, taken: set[int], depth: int) -> None:
        self._taken, self._depth = taken, depth
        taken.add(depth)

    def __del__(self) -> None:
        self._taken.discard(self._depth)


def _pass(module: nn.Module, x: Tensor) -> Tensor:
    logits: Tensor = module(x)
    return logits
