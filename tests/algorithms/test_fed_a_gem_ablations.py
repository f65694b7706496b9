"""Fed-A-GEM's ablations (Dai et al., TMLR 2024): refinements and when (Table 11), rate (12), cosine weights (2)."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from costs import cost_of
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_oracle import LIVELY, LR, gradient, recorded, stream_of, vector

from raysim.algorithms.fed_a_gem import REFINEMENTS, FedAGem, compare
from raysim.algorithms.parts.projection import refine
from raysim.api import Delta
from raysim.cli import main
from raysim.engine.compatibility import check_methods
from raysim.federation.federation import build_federation
from raysim.system.errors import ConfigError

QUICKSTART = str(Path(__file__).parents[2] / "configs" / "quickstart.yaml")
SOFTMAX = {"name": "probes:softmax"}
KEEP_ALL = {"memory": {"capacity": 100}}
WHOLE = {"sample_size": 1000}
VECTORS = st.lists(st.floats(-10, 10, width=32), min_size=3, max_size=3).map(
    lambda v: torch.tensor(v, dtype=torch.double)
)


def of(*values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(
    ("how", "wanted"),
    [("average", (0, 0.5)), ("rotate", (0, 1)), ("project", (0.5, 0.5)), ("project_scale", (0.5**0.5, 0.5**0.5))],
)
def test_the_refinements_by_hand(how, wanted):
    """g = (1, 0), r = (-1, 1), <g, r> = -1, <r, r> = 2, g + r = (0, 1), projected (1, 0) + (-1, 1) / 2 = (1/2, 1/2)."""
    for when in ("conflict", "always"):
        np.testing.assert_allclose(refine(of(1, 0), of(-1, 1), REFINEMENTS[how], when), wanted, rtol=1e-14, atol=1e-16)


@pytest.mark.parametrize("how", REFINEMENTS)
def test_without_a_conflict_only_always_refines(how):
    """g = (1, 0), r = (1, 1), <g, r> = 1, <r, r> = 2: average (1, 1/2), rotate (2, 1) / sqrt 5, project (1/2, -1/2)."""
    g, r = of(1, 0), of(1, 1)
    root = 0.5**0.5
    wanted = {
        "average": (1, 0.5),
        "rotate": (2 / 5**0.5, 1 / 5**0.5),
        "project": (0.5, -0.5),
        "project_scale": (root, -root),
    }
    assert refine(g, r, REFINEMENTS[how], "conflict").tolist() == [1, 0]
    np.testing.assert_allclose(refine(g, r, REFINEMENTS[how], "always"), wanted[how], rtol=1e-14)


@pytest.mark.parametrize("when", ["conflict", "always"])
@pytest.mark.parametrize("how", REFINEMENTS)
def test_what_has_no_direction(how, when):
    """r = 0 or not finite: g. g = -r: projected 0, which scaled stays 0; g + r = 0 has no direction, so g stays."""
    g = of(1, -2)
    for r in (of(0, 0), of(float("nan"), 0), of(float("inf"), 1)):
        assert torch.equal(refine(g, r, REFINEMENTS[how], when), g)
    wanted = {"average": [0, 0], "rotate": [1, -2], "project": [0, 0], "project_scale": [0, 0]}
    assert refine(g, -g, REFINEMENTS[how], when).tolist() == wanted[how]


@settings(max_examples=200, deadline=None)
@given(VECTORS, VECTORS)
def test_rotate_and_project_scale_keep_the_length_and_projections_are_orthogonal(g, r):
    scale = float(g.norm())
    if float(r.norm()) < 1e-3 or scale < 1e-3 or float((g + r).norm()) < 1e-3:
        return
    projected = refine(g, r, REFINEMENTS["project"], "always")
    assert float(refine(g, r, REFINEMENTS["rotate"], "always").norm()) == pytest.approx(scale, rel=1e-9)
    assert abs(float(projected @ r)) <= 1e-12 * scale * float(r.norm())
    if float(projected.norm()) > 1e-3 * scale:
        scaled = refine(g, r, REFINEMENTS["project_scale"], "always")
        assert float(scaled.norm()) == pytest.approx(scale, rel=1e-9)
        assert abs(float(scaled @ r)) <= 1e-11 * scale * float(r.norm())


def by_hand(how, g, r):
    """Section 5.3.1 in NumPy."""
    projected = g - (g @ r) / (r @ r) * r
    if how == "project":
        return projected
    if how == "project_scale":
        return np.linalg.norm(g) * projected / np.linalg.norm(projected)
    return (g + r) / 2 if how == "average" else np.linalg.norm(g) * (g + r) / np.linalg.norm(g + r)


def steps_of(tiny, simulate, monkeypatch, rounds=4, **knobs):
    """Every step of a run with these knobs: the batch's gradient g in NumPy, r or None, and what was used."""
    config = tiny(
        model=SOFTMAX, **KEEP_ALL, methods={"fed_a_gem": {**WHOLE, **knobs}}, training__rounds_per_task=rounds
    )
    federation, steps = build_federation(config), recorded(monkeypatch)
    simulate(config, federation)
    for step in steps:
        x, y = (column[step.positions] for column in stream_of(federation, step.client))
        yield gradient(step.before, x, y), step.reference if step.phase > 1 else None, (step.before - step.after) / LR


@pytest.mark.parametrize("when", ["conflict", "always"])
@pytest.mark.parametrize("how", REFINEMENTS)
def test_every_step_of_a_run_is_refined_as_told(tiny, simulate, monkeypatch, how, when):
    """Project always: orthogonal to the reference at every step."""
    seen = set()
    for g, r, used in steps_of(tiny, simulate, monkeypatch, refinement=how, when=when):
        refined = r is not None and (when == "always" or g @ r < 0)
        np.testing.assert_allclose(used, by_hand(how, g, r) if refined else g, rtol=0, atol=1e-12)
        seen.add((refined, r is not None and bool(g @ r < 0)))
        if how == "project" and when == "always" and r is not None:
            assert abs(used @ r) < 1e-12
    assert {(True, True), (when == "always", False)} <= seen


def test_that_share_of_the_steps_is_refined(tiny, simulate, monkeypatch):
    """p = 0.4 of n = 3 x 3 x 29 steps that have a reference, 5 sigma of the binomial; the others are as they were."""
    refined = []
    for g, r, used in steps_of(tiny, simulate, monkeypatch, rounds=15, rate=0.4, when="always"):
        if r is not None:
            projected = np.abs(used - by_hand("project", g, r)).max() < 1e-12
            assert projected or np.abs(used - g).max() < 1e-12
            refined.append(projected)
    assert len(refined) == 261
    assert abs(sum(refined) - 0.4 * 261) < 5 * np.sqrt(0.24 * 261)


def test_as_the_rate_goes_to_0_it_is_fedavg_bit_for_bit(tiny, simulate):
    """At 1e-12 no step is refined; the gradients that are exchanged leave no trace."""
    runs = [
        simulate(tiny(model=LIVELY, methods=m)).sha256 for m in ({}, {"fed_a_gem": {"rate": 1e-12}}, {"fed_a_gem": {}})
    ]
    assert runs[0] == runs[1] != runs[2]


# weights by cosine


def server_update(updates, reference, shares):
    """What the server adds to the model, given what the clients' halves send of these updates."""
    knobs = FedAGem(aggregation="cosine")
    half, server = FedAGem.Server("fed_a_gem", knobs), SimpleNamespace(shares=dict(enumerate(shares)))
    mean, likeness = 0.0, {}
    for number, update in enumerate(updates):
        own = FedAGem.Client("fed_a_gem", knobs)
        own.used = reference is not None
        client = SimpleNamespace(from_server=lambda name: reference)
        sent, terms = own.finish(client, Delta(update, of(number)))
        mean = mean + shares[number] * sent.parameters
        assert sent.buffers.tolist() == [number]  # statistics are averaged
        if terms:
            likeness[number] = terms["likeness"].value
    return half.update(server, Delta(mean, of(7)), {"likeness": likeness} if likeness else {})


def test_updates_count_by_their_likeness():
    """Deltas (1, 0) and (0, 1), r = (-1, 0): s = (1, 0), the first alone. r = (-3, -4): s = (3/5, 4/5), and with shares

    (1/4, 3/4): (0.15 (1, 0) + 0.6 (0, 1)) / 0.75 = (0.2, 0.8). r = (1, 1): none, the model stays. No r: the mean.
    """
    updates = [of(1, 0), of(0, 1)]
    for reference, shares, wanted in (
        (of(-1, 0), (0.5, 0.5), (1, 0)),
        (of(-3, -4), (0.25, 0.75), (0.2, 0.8)),
        (of(1, 1), (0.5, 0.5), (0, 0)),
        (None, (0.25, 0.75), (0.25, 0.75)),
    ):
        found = server_update(updates, reference, shares)
        np.testing.assert_allclose(found.parameters, wanted, rtol=1e-14, atol=1e-16)
        assert found.buffers.tolist() == [7]


def test_an_update_or_a_reference_of_0_is_like_nothing():
    assert [compare(of(*a), of(*b)).item() for a, b in (((0, 0), (1, 0)), ((1, 0), (0, 0)), ((1, 0), (-1, 0)))] == [
        0
    ] * 3
    assert compare(of(2, 0), of(3, 0)).item() == 1


@pytest.mark.parametrize("weights", ["uniform", "samples"])
def test_a_run_weighs_its_updates_by_cosine(tiny, simulate, monkeypatch, weights):
    """sum p s Delta / sum p s over a round's clients, from the local models that were recorded, in NumPy."""
    uneven = {"partition": {"kind": "dirichlet", "alpha": 0.5, "min_samples": 3, "balanced": False}, "seed": 1}
    known = {"fed_a_gem": {**WHOLE, "aggregation": "cosine"}}
    config = tiny(model=SOFTMAX, **KEEP_ALL, **uneven, aggregation__weights=weights, methods=known)
    federation, steps = build_federation(config), recorded(monkeypatch)
    run = simulate(config, federation)
    last, first, reference = {}, {}, {}
    for step in steps:
        first.setdefault((step.phase, step.client), step.before)
        last[step.phase, step.client], reference[step.phase] = step.after, step.reference
    scores = []
    for round, following in ((1, 2), (2, 3), (3, 4), (4, None)):
        sizes = np.array([federation.streams[k].size((round - 1) // 2) for k in range(3)])
        p = np.ones(3) / 3 if weights == "uniform" else sizes / sizes.sum()
        deltas = [last[round, k] - first[round, k] for k in range(3)]
        r = reference[round] if round > 1 else None
        s = np.array([1.0 if r is None else max(0.0, -d @ r / np.linalg.norm(d) / np.linalg.norm(r)) for d in deltas])
        scores.append(s)
        wanted = first[round, 0] + np.average(deltas, axis=0, weights=p * s)
        found = vector(run.state) if following is None else first[following, 0]
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-11)
    assert np.ptp(scores[-1]) > 1e-2


def test_a_number_goes_up_with_a_weighed_update_and_it_is_known_before(tiny, simulate):
    """8 bytes per client and round from round 2 on, beside Fed-A-GEM's."""
    config = tiny(model=SOFTMAX, methods={"fed_a_gem": {"aggregation": "cosine"}})
    federation = build_federation(config)
    run, plain = simulate(config, federation), simulate(tiny(model=SOFTMAX, methods={"fed_a_gem": {}}), federation)
    more = [
        (a.bytes_up - b.bytes_up, a.bytes_down - b.bytes_down) for a, b in zip(run.rounds, plain.rounds, strict=True)
    ]
    assert more == [(0, 0), (24, 0), (24, 0), (24, 0)]
    before, counted = cost_of(config, federation), run.simulation.exchange
    assert (sum(before.up.values()), sum(before.down.values())) == (counted.traffic.up, counted.traffic.down)


def test_weights_by_cosine_need_the_cohorts_reference(tiny, capsys):
    known = {"fed_a_gem": {"aggregation": "cosine", "reference": "with_update"}}
    with pytest.raises(ConfigError, match=r"^methods\.fed_a_gem: found aggregation=cosine with reference=with_update,"):
        check_methods(tiny(methods=known))
    assert main(["check", QUICKSTART, "methods={fed_a_gem: {rate: 0}}"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
