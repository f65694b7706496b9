"""SPECIAL-C, the client-side variant (Xu and Li, 2026, arXiv 2601.22274, Appendix F.3 and Algorithm 2), in float64."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from softmax_oracle import Softmax, batch_order

from raysim.algorithms.special_c import SpecialC
from raysim.api.messages import Broadcast
from raysim.engine.orders import RoundInfo
from raysim.federation.federation import build_federation
from raysim.models.building import build_model

SOFTMAX = {"name": "probes:softmax"}
DRAWING = {"name": "mlp", "hidden": [5], "dropout": 0.4, "batch_norm": True}
FORMS = [(every, scale) for every in ("epoch", "step") for scale in ("1", "lr")]
SIZE = 28


def special_c(lam=0.25, rate="1/task", every="epoch", scale="1"):
    return {"special_c": {"lam": lam, "global_rate": rate, "prox_every": every, "prox_scale": scale}}


def applied(knobs, x, anchor, lr=1.0, ends_epoch=True):
    """X after `observe`."""
    model = SimpleNamespace(parameters=x.clone())
    half = SpecialC.Client("special_c", knobs)
    client = SimpleNamespace(model=model, lr=lr, from_server={"special_c": anchor}.__getitem__)
    half.start(client, True)
    half.observe(SimpleNamespace(client=client, ends_epoch=ends_epoch))
    return model.parameters


@pytest.fixture
def phase(tiny, host_of, quiet_torch):
    """A function: (theta^E, Delta, theta^0, anchor) of a phase of client 0 in task 2, 12 samples in batches of 4."""

    def run(methods, lr=0.1, **overrides):
        host = host_of(tiny(model=SOFTMAX, methods=methods, **overrides))
        anchor = host.model.parameters + torch.linspace(-2, 3, SIZE, dtype=torch.float64)
        host.receive([Broadcast("special_c", 1, anchor)])
        host.model.load(host.broadcasts["model"].value)
        client = host.clients[0]
        client.begin_phase(RoundInfo(3, 1, lr), 1.0)
        client.halves["special_c"].start(client, True)
        delta = client.local_training().parameters
        return host.model.parameters.numpy(), delta.numpy(), client.received.numpy(), anchor.numpy()

    return run


@pytest.mark.parametrize("model", [SOFTMAX, DRAWING])
@pytest.mark.parametrize("rate", ["1/task", 1.0])
def test_lambda_0_is_special_with_lambda_0_bit_for_bit(tiny, simulate, model, rate):
    """And at rate 1 both are FedAvg; lambda > 0 is neither."""
    others = [{"special": {"lam": 0, "global_rate": rate}}, *([{}] if rate == 1 else [])]
    more = {"model": model, "participation": {"count": 2}}
    for every, scale in FORMS[::3]:
        none = simulate(tiny(methods=special_c(0, rate, every, scale), **more)).sha256
        assert {simulate(tiny(methods=m, **more)).sha256 for m in others} == {none}
        assert simulate(tiny(methods=special_c(0.25, rate, every, scale), **more)).sha256 != none


def test_task_1_does_not_depend_on_lambda(tiny, simulate):
    """The anchor is the model at the end of the task before: task 1 has none, so no prox, where lambda is."""
    for tasks, same in ((1, True), (2, False)):
        runs = [simulate(tiny(methods=special_c(lam), scenario__tasks=tasks)).sha256 for lam in (0, 0.25, 5.0)]
        assert (len(set(runs)) == 1) == same


@pytest.mark.parametrize("lam", [0.05, 0.25, 3.0])
def test_the_closed_form_is_the_numerical_argmin(lam):
    """prox(x) minimises 1/2 |u - x|^2 + s |u - anchor|^2: gradient descent, whose gradient autograd takes.

    The curvature is 1 + 2 s everywhere, so that steps of half its inverse halve the error: 2^-60.
    """
    x, anchor = torch.from_numpy(np.random.default_rng(1).standard_normal((2, SIZE)))
    for scale, lr in (("1", 0.1), ("lr", 0.1)):
        s = lam * (lr if scale == "lr" else 1)
        u = torch.zeros_like(x, requires_grad=True)
        for _ in range(60):
            cost = 0.5 * (u - x).square().sum() + s * (u - anchor).square().sum()
            (slope,) = torch.autograd.grad(cost, u)
            u = (u - slope / (2 * (1 + 2 * s))).detach().requires_grad_()
        found = applied(SpecialC(lam=lam, prox_scale=scale), x, anchor, lr)
        np.testing.assert_allclose(found, u.detach(), rtol=0, atol=1e-13)


def test_an_application_by_hand():
    """x = 1, anchor = 4, lam = 0.25: (1 + 4 / 2) / (1 + 1/2) = 2, not SPECIAL's (1 + 4 / 4) / (5 / 4) = 1.6."""
    x, anchor = torch.tensor([1.0]).double(), torch.tensor([4.0]).double()
    assert applied(SpecialC(lam=0.25), x, anchor).item() == pytest.approx(2, rel=1e-15)
    assert applied(SpecialC(lam=0.25), x, anchor, ends_epoch=False).item() == 1
    assert applied(SpecialC(lam=0.25, prox_every="step"), x, anchor, ends_epoch=False).item() == pytest.approx(2)


@pytest.mark.parametrize(("every", "scale"), FORMS)
def test_without_gradients_each_application_shrinks_the_distance_by_1_plus_2s(phase, every, scale):
    """theta^E - anchor = (1 + 2s)^-n (theta^0 - anchor): n = 2 epochs or 2 * 3 steps, s = lam or lam lr.

    And Delta = theta^E - theta^0, which line 12 of Algorithm 2 equates with the sum of the gradients, here 0.
    """
    lam, lr = 0.3, 0.2
    none = {"probes:Zero": {"times": 0.0, "plus": 0.0}}
    end, delta, start, anchor = phase({**none, **special_c(lam, 1, every, scale)}, lr, training__local_epochs=2)
    n, s = {"epoch": 2, "step": 6}[every], {"1": lam, "lr": lam * lr}[scale]
    np.testing.assert_allclose(end - anchor, (1 + 2 * s) ** -n * (start - anchor), rtol=1e-12)
    np.testing.assert_allclose(start + delta, end, rtol=0, atol=1e-15)


def test_where_batchnorm_leaves_a_sample_out_an_epoch_still_ends_once(tiny, host_of, quiet_torch, monkeypatch):
    """13 samples in batches of 4, the last sample left out: the third step of each of two epochs ends it."""
    ended = []
    monkeypatch.setattr(SpecialC.Client, "observe", lambda half, step: ended.append(step.ends_epoch))
    host = host_of(
        tiny(dataset__train=39, model={"name": "probes:normalised"}, methods=special_c(), training__local_epochs=2)
    )
    client = host.clients[0]
    client.begin_phase(RoundInfo(1, 0, 0.1), 1.0)
    client.local_training()
    assert ended == [False, False, True] * 2


def test_scaled_by_lr_at_every_step_it_solves_the_regularised_objective(phase, tiny):
    """At rest theta = prox(theta - lr g), s = lr lam, so g + 2 lam (theta - anchor) = 0: f + lam |theta - anchor|^2.

    As printed, s = lam, it rests where g + 2 lam (theta - anchor) / lr = 0: the steps' size decides how strong it is.
    """
    lam, lr = 0.5, 0.5
    config = tiny(model=SOFTMAX)
    federation = build_federation(config)
    x, y = samples(federation, 0, 1)
    for scale, strength in (("lr", 2 * lam), ("1", 2 * lam / lr)):
        end, _, _, anchor = phase(
            special_c(lam, 1, "step", scale), lr, training__batch_size=12, training__local_epochs=80
        )
        g = Softmax.of(end, 4, 6).loss_and_gradient(x, y)[1]
        np.testing.assert_allclose(g, -strength * (end - anchor), rtol=0, atol=1e-12)
        assert np.abs(g).max() > 1e-2


def samples(federation, client, task):
    """A client's samples of a task, x in float64."""
    rows, data = federation.streams[client].rows[task], federation.dataset.train
    return data.x[rows].astype(np.float64)[:, federation.tasks[task].pixels], data.y[rows]


def algorithm_2(config, cohorts, lam, every, scale):
    """Algorithm 2 in NumPy: the model after the last round; line 16 with 1/N, as only N of M clients take part."""
    federation = build_federation(config)
    module = build_model(config, federation.shape, federation.classes)
    theta = torch.cat([p.detach().reshape(-1) for p in module.parameters()]).numpy()
    training, phases, anchor = config.training, [0] * config.clients.count, None
    lr, epochs = training.optimizer.lr, training.local_epochs
    s = lam * (lr if scale == "lr" else 1)
    for number, cohort in enumerate(cohorts):
        i = number // training.rounds_per_task + 1
        if i > 1 and number % training.rounds_per_task == 0:
            anchor = theta
        change = np.zeros_like(theta)
        for m in cohort:
            phases[m] += 1
            x, y = samples(federation, m, i - 1)
            order = list(batch_order(config.seed, m, phases[m], len(y), epochs, 4))
            local = theta
            for step, batch in enumerate(order, 1):
                local = local - lr * Softmax.of(local, 4, 6).loss_and_gradient(x[batch], y[batch])[1]
                if anchor is not None and (every == "step" or step % (len(order) // epochs) == 0):
                    local = (local + 2 * s * anchor) / (1 + 2 * s)
            change = change + local - theta
        theta = theta + change / len(cohort) / i
    return theta


@pytest.mark.parametrize(("every", "scale"), FORMS)
def test_a_run_is_algorithm_2_in_numpy(tiny, simulate, every, scale):
    """Three tasks, two of three clients a round, two epochs of three batches (12 samples; 4 and 4 and 4)."""
    config = tiny(
        model=SOFTMAX,
        scenario__tasks=3,
        participation={"count": 2},
        training__local_epochs=2,
        methods=special_c(0.25, "1/task", every, scale),
    )
    run = simulate(config)
    cohorts = [r.cohort for r in run.rounds]
    assert {len(c) for c in cohorts} == {2}
    wanted = algorithm_2(config, cohorts, 0.25, every, scale)
    np.testing.assert_allclose(run.simulation.server.parameters, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("count", [1, 3])
def test_the_anchor_is_sent_once_per_task_and_client(tiny, simulate, count):
    """A model and an anchor are 28 float64, 224 bytes each. Up: the update only. Down: from task 2 on, at a client's

    first round of a task, also the anchor.
    """
    more = {"scenario__tasks": 3, "training__rounds_per_task": 4, "participation": {"count": count}}
    run = simulate(tiny(model=SOFTMAX, methods=special_c(), **more))
    served = set()
    for done in run.rounds:
        (task,) = done.tasks
        new = {(task, k) for k in done.cohort if task > 1} - served
        served |= new
        assert done.bytes_up == 224 * count
        assert done.bytes_down == 224 * (count + len(new))
    assert len(served) < 8 * count  # somebody came again
