"""FedPer (Arivazhagan et al., 2019): Algorithm 1 in NumPy on a network of two linear layers, and what follows of it."""

import numpy as np
import pytest
import torch
from costs import cost_of
from softmax_oracle import batch_order, local_phase

from raysim.algorithms.fedper import FedPer
from raysim.config import ConfigError
from raysim.engine.compatibility import check_fit
from raysim.federation.federation import build_federation
from raysim.models.building import build_model, check_model

# without the head, from 5 features to 4 classes; both ways
SMALL_RUN = {"bytes_up": -4 * (5 * 4 + 4), "bytes_down": -4 * (5 * 4 + 4)}

LOCAL = {"evaluation": {"model": "local"}}
SKEWED = {"partition": {"kind": "dirichlet", "alpha": 0.5, "min_samples": 3, "balanced": False}, "seed": 2}


def samples(federation, client, task):
    rows, data = federation.streams[client].rows[task], federation.dataset.train
    return data.x[rows].astype(np.float64)[:, federation.tasks[task].pixels], data.y[rows]


def initial(config, federation):
    module = build_model(config, federation.shape, federation.classes)
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()]).numpy()


def owned(run):
    """Every client's own parameters, None where it never trained."""
    clients = run.simulation.runner.host.clients
    return [clients[k].personalized[0].numpy() if clients[k].personalized else None for k in sorted(clients)]


def gradient_of_two_layers(vector, x, y):
    """logits = (x A' + a) B' + b, A [3, 6], B [4, 3]: with E = (P - onehot)/n, dB = E' h, db = sum E, and with G = E B,
    dA = G' x, da = sum G.
    """
    a, a0, b, b0 = np.split(vector, np.cumsum([18, 3, 12]))
    a, b = a.reshape(3, 6), b.reshape(4, 3)
    h = x @ a.T + a0
    logits = h @ b.T + b0
    e = np.exp(logits - logits.max(1, keepdims=True))
    e /= e.sum(1, keepdims=True)
    e[np.arange(len(y)), y] -= 1
    e /= len(y)
    g = e @ b
    return np.concatenate([(g.T @ x).reshape(-1), g.sum(0), (e.T @ h).reshape(-1), e.sum(0)])


@pytest.mark.parametrize("count", [3, 2])
def test_a_run_is_algorithm_1_in_numpy(tiny, simulate, count):
    """W_B [21] is averaged, W_P [16] goes on from where each client left it, also after a round without it."""
    config = tiny(
        model={"name": "probes:stacked"}, participation={"count": count}, methods={"fedper": {}}, **LOCAL, **SKEWED
    )
    federation = build_federation(config)
    run = simulate(config, federation)
    w = initial(config, federation)
    heads, own, phases, first = {}, {}, {}, w[21:].copy()
    for number, done in enumerate(run.rounds):
        bases = []
        for k in done.cohort:
            phases[k] = phases.get(k, 0) + 1
            x, y = samples(federation, k, number // 2)
            v = np.concatenate([w[:21], heads.get(k, first)])
            for batch in batch_order(config.seed, k, phases[k], len(y), 1, 4):
                v = v - 0.1 * gradient_of_two_layers(v, x[batch], y[batch])
            own[k], heads[k] = v, v[21:]
            bases.append(v[:21])
        w = np.concatenate([np.mean(bases, axis=0), first])
    assert np.allclose(run.simulation.server.parameters.numpy(), w, rtol=0, atol=1e-11)
    assert torch.equal(run.simulation.server.parameters[21:], torch.from_numpy(first))
    for k, found in enumerate(owned(run)):
        assert np.allclose(found, own[k], rtol=0, atol=1e-11)
    assert not np.allclose(own[0][21:], own[1][21:], atol=1e-3)


def test_with_all_layers_each_client_trains_by_itself(tiny, simulate):
    """Softmax regression has one layer: a client's own model is its phases, one after the other, from the first."""
    config = tiny(
        model={"name": "probes:softmax"}, methods={"fedper": {}}, participation={"count": 2}, **LOCAL, **SKEWED
    )
    federation = build_federation(config)
    run = simulate(config, federation)
    for k, found in enumerate(owned(run)):
        v, phase = initial(config, federation), 0
        for number, done in enumerate(run.rounds):
            if k in done.cohort:
                phase += 1
                x, y = samples(federation, k, number // 2)
                v = v + local_phase(v, x, y, batch_order(config.seed, k, phase, len(y), 1, 4), 0.1, 4)[0]
        assert np.allclose(found, v, rtol=0, atol=1e-11)
    assert run.simulation.server.parameters.tolist() == initial(config, federation).tolist()


def test_without_personal_layers_clients_have_fedavgs_models(tiny, simulate):
    one = simulate(tiny(methods={"fedper": {"layers": 0}}, **LOCAL))
    other = simulate(tiny(**LOCAL))
    assert one.sha256 == other.sha256
    assert [found.tolist() for found in owned(one)] == [found.tolist() for found in owned(other)]


@pytest.mark.parametrize(("layers", "stays"), [(1, False), (2, True)])
def test_a_personal_layers_statistics_stay_with_it(tiny, simulate, layers, stays):
    """Linear, BatchNorm, ReLU, head: of two layers one is BatchNorm's, whose mean and variance begin at 0 and 1."""
    run = simulate(tiny(model={"name": "probes:normalised"}, methods={"fedper": {"layers": layers}}, **LOCAL))
    server, clients = run.simulation.server, run.simulation.runner.host.clients
    untouched = [0.0] * 4 + [1.0] * 4
    assert (server.buffers.tolist() == untouched) is stays
    assert (server.integers.tolist() == [0]) is stays
    own = [clients[k].personalized for k in range(3)]
    assert all(buffers.tolist() != untouched for _, buffers, _ in own)
    assert own[0][1].tolist() != own[1][1].tolist()
    kept = [part.numel() for part in clients[0].halves["fedper"].own]
    assert kept == [4 * 4 + 4 + stays * 8, stays * 8, stays * 1]
    if stays:  # 3 batches in each of 4 phases, one after the other
        assert [integers.tolist() for *_, integers in own] == [[12]] * 3


def test_what_stays_is_not_sent(tiny, simulate):
    """6 * 5 + 5 of 59 parameters are sent, 4 bytes each: up and down, by 3 clients in 4 rounds."""
    config = tiny(methods={"fedper": {}})
    run = simulate(config)
    assert run.simulation.exchange.traffic.up == 3 * 4 * 35 * 4
    assert run.simulation.exchange.traffic.down == 3 * 4 * 35 * 4
    before = cost_of(config)
    assert (sum(before.up.values()), sum(before.down.values())) == (3 * 4 * 35 * 4, 3 * 4 * 35 * 4)


def test_a_pull_to_what_was_received_leaves_personal_layers_where_they_were(tiny, simulate):
    """Beside FedProx's strong pull own heads move less from where they began, and the server's not at all."""
    config = tiny(methods={"fedper": {}, "fedprox": {"mu": 9.9}}, training__optimizer__lr=0.1, **LOCAL)
    loose = simulate(tiny(methods={"fedper": {}}, training__optimizer__lr=0.1, **LOCAL))
    tight = simulate(config)
    first = initial(config, build_federation(config))[35:]
    moved = [np.abs(found[35:] - first).max() for run in (loose, tight) for found in owned(run)]
    assert max(moved[3:]) < min(moved[:3])
    received = tight.simulation.server.parameters.numpy()[35:]
    assert np.array_equal(received, first.astype(np.float32))


@pytest.mark.parametrize("others", [{}, {"top_k": {}}])  # methods that encode ask for the bytes of these layers
def test_more_layers_than_there_are_are_refused(tiny, others):
    config = tiny(methods={"fedper": {"layers": 3}, **others})
    federation = build_federation(config)
    with pytest.raises(ConfigError, match=r"methods\.fedper: found layers 3, allowed with this model: 0 to 2"):
        check_fit(config, check_model(config, federation.shape, federation.classes), federation.classes)
    assert FedPer(layers=2).unfit(check_model(config, federation.shape, federation.classes)) is None


def test_layers_that_stay_are_not_encoded(tiny):
    """What encodes counts the whole update, of which a part is not sent."""
    for layers, refused in ((1, True), (0, False)):
        config = tiny(methods={"fedper": {"layers": layers}, "top_k": {}})
        federation = build_federation(config)
        model = check_model(config, federation.shape, federation.classes)
        if refused:
            with pytest.raises(ConfigError, match=r"methods\.fedper: found layers that stay at the client, but top_k"):
                check_fit(config, model, federation.classes)
        else:
            check_fit(config, model, federation.classes)
