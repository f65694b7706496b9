"""FedProx: w <- w - lr (g(w) + mu (w - w_sent))."""

import numpy as np
import probes
import pytest
import torch
from softmax_oracle import batch_order, local_phase

from raysim.engine.orders import RoundInfo

SOFTMAX = {"name": "probes:softmax"}


def phase(host, number=0, lr=0.1):
    client = host.clients[number]
    host.receive([probes.model_post(host.model)] if "model" not in host.broadcasts else [])
    host.model.load(host.broadcasts["model"].value)
    client.begin_phase(RoundInfo(1, 0, lr), 1.0)
    return client.local_training().parameters.numpy()


def with_mu(mu):
    return {"fedprox": {"mu": mu}}


@pytest.mark.parametrize("model", [{"dropout": 0.4}, {"batch_norm": True}, {}])
def test_mu_0_is_fedavg_bit_for_bit(tiny, simulate, model):
    more = {"model": {"name": "mlp", "hidden": [5], **model}, "training__local_epochs": 2}
    plain, none, some = (simulate(tiny(methods=m, **more)).sha256 for m in ({}, with_mu(0), with_mu(0.5)))
    assert plain == none
    assert plain != some


def test_the_first_step_has_no_pull(host_of, tiny, quiet_torch):
    """At w = w_sent the proximal gradient is 0, whatever mu."""
    one = {"model": SOFTMAX, "training__batch_size": 100}
    assert np.array_equal(phase(host_of(tiny(**one))), phase(host_of(tiny(methods=with_mu(7.0), **one))))


@pytest.mark.parametrize("mu", [0.1, 3.0])
def test_several_steps_are_those_of_numpy(host_of, tiny, quiet_torch, mu):
    """Softmax regression in NumPy with mu (w - w_sent) added to each step's gradient: 2 epochs of 3 batches."""
    host = host_of(tiny(model=SOFTMAX, methods=with_mu(mu), training__local_epochs=2))
    start = host.model.parameters.numpy().copy()
    rows = host.federation.streams[1].rows[0]
    x = host.federation.dataset.train.x[rows].astype(np.float64)[:, host.federation.tasks[0].pixels]
    y = host.federation.dataset.train.y[rows]
    wanted, _ = local_phase(start, x, y, batch_order(0, 1, 1, 12, 2, 4), 0.1, 4, mu=mu)
    np.testing.assert_allclose(phase(host, 1), wanted, rtol=0, atol=1e-12)
    free, _ = local_phase(start, x, y, batch_order(0, 1, 1, 12, 2, 4), 0.1, 4)
    assert np.abs(wanted - free).max() > 1e-3


def test_a_linear_loss_by_closed_form(host_of, tiny, quiet_torch):
    """The gradient on W is a constant c = 1 (a penalty of sum(W); the other gradients are zeroed by x 0 + 1).

    Zero makes every gradient 1, then the proximal term is added: d <- d - lr (1 + mu d), so after S steps
    d_S = -(1 - (1 - lr mu)^S) / mu: lr 0.5, mu 0.5, S 3: -(1 - 0.75^3) / 0.5 = -1.15625.
    """
    host = host_of(tiny(model=SOFTMAX, methods={"probes:Zero": {}, **with_mu(0.5)}))
    np.testing.assert_allclose(phase(host, lr=0.5), -1.15625, rtol=1e-14)


def test_a_large_mu_pulls_to_the_model_that_was_sent(host_of, tiny, quiet_torch):
    """|d| shrinks as mu grows; where lr mu = 1 each step forgets the last: d is one step's gradient, lr g."""
    lengths = [
        np.linalg.norm(phase(host_of(tiny(model=SOFTMAX, methods=with_mu(mu), training__local_epochs=4))))
        for mu in (0.0, 1.0, 10.0)
    ]
    assert lengths[0] > lengths[1] > lengths[2]
    assert lengths[2] < 0.2 * lengths[0]


def test_nothing_more_is_sent_and_negative_mu_is_refused(tiny, simulate):
    from raysim.system.errors import ConfigError

    plain, pulled = simulate(tiny()), simulate(tiny(methods=with_mu(0.5)))
    assert [r.bytes_up for r in plain.rounds] == [r.bytes_up for r in pulled.rounds]
    with pytest.raises(ConfigError, match=r"methods\.fedprox\.mu"):
        tiny(methods=with_mu(-0.1))


def test_the_gradient_is_that_of_half_mu_times_the_squared_distance(host_of, tiny, quiet_torch):
    """autograd on mu/2 ||w - w_sent||^2 after a few steps of drift."""
    host = host_of(tiny(model=SOFTMAX, methods=with_mu(0.3)))
    client = host.clients[0]
    client.begin_phase(RoundInfo(1, 0, 0.1), 1.0)
    host.model.parameters.add_(torch.randn(28, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    w = host.model.parameters.clone().requires_grad_()
    (0.3 / 2 * (w - client.received).square().sum()).backward()

    class Step:
        pass

    step = Step()
    step.client = client
    found = client.halves["fedprox"].gradient(step, torch.zeros(28, dtype=torch.float64))
    assert torch.allclose(found, w.grad, rtol=1e-14)
