"""Methods that send no model: ridge regression on frozen features, and local training alone."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from costs import cost_of

from raysim import check as check_run
from raysim.api import ClientHalf, Delta, Encoded, Method, Request, RunError, ServerHalf, Term, Weights
from raysim.engine.compatibility import check_methods
from raysim.system.errors import ConfigError

HERE = "test_no_model:"
FEDBUFF = {"schedule": {"kind": "asynchronous", "concurrency": 2, "buffer_size": 2, "speeds": {"kind": "log_normal"}}}
BATCH_NORM = {"model": {"name": "probes:normalised"}}


@dataclass(frozen=True, kw_only=True)
class Ridge(Method):
    """Ridge regression on the head's inputs f: W = (sum f f^T + strength)^-1 sum f y^T, over all clients and tasks."""

    strength: float = 0.5
    sends_model: ClassVar = False
    replies: ClassVar = {"gram": "sum", "moment": "sum"}

    def head_parts(self):
        return 2

    class Client(ClientHalf):
        def train(self, client):
            """Train nothing; what it returns is not sent."""
            return Delta(torch.full_like(client.received, 7.0), torch.full_like(client.model.buffers, torch.nan))

        def sums(self, client, message):
            x, y = client.samples(client.arrived)
            client.model.module.eval()
            with torch.no_grad(), client.rng_scope(self.name):
                _, f = client.model.with_features(x)
            f = torch.cat([f, f.new_ones(len(f), 1)], 1).double()
            targets = torch.nn.functional.one_hot(y, client.classes).double()
            return {"gram": Term(f.T @ f), "moment": Term(f.T @ targets)}

    class Server(ServerHalf):
        gram = moment = 0.0

        def end_task(self, server):
            reply = yield Request("sums", to="everyone")
            self.gram, self.moment = self.gram + reply["gram"], self.moment + reply["moment"]

        def evaluated(self, server):
            if isinstance(self.gram, float):
                return None
            eye = self.method.strength * torch.eye(len(self.gram), dtype=torch.float64)
            solved, parameters = torch.linalg.solve(self.gram + eye, self.moment), server.parameters.clone()
            weight, bias = (server.network.named(parameters)[name] for name in server.network.head)
            weight.copy_(solved[:-1].T)
            bias.copy_(solved[-1])
            return Weights(parameters, server.buffers, server.integers)


class Alone(Method):
    """Every client trains its own model alone, and sends the mean of its inputs in place of its update."""

    sends_model: ClassVar = False
    replies: ClassVar = {"mean": "mean"}

    class Client(ClientHalf):
        def __init__(self, name, method):
            super().__init__(name, method)
            self.own = []

        def receive(self, client):
            for vector, own in zip(client.model.vectors, self.own, strict=bool(self.own)):
                vector.copy_(own)

        def finish(self, client, delta):
            self.own = [vector.clone() for vector in client.model.vectors]
            return delta, {"mean": Term(client.samples(client.arrived)[0].mean(0))}


class Changing(Alone):
    """Its server half changes the model, which clients would not receive."""

    class Server(ServerHalf):
        def update(self, server, delta, reply):
            return Delta(delta.parameters + 1.0, delta.buffers)


class Replacing(Alone):
    class Server(ServerHalf):
        def end_task(self, server):
            server.replace_model(Weights(server.parameters, server.buffers, server.integers))


class Encoding(Alone):
    class Client(ClientHalf):
        def encode(self, name: str, vector: torch.Tensor, draws: np.random.Generator) -> torch.Tensor | Encoded:
            return vector


def seen(federation, task):
    """The samples of a task, with its permutation of the features."""
    x = federation.dataset.train.x[task.train].astype(np.float64)
    return x if task.pixels is None else x[:, task.pixels]


@pytest.mark.parametrize("model", ["probes:stacked", "probes:normalised"])
def test_ridge_regression_is_the_closed_form_and_sends_its_sums_alone(tiny, simulate, model):
    """d = 3 or 4 features and a 1; 4 classes. Three clients send (d + 1)^2 + 4 (d + 1) numbers of 8 bytes, twice.

    The same head for 1 client; the features are of the initial weights, which no round changes.
    """
    config = {"methods": {f"{HERE}Ridge": {}}, "model": {"name": model}}
    run = simulate(tiny(**config))
    federation, d = run.simulation.federation, 3 if model == "probes:stacked" else 4
    start = {name: part.numpy() for name, part in run.simulation.model.state_dict().items()}
    rows = np.concatenate([task.train for task in federation.tasks])
    x = np.concatenate([seen(federation, task) for task in federation.tasks])
    if d == 3:
        f, head = x @ start["1.weight"].T + start["1.bias"], "2"
    else:  # BatchNorm at its initial statistics, mean 0 and variance 1, then ReLU
        f = np.maximum((x @ start["0.weight"].T + start["0.bias"]) / np.sqrt(1 + 1e-5), 0)
        head = "3"
    f = np.concatenate([f, np.ones((len(f), 1))], 1)
    solved = np.linalg.solve(f.T @ f + 0.5 * np.eye(d + 1), f.T @ np.eye(4)[federation.dataset.train.y[rows]])
    np.testing.assert_allclose(run.state[f"{head}.weight"].numpy(), solved[:-1].T, rtol=1e-6)
    np.testing.assert_allclose(run.state[f"{head}.bias"].numpy(), solved[-1], rtol=1e-6)
    sent = 8 * ((d + 1) ** 2 + 4 * (d + 1))
    assert [(done.bytes_up, done.bytes_down) for done in run.rounds] == [(0, 0), (3 * sent, 0)] * 2
    alone = simulate(tiny(**config, clients__count=1))
    torch.testing.assert_close(alone.state, run.state, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("config", [{}, FEDBUFF, BATCH_NORM, {"clients__dropout": 0.4}], ids=str)
@pytest.mark.parametrize("method", ["Ridge", "Alone"])
def test_bytes_are_known_before(tiny, simulate, method, config):
    config = {"model": {"name": "probes:stacked"}} | config
    config = tiny(methods={f"{HERE}{method}": {}}, **config)
    run, cost = simulate(config), cost_of(config)
    traffic = run.simulation.exchange.traffic
    assert (sum(cost.up.values()), sum(cost.down.values())) == (traffic.up, traffic.down)
    assert traffic.up > 0
    assert traffic.down == 0


def test_training_alone_changes_no_model_of_the_server(tiny, simulate):
    """The model keeps its initial bits, BatchNorm's count of batches among them, while clients learn."""
    run = simulate(tiny(methods={f"{HERE}Alone": {}}, **BATCH_NORM, evaluation__model="local"))
    start = simulate(tiny(methods={f"{HERE}Ridge": {}}, **BATCH_NORM, training__rounds_per_task=1))
    for name in ("0.weight", "1.running_var", "1.num_batches_tracked"):
        assert torch.equal(run.state[name], start.state[name])
    client = run.simulation.runner.host.clients[0]
    assert not torch.equal(client.personalized[0], run.simulation.server.parameters)
    assert [done.bytes_up for done in run.rounds] == [3 * 6 * 8] * 4  # six means in float64


def test_what_makes_no_sense_is_refused(tiny, simulate):
    def refused(*names):
        with pytest.raises(ConfigError) as error:
            check_methods(tiny(methods={name if name.islower() else f"{HERE}{name}": {} for name in names}))
        return str(error.value)

    said = (
        "methods: Alone never sends the model that {} changes, allowed: one of the two, or sends_model = False in both"
    )
    assert refused("fedprox", "Alone") == said.format("fedprox")
    assert refused("Alone", "fedavgm") == said.format("fedavgm")
    assert refused("Encoding") == (
        "methods: found the hook encode in Encoding, allowed with sends_model = False: no encode; send encoded terms"
    )
    check_methods(tiny(methods={f"{HERE}Alone": {}, f"{HERE}Ridge": {}}, model={"name": "probes:stacked"}))
    with pytest.raises(
        RunError, match=r"methods\.Changing: Changing\.Server\.update \(.*\) returned a change of the model, allowed: "
    ):
        simulate(tiny(methods={f"{HERE}Changing": {}}))
    with pytest.raises(RunError, match=r"^server, round 2: found a new model, which no client would receive, allowed "):
        simulate(tiny(methods={f"{HERE}Replacing": {}}))


def test_check_says_that_the_model_is_not_sent(tiny):
    said = check_run(tiny(methods={f"{HERE}Ridge": {}}))
    assert said["model"] == "mlp: 59 trained parameters, never sent"
    assert said["bytes down"] == "about 0 (0 bytes; 0 bytes a round)"
    assert said["bytes up"].startswith("about 2,880 (")  # twice 3 clients' 8 * (6^2 + 4 * 6) bytes
