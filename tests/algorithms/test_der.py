"""DER and DER++ (Buzzega et al., NeurIPS 2020, arXiv 2004.07211): both terms against closed forms, in float64."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from replay_oracle import LIVELY, LR, SOFTMAX, gradient, recorded, stream_of
from softmax_oracle import Softmax

from raysim.algorithms.der import Der
from raysim.algorithms.er import Er
from raysim.algorithms.parts import replay
from raysim.api import MemoryUse, Method
from raysim.engine.compatibility import check_methods
from raysim.engine.local_training import Step
from raysim.engine.memory_choice import choose_memory
from raysim.engine.orders import RoundInfo
from raysim.memory import MemoryKind
from raysim.system.errors import ConfigError


def logits_of(w, x):
    model = Softmax.of(w, 4, x.shape[1])
    return x @ model.weight.T + model.bias


@pytest.mark.parametrize(("alpha", "beta"), [(0.3, 0.0), (0.0, 0.5), (0.3, 0.5)])
def test_the_penalty_by_hand(tiny, host_of, quiet_torch, alpha, beta):
    """Logits (1, 2, 3, 4) whatever the sample, stored ones 0: a mean square of (1 + 4 + 9 + 16) / 4 = 7.5.

    The cross-entropy of label y is log(e + e^2 + e^3 + e^4) - (y + 1), y counting from 0.
    """
    host = host_of(tiny(model=SOFTMAX, methods={"der": {"alpha": alpha, "beta": beta}}))
    client = host.clients[0]
    client.begin_phase(RoundInfo(1, 0, LR), 1.0)
    x, y = client.samples(client.arrived)
    host.model.parameters.zero_()
    host.model.parameters[-4:] = torch.arange(1.0, 5.0)
    zeros = torch.zeros(12, 4, dtype=torch.float64)
    client.memory.offer(client.arrived, y.numpy(), np.zeros(12, np.int64), client.generator("x"), None, zeros)
    step = Step(client, 0, False, client.arrived, None, x, y, loss=torch.zeros((), dtype=torch.float64))
    losses = np.log(np.exp([1, 2, 3, 4]).sum()) - (y.numpy() + 1)
    wanted = alpha * 7.5 + beta * losses.mean()
    assert client.halves["der"].penalty(step).item() == pytest.approx(wanted, rel=1e-14)


@pytest.mark.parametrize(("alpha", "beta"), [(0.7, 0.0), (0.0, 0.4), (0.7, 0.4)])
@pytest.mark.parametrize("capacity", [6, 100])
def test_every_step_adds_both_gradients_on_draws_of_their_own(tiny, simulate, monkeypatch, alpha, beta, capacity):
    """Eq. 6 and 7, the distance as a mean over m rows and C logits: alpha / (m C) sum (z - z')^2, z' being stored.

    Its derivative by z is E = 2 alpha (z - z') / (m C), so those by W and b are E^T x and the column sums of E.
    """
    steps = recorded(monkeypatch)
    knobs = {"alpha": alpha, "beta": beta, "sample_size": 5}
    run = simulate(tiny(model=SOFTMAX, methods={"der": knobs}, memory={"capacity": capacity}))
    trained, apart = {}, 0
    for step in steps:
        x, y = stream_of(run.simulation.federation, step.client)
        before = trained.setdefault(step.client, set())
        g = gradient(step.before, x[step.positions], y[step.positions])
        assert len(step.drawn) == (alpha > 0) + (beta > 0)
        if before:
            draws = [entries.positions.tolist() for entries in step.drawn]
            for places in draws:
                assert len(places) == len(set(places)) == min(5, capacity, len(before))
                assert set(places) <= before
            if alpha:
                error = logits_of(step.before, x[draws[0]]) - step.drawn[0].logits.numpy()
                error *= 2 * alpha / error.size
                g = g + np.concatenate([(error.T @ x[draws[0]]).reshape(-1), error.sum(0)])
            if beta:
                g = g + beta * gradient(step.before, x[draws[-1]], y[draws[-1]])
            apart += len({tuple(sorted(places)) for places in draws}) == 2
        else:
            assert step.drawn == [None] * len(step.drawn)
        np.testing.assert_allclose(step.after, step.before - LR * g, rtol=0, atol=1e-14)
        before |= set(step.positions)
    assert (apart > 10) == (alpha > 0 and beta > 0)


@pytest.mark.parametrize("methods", [{"der": {}}, {"er": {}, "der": {}}])
def test_stored_logits_are_those_of_the_first_step_that_trained_on_a_sample(tiny, simulate, monkeypatch, methods):
    """W x + b at the model that this step began at, whatever came after, and whatever rows another method added."""
    steps = recorded(monkeypatch)
    run = simulate(tiny(model=SOFTMAX, methods=methods, memory={"capacity": 10}, training__local_epochs=2))
    first = {}
    for step in steps:
        for position in step.positions:
            first.setdefault((step.client, position), step.before)
    for number, client in run.simulation.runner.host.clients.items():
        entries, (x, _) = client.memory.entries(), stream_of(run.simulation.federation, number)
        assert len(entries) == 10
        for position, stored in zip(entries.positions.tolist(), entries.logits.numpy(), strict=True):
            expected = logits_of(first[number, position], x[[position]])[0]
            np.testing.assert_allclose(stored, expected, rtol=0, atol=1e-14)
            assert abs(stored - logits_of(steps[-1].after, x[[position]])[0]).max() > 1e-3


def test_stored_logits_are_the_training_passes_own(tiny, simulate, monkeypatch):
    """With dropout and BatchNorm no second pass would give them: they are the step's, to the bit."""
    steps = recorded(monkeypatch)
    run = simulate(tiny(model=LIVELY, methods={"der": {}}, memory={"capacity": 100}))
    first = {}
    for step in steps:
        for position, logits in zip(step.positions, step.logits, strict=True):
            first.setdefault((step.client, position), logits)
    for number, client in run.simulation.runner.host.clients.items():
        entries = client.memory.entries()
        assert sorted(entries.positions.tolist()) == list(range(24))
        for position, stored in zip(entries.positions.tolist(), entries.logits, strict=True):
            assert torch.equal(stored, first[number, position])


def test_with_both_weights_0_it_is_fedavg_bit_for_bit_and_replays_nothing(tiny, simulate, monkeypatch):
    """In train mode a forward pass of weight 0 would still move BatchNorm's statistics, and so the next models."""
    plain = simulate(tiny(model=LIVELY))
    assert simulate(tiny(model=LIVELY, methods={"der": {"alpha": 1e-3}})).sha256 != plain.sha256
    replayed = []
    monkeypatch.setattr(replay, "to_batch", lambda client, entries: replayed.append(entries))
    assert simulate(tiny(model=LIVELY, methods={"der": {"alpha": 0.0, "beta": 0.0}})).sha256 == plain.sha256
    assert replayed == []


@pytest.mark.parametrize(("alpha", "beta", "batches"), [(0.0, 0.0, 12), (1.0, 0.0, 23), (0.0, 0.5, 23), (1.0, 0.5, 34)])
def test_each_term_is_a_pass_and_a_batch_of_batchnorm_of_its_own(tiny, simulate, alpha, beta, batches):
    """A client's 4 phases of 3 steps are 12 batches, and 11 more for each term: the first step finds nothing."""
    config = tiny(model={"name": "probes:normalised"}, methods={"der": {"alpha": alpha, "beta": beta}})
    assert simulate(config).state["1.num_batches_tracked"] == batches


def test_the_replays_passes_move_no_mask_of_the_steps(tiny, simulate):
    """A change of some 1e-31 is lost in a float32 parameter of some 0.1: what is left of DER++ are its passes."""
    model, knobs = {"name": "mlp", "hidden": [5], "dropout": 0.3}, {"alpha": 1e-30, "beta": 1e-30}
    plain = simulate(tiny(model=model))
    assert simulate(tiny(model=model, methods={"der": knobs})).sha256 == plain.sha256
    assert simulate(tiny(model=model, methods={"der": {"beta": 1.0}})).sha256 != plain.sha256


def test_with_an_empty_memory_it_is_fedavg_bit_for_bit(tiny, simulate):
    """One phase of one step (of 32 rows), which finds nothing to replay."""
    shared = {"model": LIVELY, "scenario__tasks": 1, "training": {"rounds_per_task": 1}}
    assert simulate(tiny(methods={"der": {"beta": 0.5}}, **shared)).sha256 == simulate(tiny(**shared)).sha256


def test_a_memory_that_is_filled_at_boundaries_is_refused(tiny):
    """It would take samples long after the step whose logits it should store."""
    with pytest.raises(ConfigError, match=r"^memory\.fill: der cannot use boundary, allowed: arrival$"):
        check_methods(tiny(methods={"der": {}}, memory__fill="boundary"))


def test_the_wire_is_fedavgs(tiny, simulate):
    plain, ours = simulate(tiny()), simulate(tiny(methods={"der": {"beta": 0.5}}))
    assert [(r.bytes_up, r.bytes_down) for r in ours.rounds] == [(r.bytes_up, r.bytes_down) for r in plain.rounds]


@dataclass(frozen=True, kw_only=True)
class Rates(Method):
    """A method that chooses the memory's samples itself."""

    memory: ClassVar = MemoryUse(policies=("importance",))


def test_a_memory_that_stores_no_logits_is_refused(tiny):
    """The samples that a method puts into a memory have no logits, so the distance to them would be 0 or to zeros."""
    said = r"^methods: found der with rates, whose memory policy importance stores no logits, allowed: one without the "
    with pytest.raises(ConfigError, match=said):
        choose_memory(tiny(methods={"der": {}}), {"der": Der(), "rates": Rates()})
    assert choose_memory(tiny(methods={"er": {}}), {"er": Er(), "rates": Rates()}) == MemoryKind("importance")
