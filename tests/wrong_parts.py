"""Components that break the rules of their kinds; test_wrong_parts.py names them and says what each is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from raysim.api import Broadcast, ClientHalf, Delta, Method, Request, ServerHalf, Term, Weights
from raysim.data.dataset import Dataset, Split
from raysim.data.scenario import Task
from raysim.memory import Policy

ROWS = np.arange(9)
CUT = slice(-1)
NOTHING: Any = None  # of no type, as a user's own code may have it where something else belongs


def parts(labels: Any, clients: int, generator: Any, *, wrong: str = "raises") -> Any:
    return {
        "type": [labels.astype(float)] * clients,
        "count": [ROWS],
        "twice": [np.array([7])] * clients,
        "outside": [np.array([len(labels)])] * clients,
        "below": [np.array([-1])] + [ROWS[:0]] * (clients - 1),
        "ragged": [[[1], [2, 3]]] * clients,
        "none": None,
        "empty": [ROWS[:0]] * clients,
        "draws": np.array_split(np.random.permutation(len(labels)), clients) if wrong == "draws" else 0,
    }[wrong]


def tasks(dataset: Dataset, tasks: int, generator: Any, *, wrong: str = "raises") -> Any:
    classes, good = tuple(range(dataset.classes)), ROWS
    made = {
        "none": None,
        "count": [Task("x", classes, None, good, good)],
        "type": ["first", "second"],
        "classes": [Task("x", NOTHING, None, good, good)] * tasks,
        "foreign": [Task("x", (0,), None, good, good)] * tasks,
        "outside": [Task("x", classes, None, good + 10**6, good)] * tasks,
        "twice": [Task("x", classes, None, good // 2, good)] * tasks,
        "floats": [Task("x", classes, None, good, good / 1.0)] * tasks,
        "pixels": [Task("x", classes, np.array([0, 1]), good, good)] * tasks,
    }
    return made[wrong]


class Optimizer:
    default_lr = 0.1

    def __init__(self, *, wrong: str = "raises") -> None:
        self.wrong = wrong
        if wrong == "vectors":
            self.vectors = 3
        if wrong == "stepless":
            self.step = NOTHING

    def step(self, parameters: Tensor, gradient: Tensor, lr: float) -> Any:
        match self.wrong:
            case "raises":
                raise ZeroDivisionError("mine")
            case "infinite":
                parameters.fill_(torch.inf)
            case "later":
                parameters.fill_(torch.nan if len(parameters) > 3 else 0.0)
            case "returns":
                return parameters - lr * gradient
            case "gradient":
                gradient.mul_(2)
            case "rebinds":
                parameters = parameters - lr * gradient
        return None


def rate(lr: float, progress: Any, *, wrong: str = "raises") -> Any:
    values = {"none": None, "nan": float("nan"), "negative": -lr, "infinite": float("inf"), "text": "small"}
    return values[wrong] if progress.round == 2 else lr


class Memory(Policy):
    def __init__(self, capacity: int, *, wrong: str = "raises") -> None:
        super().__init__(capacity)
        self.wrong = wrong
        if wrong == "state":
            self.table = np.zeros(3)

    def choose(self, labels: Any, tasks: Any, draws: Any) -> Any:
        slots = np.full(len(labels), -1)
        later = {
            "gap": np.arange(len(labels)) + 1,
            "outside": slots + 10**6,
            "floats": slots / 1.0,
            "fewer": slots[CUT],
        }
        if self.wrong in ("none", "raises"):
            return {"none": None}[self.wrong]
        return slots if len(labels) == 3 else later[self.wrong]


def augmented(images: Tensor, numbers: Tensor, *, wrong: str = "raises") -> Any:
    if len(images) == 2:  # tried before the run starts
        return images
    return {"shape": images[CUT], "dtype": images.double(), "nan": images.float() * torch.nan, "none": None}[wrong]


def sampled(server: Any, count: int, draws: Any, *, wrong: str = "raises") -> Any:
    return {"unknown": [0, 99], "twice": [1, 1], "none": None, "nobody": [], "names": ["first", "second"]}[wrong]


class Network(nn.Module):
    def __init__(self, features: int, classes: int, wrong: str) -> None:
        super().__init__()
        self.only = nn.Linear(features, classes + (wrong == "classes"))
        self.wrong = wrong

    def forward(self, x: Tensor) -> Any:
        out = self.only(x.flatten(1))
        if self.wrong == "infinite":
            return out / 0
        if self.wrong == "detached" or (self.training and self.wrong == "detached later"):
            return out.detach()
        if not self.training:
            return out
        return {"rows": out[CUT], "nan": out * torch.nan, "none": None}[self.wrong]


def network(shape: tuple[int, ...], classes: int, *, wrong: str = "raises") -> Any:
    return 3 if wrong == "type" else Network(int(np.prod(shape)), classes, wrong)


def data(root: Path, download: bool, *, wrong: str = "raises") -> Any:
    x, y = np.zeros((40, 1, 8, 8), np.uint8), np.arange(40) % 10
    tensor: Any = torch.from_numpy(x)
    many: Any = 10.0
    made = {
        "labels": lambda: Dataset(Split(x, y + 1), Split(x, y), 10),
        "shapes": lambda: Dataset(Split(x, y), Split(x[..., 1:], y), 10),
        "dtype": lambda: Dataset(Split(x / 1.0, y), Split(x, y), 10),
        "nan": lambda: Dataset(Split(np.float32(x) * np.nan, y), Split(x, y), 10),
        "uneven": lambda: Dataset(Split(x, y[1:]), Split(x, y), 10),
        "tensors": lambda: Dataset(Split(tensor, y), Split(x, y), 10),
        "classes": lambda: Dataset(Split(x, y), Split(x, y), many),
        "none": lambda: None,
        "draws": lambda: Dataset(Split(x, np.random.randint(0, 10, 40)), Split(x, y), 10),
    }
    return made[wrong]()


def stream(client: int, start: int, *, wrong: str = "raises") -> Iterator[Any]:
    x = np.zeros(64, np.float32)
    for position in count(start):
        good = x, position % 10
        wrongs: dict[str, Any] = {
            "pair": 3,
            "shape": (x[CUT], 0),
            "label": (x, 10),
            "text": (x, "one"),
            "nan": (x + np.nan, 0),
        }
        yield wrongs[wrong] if position == 7 else good  # of the second window


class _Told(Method):
    wrong: str = "raises"
    replies: ClassVar = {"note": "mean"}


@dataclass(frozen=True, kw_only=True)
class ClientSide(_Told):
    """ClientSide: client 1 returns something wrong in round 3, from the hook that `wrong` begins with."""

    wrong: str = "finish none"

    class Client(ClientHalf):
        method: ClientSide

        def _is(self, client: Any, what: str) -> bool:
            return (client.id, client.round, self.method.wrong) == (1, 3, what)

        def finish(self, client: Any, delta: Delta) -> Any:
            hook, _, wrong = self.method.wrong.partition(" ")
            note = Term(torch.ones(2))
            if hook != "finish" or not self._is(client, self.method.wrong):
                return delta, {"note": note}
            made: Mapping[str, Any] = {
                "none": None,
                "delta": (delta.parameters, {}),
                "shape": (Delta(delta.parameters[CUT], delta.buffers), {}),
                "nan": (Delta(delta.parameters * torch.nan, delta.buffers), {}),
                "list": (delta, [note]),
                "key": (delta, {"not": note}),
                "value": (delta, {"note": 3.0}),
                "weight": (delta, {"note": Term(torch.ones(2), -1.0)}),
                "term": (delta, {"note": Term(torch.tensor([1.0, torch.inf]))}),
            }
            return made[wrong]

        def penalty(self, step: Any) -> Any:
            if self._is(step.client, "penalty detached"):
                return step.client.model.parameters.square().sum()
            if self._is(step.client, "penalty shape"):
                return step.logits.sum(1)
            if self._is(step.client, "penalty nan"):
                return step.logits.sum() * torch.nan
            return None if self._is(step.client, "penalty none") else step.loss.new_zeros(())

        def gradient(self, step: Any, gradient: Tensor) -> Any:
            if self._is(step.client, "gradient none"):
                return None
            return gradient[CUT] if self._is(step.client, "gradient shape") else gradient

        def batch(self, step: Any) -> Any:
            if self._is(step.client, "batch rows"):
                step.x = torch.cat([step.x, step.x])
            return (step.x, step.y) if self._is(step.client, "batch pair") else None

        def samples(self, client: Any) -> Any:
            if self._is(client, "samples type"):
                return client.arrived.float()
            return client.arrived + 10**6 if self._is(client, "samples outside") else client.arrived

        def task_loss(self, step: Any) -> Any:
            loss = step.client.loss(step.logits, step.y)
            loss = loss.detach() if self._is(step.client, "task_loss detached") else loss
            return loss.expand(4) if self._is(step.client, "task_loss shape") else loss

        def batches(self, client: Any) -> Any:
            if self._is(client, "batches type"):
                return 3
            return [(torch.zeros(4, 64), torch.zeros(3))] if self._is(client, "batches rows") else None

        def tell(self, client: Any, message: Any) -> Any:
            if self._is(client, "tell records"):
                client.record("note", "a text")
            if self._is(client, "tell key"):
                return {"not": Term(torch.ones(2))}
            return {"note": Term(torch.full((2,), torch.nan if self._is(client, "tell nan") else 1.0))}

    class Server(ServerHalf):
        def conclude(self, server: Any) -> Any:
            yield Request("tell")


@dataclass(frozen=True, kw_only=True)
class ServerSide(_Told):
    """ServerSide: the server returns something wrong in round 3, from the hook that `wrong` begins with."""

    wrong: str = "update none"

    class Client(ClientHalf):
        def name(self, client: Any, message: Any) -> Any:
            return {"note": Term(torch.ones(2))}

    class Server(ServerHalf):
        method: ServerSide

        def _say(self, server: Any, hook: str, good: Any, **wrongs: Any) -> Any:
            own, _, wrong = self.method.wrong.partition(" ")
            return wrongs[wrong] if (own, server.round) == (hook, 3) else good

        def select(self, server: Any) -> Any:
            return self._say(server, "select", [0, 1], unknown=[0, 7], twice=[0, 0], none=None)

        def announce(self, server: Any) -> Any:
            good, again = ((None, [Broadcast(self.name, 0, value)]) for value in (torch.zeros(2), torch.ones(2)))
            return self._say(server, "announce", good, none=None, again=again, broadcasts=(None, [torch.ones(2)]))

        def update(self, server: Any, delta: Delta, reply: Any) -> Any:
            short = Delta(delta.parameters[CUT], delta.buffers)
            infinite = Delta(delta.parameters / 0, delta.buffers)
            double = Delta(delta.parameters.double(), delta.buffers)
            return self._say(server, "update", delta, none=None, shape=short, double=double, nan=infinite)

        def evaluated(self, server: Any) -> Any:
            short = Weights(server.parameters[CUT], server.buffers, server.integers)
            return self._say(server, "evaluated", None, type=server.parameters, shape=short)

        def conclude(self, server: Any) -> Any:
            ask = self._say(server, "conclude", None, type="tell", op=Request("tell"), to=Request("name", to=[7]))
            if ask is not None:
                yield ask


@dataclass(frozen=True, kw_only=True)
class Averages(Method):
    """Averages: declares a reduction that there is not."""

    replies: ClassVar = {"note": "average"}
