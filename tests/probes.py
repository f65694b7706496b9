"""Models and methods of the tests' own, named in configs as `probes:NAME`."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import torch
from torch import nn

from raysim.algorithms.re_fed import ReFed
from raysim.api import Broadcast, ClientHalf, Delta, Method, Request, ServerHalf, Term
from raysim.models.flat import FlatModel

LOG: list = []


def said(reply):
    """A reduced reply in plain numbers."""
    if isinstance(reply, Mapping):
        return {key: said(value) for key, value in reply.items()}
    return reply.tolist()


def model_post(model: FlatModel, version: int = 0) -> Broadcast:
    return Broadcast("model", version, model.weights())


# models


def softmax(shape, classes):
    """Softmax regression in float64."""
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], classes)).double()


def normalised(shape, classes):
    """A linear layer, BatchNorm and a head in float64."""
    return nn.Sequential(nn.Linear(shape[0], 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, classes)).double()


def wrong_output(shape, classes):
    """One logit too many."""
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], classes + 1))


def two_outputs(shape, classes):
    """Logits and features, as a tuple."""
    return Two(nn.Flatten(), nn.Linear(shape[0], classes))


class Two(nn.Sequential):
    def forward(self, x):
        return super().forward(x), x


def quits(shape, classes):
    """Ends the process."""
    sys.exit(3)


def half_frozen(shape, classes):
    """A frozen layer in bfloat16 below a trained one."""
    below = nn.Linear(shape[0], 3, dtype=torch.bfloat16).requires_grad_(False)
    return Halved(below, nn.Linear(3, classes))


class Halved(nn.Sequential):
    def forward(self, x):
        return self[1](self[0](x.to(torch.bfloat16)).float())


def no_module(shape, classes):
    """Nothing that torch knows."""
    return "a model"


def own(shape, classes, *, width: int = 3):
    """A model of the user's own with a key."""
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], width), nn.Linear(width, classes))


def scaled(shape, classes):
    """Logits that are no layer's output."""
    return nn.Sequential(nn.Linear(shape[0], 5), nn.ReLU(), nn.Linear(5, classes), nn.Softplus())


def unbiased(shape, classes):
    """A head without a bias."""
    return nn.Sequential(nn.Linear(shape[0], 5), nn.ReLU(), nn.Linear(5, classes, bias=False))


def stacked(shape, classes):
    """Linear features and a head, in float64."""
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], 3), nn.Linear(3, classes)).double()


def stacked_images(shape, classes):
    """The same on images."""
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), 3), nn.Linear(3, classes)).double()


def convolutions(shape, classes):
    """Two convolutions, one of them by channel, and a head."""
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.Conv2d(2, 2, 3, groups=2), nn.Flatten(), nn.Linear(2, classes))


# a method with every hook; what it computes is in test_hooks.py


@dataclass(frozen=True, kw_only=True)
class Everything(Method):
    """Uses every hook of both halves and writes down when it was called."""

    replies: ClassVar = {"level": "mean", "number": "sum", "who": "by_client", "weighted": "mean"}

    class Client(ClientHalf):
        def __init__(self, name, knobs):
            super().__init__(name, knobs)
            self.answers = 0

        def _log(self, client, hook, *more):
            LOG.append((client.id, hook, *more))

        def begin_task(self, client):
            self._log(client, "begin_task", client.finished.tolist(), client.arrived.tolist())

        def start(self, client, message):
            self._log(client, "start", None if message is None else message["hello"].tolist())

        def samples(self, client):
            self._log(client, "samples")
            return client.arrived[:4]

        def batch(self, step):
            self._log(step.client, "batch")
            step.x, step.y = torch.cat([step.x, step.x[:1]]), torch.cat([step.y, step.y[:1]])

        def task_loss(self, step):
            self._log(step.client, "task_loss", len(step.y))
            return step.client.loss(step.logits, step.y)

        def penalty(self, step):
            self._log(step.client, "penalty")
            return 0.0 * step.logits.sum()

        def gradient(self, step, gradient):
            self._log(step.client, "gradient")
            return gradient

        def train(self, client):
            self._log(client, "train")
            return client.local_training()

        def observe(self, step):
            self._log(step.client, "observe", step.number)

        def finish(self, client, delta):
            self._log(client, "finish")
            client.record("probe", float(client.id))
            value = torch.full((3,), float(client.id + 1))
            terms = {"level": Term(value), "number": Term(value), "who": Term(torch.tensor([client.id]))}
            return delta, terms

        def count(self, client, message):
            self.answers += 1
            self._log(client, "count", message, self.answers, client.from_server("anchor").tolist())
            if client.id == 1:  # has nothing to say
                return None
            return {"number": Term(torch.tensor(float(client.id + 1))), "weighted": Term(torch.tensor(1.0), 0.125)}

    class Server(ServerHalf):
        def _log(self, server, hook, *more):
            LOG.append(("server", hook, *more))

        def _plan(self, server, hook, to):
            reply = yield Request(
                "count", hook, to=to, broadcasts=[Broadcast("anchor", server.task, torch.ones(7) * server.task)]
            )
            self._log(server, hook, said(reply))

        def select(self, server):
            self._log(server, "select")
            return [2, 1] if server.round == 2 else server.present  # client 0 misses round 2

        def prepare(self, server):
            yield from self._plan(server, "prepare", "cohort")

        def announce(self, server):
            self._log(server, "announce")
            hello = {"hello": torch.tensor([server.round])}
            return hello, [Broadcast("anchor", server.task, torch.ones(7) * server.task)]

        def update(self, server, delta, reply):
            said = {
                k: {i: t.tolist() for i, t in v.items()} if isinstance(v, Mapping) else v.tolist()
                for k, v in reply.items()
            }
            self._log(server, "update", said)
            server.record("updates", server.round)
            return delta

        def conclude(self, server):
            yield from self._plan(server, "conclude", "cohort" if server.round == 2 else [2])

        def end_task(self, server):
            yield from self._plan(server, "end_task", "everyone")


# methods for one law of composition each


class _Affine(ClientHalf):
    """g -> times * g + plus, for the gradient and for what is sent."""

    def gradient(self, step, gradient):
        LOG.append((self.name, "gradient"))
        return gradient * self.method.times + self.method.plus

    def finish(self, client, delta):
        LOG.append((self.name, "finish"))
        return Delta(delta.parameters * self.method.times + self.method.plus, delta.buffers), {}


class _AffineServer(ServerHalf):
    def update(self, server, delta, reply):
        LOG.append((self.name, "update"))
        return Delta(delta.parameters * self.method.times + self.method.plus, delta.buffers)


@dataclass(frozen=True, kw_only=True)
class Zero(Method):
    """times 0, plus 1."""

    times: float = 0.0
    plus: float = 1.0
    Client = _Affine
    Server = _AffineServer


@dataclass(frozen=True, kw_only=True)
class Triple(Method):
    """times 3, plus 1."""

    times: float = 3.0
    plus: float = 1.0
    Client = _Affine
    Server = _AffineServer


@dataclass(frozen=True, kw_only=True)
class Repeat(Method):
    """Adds the last row of every batch once more."""

    class Client(ClientHalf):
        def batch(self, step):
            LOG.append((self.name, "batch", len(step.y)))
            step.x, step.y = torch.cat([step.x, step.x[-1:]]), torch.cat([step.y, step.y[-1:]])


@dataclass(frozen=True, kw_only=True)
class RepeatAgain(Repeat):
    """The same under another name."""


def _pull(strength):
    class Pull(ClientHalf):
        def penalty(self, step):
            weights = next(iter(step.client.model.module.parameters()))
            return strength * weights.sum()

    return Pull


@dataclass(frozen=True, kw_only=True)
class PullOne(Method):
    """A penalty of 1 x the sum of the first layer's weights."""

    Client = _pull(1.0)


@dataclass(frozen=True, kw_only=True)
class PullTwo(Method):
    """A penalty of 2 x the same."""

    Client = _pull(2.0)


def _owner(hook, half):
    """Two methods that both override an exclusive hook."""

    def call(self, *given):
        return getattr(half, hook)(self, *given)

    return type(f"Own_{hook}", (half,), {hook: call})


@dataclass(frozen=True, kw_only=True)
class OwnSamples(Method):
    """Owns samples."""

    Client = _owner("samples", ClientHalf)


@dataclass(frozen=True, kw_only=True)
class OwnLoss(Method):
    """Owns task_loss."""

    Client = _owner("task_loss", ClientHalf)


@dataclass(frozen=True, kw_only=True)
class OwnTrain(Method):
    """Owns train."""

    Client = _owner("train", ClientHalf)


@dataclass(frozen=True, kw_only=True)
class OwnSelect(Method):
    """Owns select."""

    Server = _owner("select", ServerHalf)


@dataclass(frozen=True, kw_only=True)
class OwnTested(Method):
    """Owns tested."""

    Server = _owner("evaluated", ServerHalf)


@dataclass(frozen=True, kw_only=True)
class Observer(Method):
    """Sees steps and changes nothing."""

    Client = _owner("observe", ClientHalf)


@dataclass(frozen=True, kw_only=True)
class Plain(Method):
    """Needs plain SGD."""

    needs: ClassVar = frozenset({"plain_sgd"})


@dataclass(frozen=True, kw_only=True)
class LateToSpeak(Method):
    """Sends, by client, a view of what the host holds at the end of a client's phase."""

    replies: ClassVar = {"weights": "by_client"}

    class Client(ClientHalf):
        def finish(self, client, delta):
            return delta, {"weights": Term(client.model.parameters)}

    class Server(ServerHalf):
        def update(self, server, delta, reply):
            LOG.append((server.parameters.clone(), {k: v.clone() for k, v in reply["weights"].items()}))
            return delta


# for the contract grid: one that does much aside and changes nothing, one whose result depends on all its draws


class _Looker(ClientHalf):
    def begin_task(self, client):
        self._look(client)

    def start(self, client, message):
        self._look(client)

    def observe(self, step):
        self._look(step.client)

    def look(self, client, message):
        self._look(client)
        client.generator(self.name).random(3)

    def _look(self, client):
        with client.rng_scope(self.name):
            torch.rand(3)


class _LookerServer(ServerHalf):
    def prepare(self, server):
        yield Request("look")

    def conclude(self, server):
        yield Request("look")
        yield Request("look")

    def end_task(self, server):
        yield Request("look", to="everyone")


@dataclass(frozen=True, kw_only=True)
class Bystander(Method):
    """Draws aside in every place, asks the cohort three times a round, and changes no bit."""

    neutral: ClassVar = {}
    Client = _Looker
    Server = _LookerServer


@dataclass(frozen=True, kw_only=True)
class Noise(Method):
    """Adds noise from its own streams to gradients and to the model: every one of its draws shows in the result."""

    scale: float = 0.01
    replies: ClassVar = {"noise": "mean"}
    neutral: ClassVar = {"scale": 0.0}

    class Client(ClientHalf):
        def gradient(self, step, gradient):
            with step.client.rng_scope(self.name):
                noise = torch.randn_like(gradient)
            return gradient.add_(noise, alpha=self.method.scale)

        def draw(self, client, message):
            size = len(client.model.parameters)
            drawn = torch.from_numpy(client.generator(self.name).random(size))
            return {"noise": Term(torch.randn(size) + drawn.float())}

    class Server(ServerHalf):
        def __init__(self, name, knobs):
            super().__init__(name, knobs)
            self.noise = None

        def prepare(self, server):
            reply = yield Request("draw")
            self.noise = reply["noise"]

        def update(self, server, delta, reply):
            return Delta(delta.parameters + self.method.scale * self.noise.to(delta.parameters.dtype), delta.buffers)


# methods whose server halves draw; `LOG` has what they drew


class _DrawingServer(ServerHalf):
    def __init__(self, name, knobs):
        super().__init__(name, knobs)
        self.noise = torch.zeros(())

    def announce(self, server):
        return self._draw(server), ()

    def update(self, server, delta, reply):
        self.noise = self.noise + self._draw(server) + torch.from_numpy(server.generator(self.name).random(3)).float()
        server.record_image("noise", self.noise.abs().frac().expand(2, 1, 4, 3), [str(server.round), "noise"])
        noise = self.method.scale * self.noise.sum().to(delta.parameters.dtype)
        return Delta(delta.parameters + noise, delta.buffers)

    def _draw(self, server):
        with server.rng_scope(self.name):
            LOG.append((server.round, torch.rand(3)))
        return LOG[-1][1]


class _DrawnTo(ClientHalf):
    def start(self, client, message):
        self.message = message

    def gradient(self, step, gradient):
        return gradient.add_(self.message[step.number % 3], alpha=self.method.scale)


@dataclass(frozen=True, kw_only=True)
class Drawing(Method):
    """Its server half draws what it mails and what it adds to the model, and records a picture of it."""

    scale: float = 1e-4
    replies: ClassVar = {"level": "mean"}
    Client = _DrawnTo
    Server = _DrawingServer


class _DrawingPlans(_DrawingServer):
    def _plan(self, server):
        self._draw(server)
        with server.rng_scope(self.name):
            for _ in range(2):
                LOG.append((server.round, torch.rand(3)))
                reply = yield Request("level", LOG[-1][1])
                self.noise = self.noise + reply["level"]

    prepare = conclude = end_task = _plan


class _AskedTo(_DrawnTo):
    def level(self, client, message):
        return {"level": Term(torch.rand(3) + message)}


@dataclass(frozen=True, kw_only=True)
class DrawingInPlans(Drawing):
    """And in its plans, also while it waits for clients that draw too."""

    Client = _AskedTo
    Server = _DrawingPlans


class _ThreadsServer(ServerHalf):
    def announce(self, server):
        server.record("announce", torch.get_num_threads())
        return None, ()

    def prepare(self, server):
        server.record("before", torch.get_num_threads())
        reply = yield Request("threads")
        server.record("meanwhile", reply["threads"])
        server.record("after", torch.get_num_threads())


@dataclass(frozen=True, kw_only=True)
class Threads(Method):
    """Records the number of torch's threads at the server and, meanwhile, at the clients."""

    replies: ClassVar = {"threads": "mean"}
    Server = _ThreadsServer

    class Client(ClientHalf):
        def threads(self, client, message):
            return {"threads": Term(torch.tensor(float(torch.get_num_threads())))}

        def finish(self, client, delta):
            client.record("phase", torch.get_num_threads())
            return delta, {}


# methods of which a rehearsal cannot show what a run does


@dataclass(frozen=True, kw_only=True)
class Watchful(Method):
    """Its client half looks at values: at labels to choose samples, at the update to decide whether to send it."""

    replies: ClassVar = {"update": "mean"}

    class Client(ClientHalf):
        def samples(self, client):
            _, y = client.samples(client.arrived)
            return client.arrived[: 4 * (1 + y.max().item() % 2)]

        def finish(self, client, delta):
            return delta, {"update": Term(delta.parameters)} if delta.parameters.norm() > 0.1 else {}


@dataclass(frozen=True, kw_only=True)
class Curious(Method):
    """Its server half looks at the model."""

    class Server(ServerHalf):
        def select(self, server):
            server.record("norm", server.parameters.norm())
            return server.present if server.parameters.norm() > 0 else ()


@dataclass(frozen=True, kw_only=True)
class Failing(Method):
    """Its server half fails."""

    class Server(ServerHalf):
        def announce(self, server):
            raise ValueError("no\nway")


@dataclass(frozen=True, kw_only=True)
class RandomCache(ReFed):
    """FedAvg with a random cache, Re-Fed's baseline."""

    importance: str = "random"


dann = RandomCache  # whose draws are then those of the method of this name


@dataclass(frozen=True, kw_only=True)
class Alone(Method):
    """Client 0 trains in round 1, and nobody else ever."""

    class Server(ServerHalf):
        def select(self, server):
            return [0] if server.round == 1 else ()
