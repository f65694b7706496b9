"""PILoRA: distances, weights of prototypes and penalties by hand, and a run against NumPy."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from replay_oracle import stream_of
from test_lora import BASE, LORA, A, B

from raysim.algorithms.pilora import PiLora, nearest_prototype, prototype_weights, squared_distances
from raysim.api import Weights
from raysim.engine.compatibility import check_methods
from raysim.federation.federation import build_federation
from raysim.models.building import build_model
from raysim.models.flat import FlatModel
from raysim.system.errors import ConfigError

# prototypes and means of 5 features, and counts, of 4 classes
SMALL_RUN = {
    "model": {"name": "mlp", "hidden": [5], "adapters": {"rank": 2, "where": ["*"]}},
    "bytes_up": 4 * 4 * (2 * 5 + 1),
}

ONE_STEP = {"training__batch_size": 12, "training__rounds_per_task": 1}
HEAD, BIAS = "2.weight", "2.bias"


def doubles(value):
    return torch.tensor(value, dtype=torch.float64)


def test_the_distance_of_features_is_a_loss():
    """f = c_1 = (1, 0), c_2 = 0 and d = 2: distances 0 and 1/2. CE of class 1 is log(1 + e^-0.5) = .474077."""
    distances = squared_distances(doubles([[1, 0]]), doubles([[1, 0], [0, 0]]))
    assert distances.tolist() == [[0, 0.5]]
    loss = torch.nn.functional.cross_entropy(-distances, torch.tensor([0]))
    assert loss.item() == pytest.approx(np.log1p(np.exp(-0.5)), rel=1e-14)
    assert loss.item() == pytest.approx(0.474077, abs=1e-6)


def test_prototypes_are_weighed_by_their_distance_to_the_means():
    """Prototypes 0, 1, 3, means 0, 1: D = (1, 1, 5), so r = (1, 1, 0) and w = softmax(5, 5, 0); the sum is .508394."""
    prototypes, means = doubles([[0], [1], [3]]), doubles([[0], [1]])
    weights = prototype_weights(prototypes, means, 0.2)
    np.testing.assert_allclose(weights, [0.498321, 0.498321, 0.003358], atol=1e-6)
    assert (weights @ prototypes).item() == pytest.approx(0.508394, abs=1e-6)
    assert prototype_weights(doubles([[2], [2]]), means, 0.2).tolist() == [0.5, 0.5]
    assert prototype_weights(doubles([[4], [4], [9]]), doubles([[4]]), 0.2)[2] < 0.004  # D = 0, 0, 5


def test_a_linear_head_has_the_softmax_of_the_distances():
    torch.manual_seed(0)
    model = FlatModel(torch.nn.Sequential(torch.nn.Linear(3, 4)).double())
    model.head, prototypes, f = ("0.weight", "0.bias"), torch.randn(4, 3).double(), torch.randn(5, 3).double()
    parameters = torch.cat([prototypes.flatten(), doubles([9, 9, 9, 9])])
    found = nearest_prototype(model, Weights(parameters, *model.vectors[1:]))
    w, b = model.named(found.parameters).values()
    wanted = (-squared_distances(f, prototypes)).softmax(1)
    torch.testing.assert_close((f @ w.T + b).softmax(1), wanted, atol=1e-14, rtol=0)


def test_the_penalty_is_of_entries_and_of_products_with_earlier_tasks():
    """A = ((1, -2), (0, 3)): |A| = 6. Two earlier A are (2, 1) and (1, 1): products 0, -1, 3, 3, so 7. .1 6 + .5 7."""
    method = PiLora(sparse=0.1, orthogonal=0.5)
    layer = torch.nn.Module()
    layer.weight = torch.nn.Parameter(doubles([[1, -2], [0, 3]]))
    module = torch.nn.ModuleDict({"x": torch.nn.ModuleDict({"lora_a": layer})})
    half = method.Client("pilora", method)
    client = SimpleNamespace(model=SimpleNamespace(layout={"x.lora_a.weight": (2, 2)}, module=module))
    step = SimpleNamespace(client=client, loss=doubles(0.0))
    half.earlier = {}
    assert half.penalty(step).item() == pytest.approx(0.6, rel=1e-14)
    half.earlier = {"x.lora_a.weight": doubles([[2, 1], [1, 1]])}
    found = half.penalty(step)
    assert found.item() == pytest.approx(0.6 + 3.5, rel=1e-14)
    found.backward()
    # signs of A times .1, and of the products (0, -1; 3, 3) times the earlier A times .5
    np.testing.assert_allclose(layer.weight.grad, [[0.1 - 0.5, -0.1 - 0.5], [1.5, 0.1 + 1.0]])


def test_a_run_weighs_prototypes_and_adds_tasks(tiny, simulate, monkeypatch):
    """One step of each client from common weights: means of the features at the model before the step, by NumPy."""
    sent, ends, of_update, of_end = [], [], PiLora.Server.update, PiLora.Server.end_task

    def named(model, vector):
        return {name: value.clone().numpy() for name, value in model.named(vector).items()}

    def update(self, server, delta, reply):
        done = of_update(self, server, delta, reply)
        after = named(server.network, server.parameters + done.parameters)
        sent.append((named(server.network, server.parameters), {k: dict(v) for k, v in reply.items()}, after))
        return done

    def end_task(self, server):
        ends.append(named(server.network, server.parameters))
        of_end(self, server)

    monkeypatch.setattr(PiLora.Server, "update", update)
    monkeypatch.setattr(PiLora.Server, "end_task", end_task)
    classes = {"kind": "class_incremental", "tasks": 2}
    unequal = {"partition": {"kind": "dirichlet", "alpha": 0.4, "min_samples": 2}, "seed": 4, **ONE_STEP}
    config = tiny(model=LORA, scenario=classes, methods={"pilora": {}}, **unequal)
    federation = build_federation(config)
    run = simulate(config, federation)
    start = build_model(config, federation.shape, federation.classes).state_dict()
    w0, bias = start[BASE].numpy(), start["1.base.bias"].numpy()
    lacking = 0
    for task, (before, reply, after) in enumerate(sent):
        present = [2 * task, 2 * task + 1]
        for place, label in enumerate(present):
            means = {}
            for k in range(3):
                x, y = (part[federation.streams[k].span(task, task + 1)] for part in stream_of(federation, k))
                f = x @ (w0 + 0.5 * before[B] @ before[A]).T + bias
                assert reply["counts"][k][place] == (y == label).sum()
                if (y == label).any():
                    means[k] = f[y == label].mean(0)
                    np.testing.assert_allclose(reply["means"][k][place], means[k], rtol=1e-10)
            lacking += len(means) < 3
            c = np.array([reply["prototypes"][k][place].numpy() for k in range(3)])
            r = 1 / np.array([sum(np.linalg.norm(one - m) for m in means.values()) for one in c])
            w = np.exp((r - r.min()) / (r.max() - r.min()) / 0.2)
            np.testing.assert_allclose(after[HEAD][label], w / w.sum() @ c, rtol=1e-6)
    assert lacking  # a client without one of its task's classes
    total = sum(0.5 * end[B] @ end[A] for end in ends)
    np.testing.assert_allclose(run.state[BASE], w0 + total, atol=1e-13)
    np.testing.assert_allclose(run.state[HEAD], 2 / 3 * ends[-1][HEAD], rtol=1e-13)
    np.testing.assert_allclose(run.state[BIAS], -(ends[-1][HEAD] ** 2).mean(1), rtol=1e-13)


def test_additions_of_later_tasks_are_orthogonal(tiny, simulate):
    """With a large weight, A of task 2 has a smaller product with A of task 1."""
    found = []
    for orthogonal in (0.0, 2.0):
        keys = {"sparse": 0.0, "orthogonal": orthogonal}
        run = simulate(
            tiny(model=LORA, training__rounds_per_task=5, training__optimizer__lr=0.02, methods={"pilora": keys})
        )
        half, network = run.simulation.exchange.halves["pilora"], run.simulation.model
        first, second = (network.named(one)[A] for one in half.finished)
        found.append((first @ second.T).abs().sum().item())
    assert found[1] < 0.2 * found[0]


def test_it_needs_classes(tiny):
    config = tiny(dataset={"name": "friedman", "train": 36, "test": 20}, objective="regression", methods={"pilora": {}})
    with pytest.raises(ConfigError, match=r"methods\.pilora: needs classes"):
        check_methods(config)
