"""iCaRL: exemplars near their class's mean, distillation, nearest means. Rebuffi et al., CVPR 2017, arXiv 1611.07725.

"Incremental classifier and representation learning". With phi(x) = f(x) / ||f(x)||, f being what enters the network's
head, a class is represented by the mean of phi over its exemplars, and a sample gets the class whose mean is nearest.
Federated as in Fed-A-GEM's Table 1 and C-FLAG's Table 7: each client keeps exemplars of its own data, up to
memory.capacity, the teacher is the global model that ended the last task, and means are over all clients' exemplars.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt
from torch import Tensor
from torch.nn import functional

from raysim.algorithms.parts.distillation import distillation_loss
from raysim.api import (
    Ask,
    Client,
    ClientHalf,
    MemoryUse,
    Method,
    Plan,
    Post,
    Server,
    ServerHalf,
    Step,
    Term,
    Terms,
    Weights,
    to_device,
)

NEVER = -1e9  # the bias of a class without exemplars


@dataclass(frozen=True, kw_only=True)
class ICarl(Method):
    """iCaRL: herded exemplars, distillation and the nearest mean (Rebuffi et al., CVPR 2017, arXiv 1611.07725)."""

    loss: Literal["bce", "ce_kd"] = "bce"  # one sigmoid per class, or cross-entropy with distilled softmax
    classifier: Literal["nme", "linear"] = "nme"  # the nearest mean of exemplars, or the network's own head
    strength: Annotated[float, Ge(0)] = 1.0  # weight of the distillation in ce_kd
    temperature: Annotated[float, Gt(0)] = 2.0  # T of the distillation in ce_kd
    herding: bool = True  # false chooses exemplars at random

    needs: ClassVar = frozenset({"server_boundaries", "earlier_logits"})
    memory: ClassVar = MemoryUse(policies=("importance",), fills=("boundary",), per=("client",), by_class=True)
    replies: ClassVar = {"features": "sum"}

    def head_parts(self) -> int:
        """Return 2 where the head is replaced, 1 where only what enters it is looked at."""
        return 2 if self.classifier == "nme" else int(self.herding)

    class Client(ClientHalf):
        """Trains on new data and exemplars; chooses exemplars at a task's end."""

        knobs: ICarl
        old: Tensor | None = None  # int64: the classes of earlier tasks alone
        seen: Tensor | None = None  # int64: these, and the present ones

        def start(self, client: Client, mail: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
            """Store which classes there are."""
            device = client.model.device
            self.old, self.seen = (to_device(torch.tensor(part, dtype=torch.int64), device) for part in mail)

        def samples(self, client: Client) -> Tensor:
            """Return the exemplars and what has arrived."""
            assert client.memory is not None
            return torch.cat([client.memory.entries().positions, client.arrived])

        def task_loss(self, step: Step) -> Tensor:
            """Return the loss of Algorithm 3, or the cross-entropy with the distillation of the old classes."""
            client, knobs = step.client, self.knobs
            assert self.old is not None
            assert self.seen is not None
            teacher = None
            if len(self.old):
                with client.aside(self.name):
                    teacher = client.model.logits(step.x, *client.post(self.name))
            if knobs.loss == "bce":
                return binary_loss(step.logits, step.y, teacher, self.old, self.seen)
            loss = client.cross_entropy(step.logits, step.y)
            if teacher is None or not knobs.strength:
                return loss
            known, learnt = (logits.index_select(1, self.old) for logits in (teacher, step.logits))
            return loss + knobs.strength * distillation_loss(known, learnt, knobs.temperature)

        def choose(self, client: Client, mail: None) -> Terms:
            """Choose exemplars of the finished task, Algorithm 4, shorten the others' lists, Algorithm 5.

            Send the sums of phi over the exemplars of each class [classes, d], at the model that ended the task.
            """
            memory = client.memory
            assert memory is not None
            stored = memory.entries().positions
            held, new = client.labels(stored), client.labels(client.arrived)
            tasks = torch.as_tensor(client.stream.locate(stored)[1]).expand(len(stored))
            labels = torch.cat([held, new]).unique().tolist()
            room = memory.kind.capacity // max(len(labels), 1)
            chosen = []
            for label in labels:
                lists = [stored[(held == label) & (tasks == task)] for task in tasks.unique().tolist()]
                lists.append(self._exemplars(client, client.arrived[new == label], room))
                chosen.append(in_turn(lists)[:room])
            memory.replace(torch.cat([stored[:0], *chosen]))
            if self.knobs.classifier == "linear":
                return {}
            return {"features": Term(self._class_sums(client))}

        def _exemplars(self, client: Client, positions: Tensor, size: int) -> Tensor:
            """Return the positions of up to so many exemplars of one class, the best first."""
            if not (self.knobs.herding and client.computes and len(positions)):
                return positions[torch.from_numpy(client.generator(self.name).permutation(len(positions))[:size])]
            return positions[herd(self._phi(client, positions), size)]

        def _phi(self, client: Client, positions: Tensor) -> Tensor:
            """Return phi [n, d], float64, of samples at the present model, in evaluation mode, not augmented."""
            model, head = client.model, client.model.head[0]
            rows = [model.parameters.new_zeros(0, model.widths[head])]
            with client.aside(self.name):
                for part in client.batches(len(positions), single=True):
                    x, _ = client.show(positions[part])
                    rows.append(model.inputs(x, model.parameters, model.buffers, [head])[head])
            return functional.normalize(torch.cat(rows).double(), dim=1)

        def _class_sums(self, client: Client) -> Tensor:
            assert client.memory is not None
            model, positions = client.model, client.memory.entries().positions
            sums = torch.zeros_like(model.named(model.parameters)[model.head[0]], dtype=torch.float64)
            if client.computes:
                sums.index_add_(0, to_device(client.labels(positions), model.device), self._phi(client, positions))
            return sums.to(model.dtype)

    class Server(ServerHalf):
        """Posts the teacher, and keeps the classes' means."""

        knobs: ICarl
        task: int = 0
        teacher: tuple[Tensor, Tensor] | None = None
        means: Tensor | None = None  # [classes, d], of norm 1, zero for classes without exemplars

        def announce(self, server: Server) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], Sequence[Post]]:
            """Say which classes are old and which were seen; post the model that ended the previous task."""
            present = server.present_classes()
            if server.task != self.task:
                self.task, self.teacher = server.task, (server.parameters, server.buffers)
            earlier = server.earlier_classes() if self.task else ()
            old = tuple(label for label in earlier if label not in present)
            posts = [Post(self.name, self.task, self.teacher)] if old else []
            return (old, tuple(sorted({*old, *present}))), posts

        def end_task(self, server: Server) -> Plan:
            """Have everyone present choose, and take the means of what was chosen."""
            reply = yield Ask("choose", to="everyone")
            if "features" in reply and server.computes:
                self.means = functional.normalize(reply["features"], dim=1)

        def tested(self, server: Server) -> Weights | None:
            """Return the model with the nearest mean in place of its head, once there are means.

            Of means M_y of norm 1, argmin_y ||M_y - phi||^2 = argmax_y M_y . phi = argmax_y M_y . f: a linear layer.
            """
            if self.means is None:
                return None
            parameters = server.parameters.clone()
            weight, bias = (server.network.named(parameters)[name] for name in server.network.head)
            weight.copy_(self.means)
            bias.copy_(torch.where(self.means.any(1), 0.0, NEVER))
            return Weights(parameters, server.buffers, server.integers)


def binary_loss(logits: Tensor, y: Tensor, teacher: Tensor | None, old: Tensor, seen: Tensor) -> Tensor:
    """Return the binary cross-entropy of Algorithm 3, the mean over rows and the classes seen.

    The target is the teacher's sigmoid for old classes, for exemplars too, and whether it is the label for the others.
    """
    target = functional.one_hot(y, logits.shape[1]).to(logits.dtype)
    if teacher is not None:
        target[:, old] = teacher[:, old].sigmoid()
    return functional.binary_cross_entropy_with_logits(logits[:, seen], target[:, seen])


def herd(features: Tensor, size: int) -> Tensor:
    """Return the indices (int64) of up to so many rows of features [n, d] whose running mean stays nearest to the mean.

    Algorithm 4: each is the row, not chosen yet, with which the mean of those chosen is nearest; the first of equals.
    """
    mean, total = features.mean(0), torch.zeros_like(features[0])
    free, chosen = torch.ones(len(features), dtype=torch.bool, device=features.device), list[int]()
    for number in range(1, min(size, len(features)) + 1):
        distances = (mean - (total + features) / number).norm(dim=1)
        best = int(distances.where(free, torch.inf).argmin())
        total, free[best] = total + features[best], False
        chosen.append(best)
    return torch.tensor(chosen, dtype=torch.int64)


def in_turn(lists: Sequence[Tensor]) -> Tensor:
    """Return what several lists (int64) hold, one of each in turn: where a class came in several tasks."""
    rounds = zip_longest(*(part.tolist() for part in lists))
    return torch.tensor([one for turn in rounds for one in turn if one is not None], dtype=torch.int64)
