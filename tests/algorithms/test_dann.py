"""DANN+FL (Ganin et al., JMLR 2016, as a baseline of Re-Fed's), in float64 against NumPy."""

import math

import numpy as np
import pytest
import torch
from costs import cost_of
from softmax_oracle import batch_order

import raysim
from raysim.algorithms.dann import Dann, tell_apart
from raysim.federation.federation import build_federation
from raysim.models.building import build_model
from raysim.system.errors import ConfigError

SMALL_RUN = {"unsure_steps": True, "unsure_bytes": True, "sends_at_end": True}

STACKED = {"name": "probes:stacked"}  # f = A x + a of size 3, z = W f + w
CLASSES = {"kind": "class_incremental", "tasks": 2}
LIVELY = {"name": "mlp", "hidden": [5], "dropout": 0.4, "batch_norm": True}


def test_the_discriminator_by_hand():
    """One layer: 1 * 1 - 1 * 2 + .5 = -.5. Two: relu(1 - 2, 1 + 2) = (0, 3), 2 * 0 - 1 * 3 + 1 = -2."""
    features = torch.tensor([[1.0, 2.0]])
    knobs = Dann(hidden=())
    assert tell_apart(features, torch.tensor([1.0, -1.0, 0.5]), knobs.shapes(2)).tolist() == [-0.5]
    knobs = Dann(hidden=(2,))
    weights = torch.tensor([1.0, -1.0, 1.0, 1.0, 0.0, 0.0, 2.0, -1.0, 1.0])
    assert tell_apart(features, weights, knobs.shapes(2)).tolist() == [-2.0]


def softmax(z):
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def reference(config, drawn, caches, strength):
    """FedAvg with DANN in NumPy: linear features, logistic discriminator u f + c. The model and (u, c)."""
    federation = build_federation(config)
    module = build_model(config, federation.shape, federation.classes)
    theta = [p.detach().numpy() for p in module.parameters()]
    apart, data, training = drawn.numpy(), federation.dataset.train, config.training
    for number in range(4):
        task, over = divmod(number, 2)
        factor = strength * (2 / (1 + math.exp(-10 * over / 2)) - 1)
        changes, moves = [], []
        for k, stream in enumerate(federation.streams):
            x, y, new = [data.x[stream.rows[task]]], [data.y[stream.rows[task]]], [np.ones(len(stream.rows[task]))]
            if task:
                x.insert(0, data.x[stream.rows[0][caches[k]]])
                y.insert(0, data.y[stream.rows[0][caches[k]]])
                new.insert(0, np.zeros(len(caches[k])))
            x, y, new = np.concatenate(x).astype(np.float64), np.concatenate(y), np.concatenate(new)
            (A, a, W, w), local = theta, apart
            for batch in batch_order(config.seed, k, number + 1, len(y), training.local_epochs, training.batch_size):
                f = x[batch] @ A.T + a
                error = (softmax(f @ W.T + w) - np.eye(4)[y[batch]]) / len(batch)
                slope = error @ W
                if task:
                    told = (1 / (1 + np.exp(-(f @ local[:3] + local[3]))) - new[batch]) / len(batch)
                    slope = slope - factor * told[:, None] * local[:3]
                    local = local - 0.1 * np.concatenate([told @ f, [told.sum()]])
                W, w = W - 0.1 * error.T @ f, w - 0.1 * error.sum(0)
                A, a = A - 0.1 * slope.T @ x[batch], a - 0.1 * slope.sum(0)
            changes.append([after - before for after, before in zip((A, a, W, w), theta, strict=True)])
            moves.append(local - apart)
        theta = [part + np.mean(own, 0) for part, own in zip(theta, zip(*changes, strict=True), strict=True)]
        apart = apart + np.mean(moves, 0)
    return np.concatenate([part.reshape(-1) for part in theta]), apart


@pytest.mark.parametrize("strength", [1.0, 0.3])
def test_a_run_is_dann_in_numpy(tiny, simulate, monkeypatch, strength):
    """lambda is 0 in a task's first round of two, and strength (2 / (1 + e^-5) - 1) in the second."""
    drawn, real = [], Dann.Server._drawn
    monkeypatch.setattr(Dann.Server, "_drawn", lambda half, server: drawn.append(real(half, server)) or drawn[0])
    methods = {"dann": {"strength": strength, "hidden": []}}
    config = tiny(
        model=STACKED, scenario=CLASSES, methods=methods, memory__capacity=5, training__local_epochs=2, seed=1
    )
    run = simulate(config)
    clients = run.simulation.runner.host.clients.values()
    caches = [client.memory.entries().positions.tolist() for client in clients]
    assert all(
        len(set(cache)) == 5 and max(cache) < client.arrived[0] for cache, client in zip(caches, clients, strict=True)
    )
    theta, apart = reference(config, drawn[0], caches, strength)
    assert (drawn[0].abs() <= 3**-0.5).all()
    np.testing.assert_allclose(run.simulation.server.parameters, theta, rtol=0, atol=1e-12)
    np.testing.assert_allclose(run.simulation.exchange.halves["dann"].discriminator, apart, rtol=0, atol=1e-12)


@pytest.mark.parametrize("model", [STACKED, LIVELY])
def test_at_strength_0_it_is_fedavg_with_a_random_cache_bit_for_bit(tiny, simulate, model):
    """Re-Fed's baseline, whose draws have this method's name; the discriminator learns and moves nothing."""
    more = {"scenario": CLASSES, "model": model, "memory__capacity": 4}
    plain = simulate(tiny(methods={"probes:dann": {}}, **more)).sha256
    still = simulate(tiny(methods={"dann": {"strength": 0.0}}, **more))
    assert still.sha256 == plain
    assert still.simulation.exchange.halves["dann"].version == 2
    assert simulate(tiny(methods={"dann": {}}, **more)).sha256 != plain


def test_without_a_cache_there_is_nothing_to_tell_apart(tiny, simulate):
    one = {"scenario": {**CLASSES, "tasks": 1}, "model": LIVELY}
    assert simulate(tiny(methods={"dann": {}}, **one)).sha256 == simulate(tiny(**one)).sha256


def test_what_is_sent_and_how_many_steps_are_known_before(tiny, simulate):
    """From task 2 on the discriminator, both ways: 5 x 100 + 100, 100 x 100 + 100 and 100 + 1 numbers of 4 bytes."""
    config = tiny(methods={"dann": {}}, memory__capacity=7)
    run, plain, before = simulate(config), simulate(tiny()), cost_of(config)
    more = [
        (r.bytes_up - p.bytes_up, r.bytes_down - p.bytes_down) for r, p in zip(run.rounds, plain.rounds, strict=True)
    ]
    assert more == [(0, 0), (0, 0), *[(3 * 4 * 10_801, 3 * 4 * 10_801)] * 2]
    counted = run.simulation.exchange
    assert (sum(before.up.values()), sum(before.down.values())) == (counted.traffic.up, counted.traffic.down)
    assert before.steps == counted.steps


def test_a_client_that_is_new_in_a_task_has_nothing_to_tell_apart(tiny, simulate):
    """Client 2 comes with task 2: it is posted the discriminator as all are, and sends none back."""
    clients = {"count": 3, "arrive": {"at": [{"round": 3, "clients": [2]}]}}
    run, plain = (simulate(tiny(methods=methods, clients=clients)) for methods in ({"dann": {}}, {}))
    assert run.rounds[2].cohort == [0, 1, 2]
    more = [r.bytes_up - p.bytes_up for r, p in zip(run.rounds, plain.rounds, strict=True)]
    assert more == [0, 0, 2 * 4 * 10_801, 2 * 4 * 10_801]


def test_what_enters_the_head_is_of_the_steps_own_pass(tiny, simulate, monkeypatch):
    """logits = W f + w of the same pass, dropout and all, whatever else passes in the step."""
    real = Dann.Client.penalty

    def spy(half, step):
        weight, bias = (step.client.model.named(step.client.model.parameters)[name] for name in step.client.model.head)
        torch.testing.assert_close(step.features @ weight.T + bias, step.logits)
        assert step.features.requires_grad
        return real(half, step)

    monkeypatch.setattr(Dann.Client, "penalty", spy)
    simulate(tiny(methods={"lwf": {}, "dann": {}, "fed_a_gem": {}}, model=LIVELY, memory__capacity=4))


def test_resuming_gives_the_same(resumed):
    whole, again = resumed(3, scenario=CLASSES, memory__capacity=8, methods={"dann": {}})
    assert whole == again


def test_clients_that_are_ahead_of_the_task_wait_for_the_discriminator(tiny, simulate):
    jittered = {"scenario__boundaries": {"jittered": {"rounds": 1}}, "training__rounds_per_task": 3}
    run = simulate(tiny(methods={"dann": {}}, memory__capacity=4, **jittered))
    assert all(value.isfinite().all() for value in run.state.values())


def test_what_does_not_suit_it_is_refused_before_anything_starts(tiny, tmp_path):
    def refusal(**overrides):
        more = {"logging__tensorboard": False, "methods": {"dann": {}}, **overrides}
        with pytest.raises(ConfigError) as found:
            raysim.run(tiny(**more), out=tmp_path / "run", local=True)
        assert not (tmp_path / "run").exists()
        assert "\n" not in str(found.value)
        return str(found.value)

    assert "methods.dann: found no head in model.name=probes:scaled" in refusal(model={"name": "probes:scaled"})
    untold = {"scenario__boundaries": {"asynchronous": {"window": 6}}, "training__rounds_per_task": None}
    assert "methods.dann: needs to know when a client's task ends" in refusal(**untold)
    assert "dann and re_fed each override the hook samples" in refusal(methods={"dann": {}, "re_fed": {}})
    assert "trains on earlier tasks" in refusal(scenario=CLASSES, training__logits="task")
