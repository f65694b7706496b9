"""Which passes of a model go through CUDA graphs, and that none disturbs another, with a stand-in for torch's graphs.

The stand-in has what makes graphs dangerous: an input, activations and an output at fixed addresses, shared by all
graphs of one pool, and a backward pass that reads what is there when it runs. On a GPU: tests/engine/test_on_gpu.py.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from raysim.models.flat import FlatModel
from raysim.models.graphs import MOST_GRAPHS, SEEN_BEFORE, Graphs
from raysim.system.errors import RunError


class StandIn:
    """torch.cuda's graphs on a CPU: notes the shapes that were captured and what ran."""

    def __init__(self) -> None:
        self.captured: list[tuple[int, ...]] = []
        self.replays = 0
        self.memory: dict[int, tuple[Tensor, Tensor]] = {}  # by pool, what its last pass read and drew from

    def graph_pool_handle(self) -> int:
        return len(self.memory) + len(self.captured) + 1

    def make_graphed_callables(
        self, function: Callable[..., Tensor], sample: tuple[Tensor, ...], *, allow_unused_input: bool, pool: int
    ) -> Callable[..., Tensor]:
        output = function(*sample).detach().clone()  # a trial, which moves statistics and generators
        self.captured.append(tuple(sample[0].shape))
        leaves = sample[1:]
        world: Any = self

        class Graphed(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Tensor, *parameters: Tensor) -> Tensor:
                assert [p.data_ptr() for p in parameters] == [leaf.data_ptr() for leaf in leaves]
                world.replays += 1
                world.memory[pool] = x.clone(), torch.get_rng_state()
                with torch.enable_grad():  # some layers compute otherwise without
                    found = function(x, *leaves)
                output.copy_(found.detach())
                return output.detach()

            @staticmethod
            def backward(ctx: Any, *above: Tensor) -> Any:
                x, state = world.memory[pool]  # whatever is there now
                with torch.enable_grad(), torch.random.fork_rng(()):
                    torch.set_rng_state(state)
                    again = function(x, *leaves)
                    return None, *torch.autograd.grad(again, leaves, above[0], allow_unused=allow_unused_input)

        function_class: Any = Graphed  # torch does not type what it makes of one
        replay: Callable[..., Tensor] = function_class.apply
        return replay


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    made = StandIn()
    monkeypatch.setattr(torch.cuda, "make_graphed_callables", made.make_graphed_callables)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", made.graph_pool_handle)
    return made


def build() -> FlatModel:
    torch.manual_seed(0)
    model = FlatModel(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)))
    model.forward = Graphs(model)
    return model


def warmed(model: FlatModel, *sizes: int) -> FlatModel:
    """Return the model after so many passes of these sizes that the next one is a graph."""
    for size in sizes:
        for _ in range(SEEN_BEFORE + 1):
            model(torch.ones(size, 3))
    return model


def test_a_shape_becomes_a_graph_after_it_has_come_before(stand_in: StandIn) -> None:
    model = build()
    for _ in range(SEEN_BEFORE):
        model(torch.zeros(5, 3))
    assert stand_in.captured == []
    model(torch.zeros(5, 3))
    model(torch.zeros(5, 3))
    assert stand_in.captured == [(5, 3)]
    assert stand_in.replays == 3  # with the one that tries it


def test_at_most_so_many_graphs_are_made(stand_in: StandIn) -> None:
    model = warmed(build(), *range(1, MOST_GRAPHS + 3))
    assert len(stand_in.captured) == MOST_GRAPHS
    x = torch.randn(MOST_GRAPHS + 1, 3)
    assert torch.equal(model(x), model.module(x))


def test_passes_that_are_not_trained_through_are_not_graphs(stand_in: StandIn) -> None:
    model = warmed(build(), 5)
    before, x = stand_in.replays, torch.randn(5, 3)
    with torch.no_grad():
        model(x)
    model.module.eval()
    model(x)
    assert stand_in.replays == before


def test_gradients_of_passes_that_are_wanted_together_are_those_of_each(stand_in: StandIn) -> None:
    """The second of equal shape, as DER's, and the third of another shape must leave the first one's activations."""
    model, plain = warmed(build(), 5, 4), build().module
    xs = [torch.randn(5, 3), torch.randn(5, 3), torch.randn(4, 3)]
    for _ in range(SEEN_BEFORE + 2):  # until the deeper places have graphs too
        loss = sum((model(x).square().sum() * (k + 1) for k, x in enumerate(xs)), torch.zeros(()))
        found = model.gradient_of(loss)
        del loss
    assert stand_in.captured == [(5, 3), (4, 3), (5, 3), (4, 3)]
    wanted = sum((plain(x).square().sum() * (k + 1) for k, x in enumerate(xs)), torch.zeros(()))
    assert torch.equal(found, torch.cat([g.view(-1) for g in torch.autograd.grad(wanted, [*plain.parameters()])]))


def test_logits_that_are_kept_do_not_change_with_the_next_pass(stand_in: StandIn) -> None:
    model = warmed(build(), 5)
    kept = model(torch.zeros(5, 3)).detach()
    before = kept.clone()
    model(torch.ones(5, 3))
    assert torch.equal(kept, before)


def test_a_pass_whose_logits_are_dropped_gives_its_place_back(stand_in: StandIn) -> None:
    model = warmed(build(), 5)
    for _ in range(SEEN_BEFORE + 2):
        model(torch.zeros(5, 3)).detach()
    assert stand_in.captured == [(5, 3)]


def test_a_capture_leaves_no_trace_in_statistics_and_generators(stand_in: StandIn) -> None:
    def drawn(graphs: bool) -> tuple[Tensor, Tensor, Tensor]:
        torch.manual_seed(1)
        model = FlatModel(nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Linear(3, 2)))
        if graphs:
            model.forward = Graphs(model)
        torch.manual_seed(2)
        logits = [model(torch.eye(4)[:, :3] + k).detach() for k in range(SEEN_BEFORE + 2)]
        return torch.cat(logits), model.buffers, model.integers

    with_graphs, without = drawn(True), drawn(False)
    assert stand_in.captured == [(4, 3)]
    assert all(torch.equal(one, other) for one, other in zip(with_graphs, without, strict=True))


def test_a_capture_beside_a_pending_pass_leaves_it_alone(stand_in: StandIn) -> None:
    """As DER's first replayed batches come: after the step's own forward pass, and before its backward pass."""

    def gradients(graphs: bool) -> tuple[list[Tensor], Tensor]:
        torch.manual_seed(1)
        model = FlatModel(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 2)))
        if graphs:
            model.forward = Graphs(model)
        x = torch.randn(4, 3)
        passes = [lambda: model(x), lambda: model(x + 1), lambda: model(x * x)]
        found = [model.gradient_of(sum((one().square().sum() for one in passes), torch.zeros(()))) for _ in range(3)]
        return found, model.buffers

    with_graphs, without = gradients(True), gradients(False)
    assert stand_in.captured == [(4, 3)] * 3
    assert all(torch.equal(one, other) for one, other in zip(with_graphs[0], without[0], strict=True))


def test_a_pass_that_cannot_be_captured_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("operation not permitted when stream is capturing\nCompile with TORCH_USE_CUDA_DSA")

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", fail)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: 0)
    with pytest.raises(RunError, match=r"^resources.cuda_graphs: .*is capturing\), allowed: .*; set it to false$"):
        warmed(build(), 5)


class Keeping(nn.Module):
    """A model that keeps a parameter where nobody else sees it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.kept = [self.layer.weight]

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.kept[0], self.layer.bias)


def test_a_graph_that_computes_other_values_is_refused(stand_in: StandIn) -> None:
    model = FlatModel(Keeping())
    model.forward = Graphs(model)
    with pytest.raises(RunError, match=r"cannot be a graph \(it computes other values\), allowed"):
        warmed(model, 5)


def test_recurrent_and_tied_layers_are_graphs(stand_in: StandIn) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.recurrent = nn.Linear(3, 3), nn.Linear(3, 3), nn.LSTM(3, 2)
            self.second.weight = self.first.weight

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = self.recurrent(self.second(self.first(x)))[0]
            return found

    model = FlatModel(Tied())
    model.forward = Graphs(model)
    x = torch.randn(5, 3)
    plain = model.gradient_of(model.module(x).square().sum())
    warmed(model, 5)
    assert torch.equal(model.gradient_of(model(x).square().sum()), plain)
    assert stand_in.captured == [(5, 3)]
