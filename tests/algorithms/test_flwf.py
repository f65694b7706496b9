"""FLwF-2T and FLwF-1T (Usmanova et al., 2021, arXiv 2109.04197), in float64."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from softmax_oracle import batch_order
from torch.nn import functional

from raysim.algorithms.flwf import FLwF
from raysim.algorithms.parts.distillation import distillation_loss
from raysim.cli import main
from raysim.engine.orders import Order, RoundInfo, Train
from raysim.models.flat import FlatModel

SOFTMAX = {"name": "probes:softmax"}
DRAWING = {"name": "mlp", "hidden": [5], "dropout": 0.4, "batch_norm": True}


@pytest.mark.parametrize("model", [SOFTMAX, DRAWING])
def test_alpha_1_and_task_1_are_fedavg_bit_for_bit(tiny, simulate, monkeypatch, model):
    """At alpha = 1 without a single pass of a teacher's."""
    for tasks, knobs, same in ((2, {"alpha": 1.0, "beta": 0.0}, True), (1, {}, True), (2, {}, False)):
        with monkeypatch.context() as patch:
            if same:
                patch.delattr(FlatModel, "logits")
            runs = [
                simulate(tiny(model=model, scenario__tasks=tasks, methods=methods)).sha256
                for methods in ({}, {"flwf": knobs})
            ]
        assert (len(set(runs)) == 1) == same


def test_the_loss_by_hand():
    """Past (2, 0), server (0, 2), student (0, 0), y = 0, T = 2, alpha .5, beta .3: ln 2, whatever the weights.

    d/dz = .5 (-.5, .5) + .3 (-.11553, .11553) + .2 (.11553, -.11553) = (-.26155, .26155); without a past model
    .8 (-.5, .5) + .2 (.11553, -.11553) = (-.37689, .37689); in task 1 (-.5, .5).
    """
    of = {"past": [2.0, 0.0], "server": [0.0, 2.0]}
    model = SimpleNamespace(logits=lambda x, parameters, buffers: torch.tensor([of[parameters]]).double())
    for taught, past, wanted in (
        (True, ("past", None), -0.26155),
        (True, None, -0.37689),
        (False, ("past", None), -0.5),
    ):
        client = SimpleNamespace(
            model=model,
            loss=functional.cross_entropy,
            rng_scope=lambda name: torch.no_grad(),
            received="server",
        )
        half = FLwF.Client("flwf", FLwF(alpha=0.5, beta=0.3))
        half.taught, half.past, half.buffers = taught, past, torch.zeros(0)
        logits = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
        loss = half.task_loss(SimpleNamespace(client=client, logits=logits, x=None, y=torch.tensor([0])))
        assert loss.item() == pytest.approx(math.log(2), rel=1e-14)
        np.testing.assert_allclose(torch.autograd.grad(loss, logits)[0], [[wanted, -wanted]], atol=1e-5)


def phase_in_task_2(tiny, host_of, knobs, model=SOFTMAX, moved=0.0):
    """Client 0's host after a phase in task 1, then its delta in task 2, where it is sent the model plus `moved`."""
    host = host_of(tiny(model=model, methods={"flwf": knobs}))
    order = Order(Train(), (0,), {0: 1.0}, 1, RoundInfo(1, 0, 0.1))
    host.perform(order, {})
    latest = host.clients[0].halves["flwf"].latest
    sent = host.broadcasts["model"]
    host.receive([type(sent)("model", 1, type(sent.value)(sent.value.parameters + moved, *weights_of(sent.value)[1:]))])
    reply = host.perform(Order(Train(), (0,), {0: 1.0}, 1, RoundInfo(2, 1, 0.1)), {})
    return host, latest, reply.delta(torch.float64).parameters


def weights_of(weights):
    return weights.parameters, weights.buffers, weights.integers


def test_the_past_model_is_the_clients_own_before_aggregation(tiny, host_of, quiet_torch):
    """What it ended its last phase with, not what it was sent; it stays that through all of the next task."""
    host, latest, _ = phase_in_task_2(tiny, host_of, {})
    half = host.clients[0].halves["flwf"]
    assert torch.equal(half.past[0], latest[0])
    assert not torch.equal(half.past[0], host.broadcasts["model"].value.parameters)
    assert not torch.equal(half.latest[0], half.past[0])
    kept = half.past[0].clone()
    host.perform(Order(Train(), (0,), {0: 1.0}, 1, RoundInfo(3, 1, 0.1)), {})
    assert torch.equal(half.past[0], kept)


def test_the_past_model_has_its_own_batchnorm_statistics(tiny, simulate, monkeypatch):
    """A pair of parameters and statistics that ended a local training is used as that pair."""
    ended, used = {}, {}
    finish, logits = FLwF.Client.finish, FlatModel.logits

    def noted_end(half, client, delta):
        ended[client.model.parameters.numpy().tobytes()] = client.model.buffers.clone()  # not what finish() keeps
        return finish(half, client, delta)

    def noted_use(model, x, parameters, buffers):
        used[parameters.numpy().tobytes()] = buffers.clone()
        return logits(model, x, parameters, buffers)

    monkeypatch.setattr(FLwF.Client, "finish", noted_end)
    monkeypatch.setattr(FlatModel, "logits", noted_use)
    simulate(tiny(model={"name": "probes:normalised"}, methods={"flwf": {"alpha": 0.3, "beta": 0.7}}))
    assert len(used) == 3  # one for each client: gamma is 0
    assert all(torch.equal(buffers, ended[parameters]) for parameters, buffers in used.items())


def test_one_teacher_never_asks_the_server_and_no_past_weight_keeps_none(tiny, host_of, quiet_torch, monkeypatch):
    """FLwF-1T is alpha + beta = 1, also where floats sum to a little less; at beta = 0 a client keeps nothing."""
    seen, real = [], FlatModel.logits

    def spy(model, x, parameters, buffers):
        seen.append(parameters.clone())
        return real(model, x, parameters, buffers)

    monkeypatch.setattr(FlatModel, "logits", spy)
    assert 1 - 0.56 - 0.44 != 0  # in floats
    host, latest, _ = phase_in_task_2(tiny, host_of, {"alpha": 0.56, "beta": 0.44}, moved=0.5)
    assert len(seen) == 3
    assert all(torch.equal(parameters, latest[0]) for parameters in seen)
    seen.clear()
    host, latest, _ = phase_in_task_2(tiny, host_of, {"alpha": 0.5, "beta": 0.0}, moved=0.5)
    assert latest is None
    assert len(seen) == 3
    assert all(torch.equal(parameters, host.broadcasts["model"].value.parameters) for parameters in seen)


def test_in_the_first_step_the_server_teaches_nothing(tiny, host_of, quiet_torch):
    """Student == teacher there without dropout and BatchNorm: with one batch an epoch, alpha CE is all that moves."""
    deltas = []
    for alpha in (0.25, 0.5):
        config = tiny(model=SOFTMAX, training__batch_size=12, methods={"flwf": {"alpha": alpha, "beta": 0.0}})
        host = host_of(config)
        deltas.append(host.perform(Order(Train(), (0,), {0: 1.0}, 1, RoundInfo(1, 1, 0.1)), {}).delta(torch.float64))
    np.testing.assert_allclose(deltas[1].parameters, 2 * deltas[0].parameters, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("kept", [{"methods__fedper": {}}, {"model__local": ["1.running_*", "1.num_*"]}])
def test_the_servers_teacher_has_the_parts_that_stay_at_the_client(tiny, host_of, quiet_torch, monkeypatch, kept):
    """It is the model that the client received: with its own head, or its own statistics, of its last training."""
    used, logits = [], FlatModel.logits

    def spy(model, x, parameters, buffers):
        used.append((parameters.clone(), buffers.clone()))
        return logits(model, x, parameters, buffers)

    monkeypatch.setattr(FlatModel, "logits", spy)
    host = host_of(tiny(**{"methods__flwf": {"beta": 0.0}, "model": {"name": "probes:normalised"}, **kept}))
    host.perform(Order(Train(), (0,), {0: 1.0}, 1, RoundInfo(1, 0, 0.1)), {})
    own = host.model.copy()  # as the first training left it
    assert not used
    host.perform(Order(Train(), (0,), {0: 1.0}, 1, RoundInfo(2, 1, 0.1)), {})
    sent = host.broadcasts["model"].value
    head = slice(-20, None)  # 4 x 4 weights and 4 biases
    parameters = torch.cat([sent.parameters[:-20], own.parameters[head]]) if "methods__fedper" in kept else None
    for found in used:
        assert torch.equal(found[0], sent.parameters if parameters is None else parameters)
        assert torch.equal(found[1], sent.buffers if "methods__fedper" in kept else own.buffers)
    assert len(used) == 3  # batches of a phase


def test_a_phase_is_the_losss_gradient_descent(tiny, host_of, quiet_torch):
    """Client 0's phase in task 2 again, with autograd over a plain softmax: the same steps to 1e-12."""
    knobs = {"alpha": 0.5, "beta": 0.3}
    host, latest, delta = phase_in_task_2(tiny, host_of, knobs, moved=0.3)
    client, sent = host.clients[0], host.broadcasts["model"].value.parameters
    theta = sent.clone()

    def logits(vector, x):
        return x @ vector[:24].view(4, 6).T + vector[24:]

    for batch in batch_order(0, 0, 2, 12, 1, 4):
        x, y = client.samples(client.arrived[torch.from_numpy(batch)])
        theta.requires_grad_()
        z = logits(theta, x)
        loss = 0.5 * functional.cross_entropy(z, y)
        loss = loss + 0.3 * distillation_loss(logits(latest[0], x), z, 2.0)
        loss = loss + 0.2 * distillation_loss(logits(sent, x), z, 2.0)
        (slope,) = torch.autograd.grad(loss, theta)
        theta = (theta - 0.1 * slope).detach()
    np.testing.assert_allclose(delta, theta - sent, rtol=0, atol=1e-12)


def test_a_client_first_seen_in_task_2_has_a_server_teacher_alone(tiny, simulate):
    """Its beta counts for the cross-entropy: the same bits as with alpha + beta and no past weight."""
    late = {"count": 3, "arrive": {"at": [{"round": 3, "clients": [2]}]}}
    only = {"participation": {"sampler": "test_flwf:late_alone", "count": 1}}
    runs = [
        simulate(tiny(clients=late, methods={"flwf": knobs}, **only)).sha256
        for knobs in ({"alpha": 0.25, "beta": 0.25}, {"alpha": 0.5, "beta": 0.0}, {"alpha": 0.25, "beta": 0.0})
    ]
    assert runs[0] == runs[1] != runs[2]


def late_alone(server, count, draws):
    """The one with the highest id."""
    return [max(server.present)]


@pytest.mark.parametrize("sampler", ["uniform", "round_robin"])
def test_nothing_is_sent_beside_the_model(tiny, simulate, sampler):
    more = {"scenario__tasks": 3, "participation": {"count": 1, "sampler": sampler}}
    plain, taught = (simulate(tiny(methods=methods, **more)) for methods in ({}, {"flwf": {}}))
    assert [(r.bytes_up, r.bytes_down) for r in plain.rounds] == [(r.bytes_up, r.bytes_down) for r in taught.rounds]


def test_weights_that_leave_less_than_nothing_are_refused(tmp_path, capsys):
    argv = ["run", "configs/quickstart.yaml", "methods={flwf: {alpha: 0.7, beta: 0.5}}", "--local"]
    assert main([*argv, "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "found alpha 0.7 and beta 0.5, which leave -0.2 for the server's teacher" in said
    assert not (tmp_path / "out").exists()
    for alpha, beta in ((0.9, 0.1), (0.56, 0.44), (1 / 3, 2 / 3)):
        assert FLwF(alpha=alpha, beta=beta).gamma == 0
