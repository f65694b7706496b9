"""A-GEM (Chaudhry et al., ICLR 2019, arXiv 1812.00420): every step against eq. 11 in NumPy, in float64."""

import itertools

import numpy as np
import pytest
import torch
from replay_oracle import LIVELY, LR, SOFTMAX, gradient, projection, recorded, second_writing, stream_of, vector

from raysim.algorithms import a_gem
from raysim.algorithms.parts.projection import project
from raysim.federation.federation import build_federation


@pytest.mark.parametrize(("capacity", "sample_size"), [(5, 3), (100, 100)])
def test_every_step_is_eq_11_on_a_draw_from_what_was_trained_on_before(
    tiny, simulate, monkeypatch, capacity, sample_size
):
    """r is the gradient of the mean loss on the draw, at the step's own model: w' = w - lr (g - <g, r> / <r, r> r).

    The memory takes a batch after its step, so the first step of a client's life has no reference, and a memory with
    room for all is what all earlier steps trained on, without this one's batch.
    """
    steps = recorded(monkeypatch)
    knobs = {"a_gem": {"sample_size": sample_size}}
    run = simulate(tiny(model=SOFTMAX, methods=knobs, memory={"capacity": capacity}))
    trained, draws, projected = {}, [], 0
    for step in steps:
        x, y = stream_of(run.simulation.federation, step.client)
        before = trained.setdefault(step.client, set())
        g, r = gradient(step.before, x[step.positions], y[step.positions]), None
        (entries,) = step.drawn
        assert (entries is None) == (not before)
        if entries is not None:
            places = entries.positions.tolist()
            assert len(set(places)) == len(places) == min(sample_size, capacity, len(before))
            assert set(places) <= before
            draws.append((step.client, sorted(places)))
            r = gradient(step.before, x[places], y[places])
            projected += g @ r < 0
            assert (step.before - step.after) @ r >= -1e-14
        np.testing.assert_allclose(step.after, step.before - LR * projection(g, r), rtol=0, atol=1e-14)
        before |= set(step.positions)
    assert 0 < projected < len(draws)
    last = [places for client, places in draws if client == 0][-6:]
    assert sample_size == 100 or all(a != b for a, b in itertools.pairwise(last))  # drawn anew in every step


def test_a_run_is_the_second_writing(tiny, simulate):
    """Two epochs, two of three clients at a time; a client's memory lasts while it does not take part."""
    more = {"model": SOFTMAX, "training__local_epochs": 2, "participation": {"count": 2}}
    config = tiny(methods={"a_gem": {"sample_size": 100}}, **more)
    federation = build_federation(config)
    run = simulate(config, federation)
    w, _ = second_writing(config, federation, [r.cohort for r in run.rounds])
    np.testing.assert_allclose(vector(run.state), w, rtol=0, atol=1e-11)
    assert abs(vector(simulate(tiny(**more)).state) - w).max() > 1e-4


def test_fed_a_gem_with_one_client_is_a_gem(tiny, simulate):
    """One client whose phase is one step: both references are its memory's gradient at the model of that step.

    So either alone is the other, and after the one the other finds nothing to do.
    """
    whole = {"sample_size": 100}
    shared = {"model": SOFTMAX, "clients__count": 1, "training__batch_size": 100, "training__rounds_per_task": 3}
    kinds = ({"a_gem": whole}, {"fed_a_gem": whole}, {"a_gem": whole, "fed_a_gem": whole}, {})
    runs = [simulate(tiny(methods=m, training__optimizer={"lr": 0.5}, **shared)) for m in kinds]
    local, federated, both, fedavg = (vector(run.state) for run in runs)
    np.testing.assert_allclose(federated, local, rtol=0, atol=1e-12)
    np.testing.assert_allclose(both, local, rtol=0, atol=1e-12)
    assert abs(fedavg - local).max() > 1e-3


def test_before_fed_a_gem_the_local_projection_comes_first(tiny, simulate, monkeypatch):
    """w' = w - lr P_global(P_local(g)): at times against the local reference, and not what the other order gives."""
    steps = recorded(monkeypatch)
    knobs = {"a_gem": {"sample_size": 3}, "fed_a_gem": {}}
    run = simulate(tiny(model=SOFTMAX, methods=knobs, training__rounds_per_task=4))
    against_local, other_order = 0, 0
    for step in (step for step in steps if step.phase > 1):
        x, y = stream_of(run.simulation.federation, step.client)
        g, places = gradient(step.before, x[step.positions], y[step.positions]), step.drawn[0].positions.tolist()
        local = gradient(step.before, x[places], y[places])
        expected = projection(projection(g, local), step.reference)
        np.testing.assert_allclose(step.after, step.before - LR * expected, rtol=0, atol=1e-14)
        against_local += expected @ local < -1e-3
        other_order += abs(expected - projection(projection(g, step.reference), local)).max() > 1e-3
    assert against_local > 0
    assert other_order > 0


def test_in_float32_nothing_is_left_of_what_pointed_against_the_reference():
    """For the 21,840 parameters of Fed-A-GEM's MNIST network: 1e-6 |g| |r| at most; what did not keeps its bits."""
    draws = torch.Generator().manual_seed(0)
    for lean in (-0.5, -0.02, 0.5):
        for _ in range(5):
            r, noise = torch.randn(2, 21840, generator=draws)
            g = noise + lean * r
            p, bound = project(g, r), 1e-6 * float(g.norm() * r.norm())
            inner, rest = (float(v.double() @ r.double()) for v in (g, p))
            assert abs(rest) <= bound if inner < -bound else torch.equal(p, g)


@pytest.mark.parametrize("empty", [{"memory__fill": "boundary"}, {"training": {"rounds_per_task": 1}}])
def test_with_an_empty_memory_it_is_fedavg_bit_for_bit(tiny, simulate, empty):
    """Filled at boundaries, it is empty throughout task 1; filled on arrival, in a client's first step (of 32 rows)."""
    shared = {"model": LIVELY, "scenario__tasks": 1, **empty}
    assert simulate(tiny(methods={"a_gem": {}}, **shared)).sha256 == simulate(tiny(**shared)).sha256


def test_taking_the_reference_leaves_no_trace(tiny, simulate, monkeypatch):
    """Without the projection it is FedAvg bit for bit: neither statistics nor dropout masks have moved."""
    plain = simulate(tiny(model=LIVELY))
    assert simulate(tiny(model=LIVELY, methods={"a_gem": {}})).sha256 != plain.sha256
    taken = []
    monkeypatch.setattr(a_gem, "project", lambda gradient, reference: taken.append(reference) or gradient)
    assert simulate(tiny(model=LIVELY, methods={"a_gem": {}})).sha256 == plain.sha256
    assert len(taken) == 3 * 2 * 2 * 3 - 3  # clients x tasks x rounds x steps; a client's first step has none


@pytest.mark.parametrize("shift", ["rotation", "permutation"])
def test_the_data_are_the_same_with_and_without_projections(tiny, shift):
    """Fed-A-GEM's official code draws a task's angle from the generator that its memories use: there they differ."""
    shared = {"dataset": {"name": "synthetic", "shape": [1, 6, 6]}, "scenario": {"kind": "domain_incremental",
              "tasks": 3, "shift": shift}, "partition": {"kind": "dirichlet"}}  # fmt: skip
    one, other = (build_federation(tiny(methods=m, **shared)) for m in ({}, {"a_gem": {}, "fed_a_gem": {}}))
    for a, b in zip(one.tasks, other.tasks, strict=True):
        assert np.array_equal(a.pixels, b.pixels)
    for a, b in zip(one.streams, other.streams, strict=True):
        assert all(np.array_equal(x, y) for x, y in zip(a.rows, b.rows, strict=True))


def test_the_wire_is_fedavgs(tiny, simulate):
    plain, ours = simulate(tiny()), simulate(tiny(methods={"a_gem": {}}))
    assert [(r.bytes_up, r.bytes_down) for r in ours.rounds] == [(r.bytes_up, r.bytes_down) for r in plain.rounds]
