"""FedCurv (Shoham et al., 2019, arXiv 1910.07796) against a second writing in NumPy, float64, client by client."""

import itertools
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from costs import cost_of
from replay_oracle import LIVELY, LR, gradient, stream_of, vector
from softmax_oracle import batch_order

from raysim.algorithms.fedcurv import FedCurv
from raysim.cli import main
from raysim.engine.compatibility import check_methods
from raysim.federation.federation import build_federation
from raysim.models.building import build_model
from raysim.system.errors import ConfigError

QUICKSTART = str(Path(__file__).parents[2] / "configs" / "quickstart.yaml")
SOFTMAX = {"name": "probes:softmax"}
UNEVEN = {"partition": {"kind": "dirichlet", "alpha": 0.5, "min_samples": 3, "balanced": False}, "seed": 1}
P = 28 * 8  # bytes of 28 float64 parameters


def second_writing(config, federation, cohorts):
    """Every step adds 2 strength sum_{s != j} u_s (w - w_s), over the last round's clients one by one."""
    knobs, training = config.methods["fedcurv"], config.training
    streams = [stream_of(federation, k) for k in range(config.clients.count)]
    phases, w = Counter(), vector(build_model(config, federation.shape, federation.classes).state_dict())
    last = {}  # u_s and w_s of the last round's clients
    for number, cohort in enumerate(cohorts, 1):
        task, now = (number - 1) // training.rounds_per_task, {}
        for k in cohort:
            phases[k] += 1
            at = federation.streams[k].span(task, task + 1)
            v, x, y = w, streams[k][0][at], streams[k][1][at]
            for batch in batch_order(config.seed, k, phases[k], len(y), training.local_epochs, training.batch_size):
                pull = sum(u * (v - of) for s, (u, of) in last.items() if s != k)
                v = v - LR * (gradient(v, x[batch], y[batch]) + 2 * knobs["strength"] * pull)
            now[k] = np.mean([gradient(v, x[i : i + 1], y[i : i + 1]) ** 2 for i in range(len(y))], axis=0), v
        last, w = now, np.mean([v for _, v in now.values()], axis=0)
    return w


@pytest.mark.parametrize("count", [3, 2, 1])
def test_a_run_is_the_pairwise_sum(tiny, simulate, count):
    """Unequal clients and two epochs; with two of three a round some were in the last round's sums, some not."""
    config = tiny(
        model=SOFTMAX,
        **UNEVEN,
        participation={"count": count},
        training__local_epochs=2,
        training__rounds_per_task=4,
        methods={"fedcurv": {"strength": 3.0}},
    )
    federation = build_federation(config)
    run = simulate(config, federation)
    cohorts = [r.cohort for r in run.rounds]
    np.testing.assert_allclose(vector(run.state), second_writing(config, federation, cohorts), rtol=0, atol=1e-11)
    plain = simulate(config.model_copy(update={"methods": {}}), federation)
    assert np.abs(vector(plain.state) - vector(run.state)).max() > 1e-3
    stayed = [k in before for before, cohort in itertools.pairwise(cohorts) for k in cohort]
    assert count != 2 or set(stayed) == {True, False}


@pytest.mark.parametrize("form", ["sample", "batch", "expected"])
def test_strength_0_and_one_client_are_fedavg_bit_for_bit(tiny, simulate, form):
    """One client has no others: U - u_1 = V - v_1 = 0, as the sum of one term is exact."""
    for more, strength in (({}, 0.0), ({"clients__count": 1}, 5.0)):
        known = {"fedcurv": {"strength": strength, "fisher": form}}
        assert simulate(tiny(model=LIVELY, methods=known, **more)).sha256 == simulate(tiny(model=LIVELY, **more)).sha256
    moved = simulate(tiny(model=LIVELY, methods={"fedcurv": {"strength": 5.0, "fisher": form}}))
    assert moved.sha256 != simulate(tiny(model=LIVELY)).sha256


def pull_of(others, own, w, strength=1.0, sent=True):
    """What client j's half adds to a gradient of 0 at w; `others` and `own` are (theta_s, u_s)."""
    half = FedCurv.Client("fedcurv", FedCurv(strength=strength))
    summed = [*others, own] if sent else others
    total = sum(u for _, u in summed), sum(u * theta for theta, u in summed)
    half.sent, half.fisher, half.fisher_times_model = (5 if sent else 3), own[1], own[0] * own[1]
    half.start(None, 5)
    client = SimpleNamespace(model=SimpleNamespace(parameters=w), from_server=lambda name: total)
    return half.gradient(SimpleNamespace(client=client), torch.zeros_like(w))


def one(value):
    return torch.tensor([float(value)]).double()


def test_by_hand():
    """Others (theta 1, u 2) and (theta 3, u 1), own theta 2, lambda = 1: 2 (2 (2 - 1) + 1 (2 - 3)) = 2 (6 - 5) = 2.

    So too if the client's own (theta 9, u 4) is in the sums or it missed the round and is not: nothing is subtracted.
    """
    others = [(one(1), one(2)), (one(3), one(1))]
    assert pull_of(others, (one(9), one(4)), one(2)).item() == 2
    assert pull_of(others, (one(9), one(4)), one(2), sent=False).item() == 2


def test_equal_fishers_at_one_model_are_fedprox_around_it():
    """u_s = c and theta_s = a for all n: 2 lambda c (n - 1) (w - a), FedProx with mu = 2 lambda c (n - 1) towards a."""
    draws = torch.Generator().manual_seed(0)
    w, a = torch.randn(2, 9, generator=draws, dtype=torch.float64)
    c, n, strength = 0.3, 5, 0.7
    alike = (a, torch.full_like(a, c))
    found = pull_of([alike] * (n - 1), alike, w, strength)
    torch.testing.assert_close(found, 2 * strength * c * (n - 1) * (w - a), rtol=1e-12, atol=1e-14)


def test_two_vectors_more_up_and_from_round_2_on_down(tiny, simulate):
    """P = 224 bytes, three clients, all in every round."""
    run = simulate(tiny(model=SOFTMAX, methods={"fedcurv": {}}))
    assert [r.bytes_up / P / 3 for r in run.rounds] == [3] * 4
    assert [r.bytes_down / P / 3 for r in run.rounds] == [1, 3, 3, 3]


def test_its_bytes_are_known_before_and_it_needs_no_boundary(tiny, simulate):
    """With one of three clients in a round, under boundaries that tell nobody."""
    config = tiny(
        scenario__boundaries={"asynchronous": {"window": 4, "rounds_per_window": 1}},
        training__rounds_per_task=None,
        participation={"count": 1},
        methods={"fedcurv": {"fisher": "batch"}},
    )
    federation = build_federation(config)
    before, counted = cost_of(config, federation), simulate(config, federation).simulation.exchange
    assert not before.unsure_bytes
    assert (sum(before.up.values()), sum(before.down.values())) == (counted.traffic.up, counted.traffic.down)


def test_a_resumed_run_has_its_sums(resumed):
    """One of three clients takes part in a round, so what it sent may be some rounds old."""
    whole, again = resumed(
        5, participation={"count": 2}, training__rounds_per_task=4, methods={"fedcurv": {"strength": 3.0}}
    )
    assert again == whole


def test_a_schedule_without_a_barrier_is_refused(tiny):
    schedule = {"kind": "asynchronous", "concurrency": 3, "buffer_size": 3}
    with pytest.raises(ConfigError, match=r"^methods\.fedcurv: needs rounds that wait for their clients; set schedule"):
        check_methods(tiny(methods={"fedcurv": {}}, schedule=schedule))


def test_the_refusal_is_one_line_before_anything_starts(capsys, tmp_path):
    given = [QUICKSTART, "methods={fedcurv: {}}", "schedule={kind: asynchronous, concurrency: 2}"]
    assert main(["run", *given, "--local", "--out", str(tmp_path / "run")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "run").exists()
