"""CCVR: the head, calibrated at a task's end on features drawn from Gaussians of the classes. Luo et al., NeurIPS 2021.

"No fear of heterogeneity: classifier calibration for federated learning with non-IID data", arXiv 2106.05001. Clients
with unequal classes disagree most in the head. So after training the server trains the head once more, on the classes
in equal shares. z [d] is what enters the head. At the model that ends a task, each client sends of each class

    n_k,    sum z,    sum z z^T.

All clients' sums give the class's mean and covariance, those of all its samples. The server draws virtual features from
this Gaussian, as many for each class, and trains the head on them by the cross-entropy. Rounds are those of FedAvg.

The paper has one task, and clients that send means and covariances, which give the same Gaussian. The server's epochs
and rates are those of its baseline in the code of LoRM (Salami et al., ICLR 2025).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import cos, pi
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt, Lt, doc
from torch import Tensor
from torch.nn import functional

from raysim.algorithms.parts.class_moments import MOMENTS, Moments
from raysim.algorithms.parts.finished_task import finished_task
from raysim.algorithms.parts.gram_sums import head_inputs
from raysim.algorithms.parts.head_training import Batch, trained_head
from raysim.api import Client, ClientHalf, Method, Plan, Repeats, Request, Server, ServerHalf, Term, Terms, Weights


@dataclass(frozen=True, kw_only=True)
class Ccvr(Method):
    """CCVR: calibrates the head on features drawn from Gaussians of the classes (Luo et al., NeurIPS 2021)."""

    virtual: Annotated[
        int, Ge(1), Repeats("samples"), doc("virtual features of each class; the paper has 100 to 2000")
    ] = 500
    covariance: Annotated[
        Literal["full", "diagonal"], doc("the Gaussians' covariance, or variances alone, which are 1 / d as large")
    ] = "full"
    earlier: Annotated[bool, doc("whether classes of earlier tasks count, with the sums of their own task")] = True
    epochs: Annotated[int, Ge(0), Repeats("steps"), doc("the server's epochs on the virtual features")] = 5
    lr: Annotated[float, Gt(0), doc("the rate of the first epoch, of SGD; it falls by a cosine to zero")] = 0.01
    momentum: Annotated[float, Ge(0), Lt(1), doc("the momentum of these epochs")] = 0.9
    batch_size: Annotated[int, Ge(1), doc("virtual features of a step")] = 256

    neutral: ClassVar = {"epochs": 0}
    needs: ClassVar = frozenset({"classes", "one_head"})
    replies: ClassVar = {"counts": "total", "sums": "total", "squares": "total"}

    @property
    def moments(self) -> Moments:
        """How covariances are summed."""
        return MOMENTS[self.covariance]

    def head_parts(self) -> int:
        """Return 1: the head's weight is trained at the server, and its bias if it has one."""
        return 1

    class Client(ClientHalf):
        """Sends sums of its features by class."""

        method: Ccvr

        def moments(self, client: Client, message: tuple[int, ...]) -> Terms:
            """Send the sums over the finished task's samples of these classes, in float64."""
            positions = finished_task(client)
            if not len(positions):
                return {}
            blocks = head_inputs(client, positions, self.name, alone=False)
            z, y = (torch.cat(parts) for parts in zip(*blocks, strict=True))
            rows = [z[y == label].double() for label in message]
            return {
                "counts": Term(torch.tensor([len(one) for one in rows])),
                "sums": Term(torch.stack([one.sum(0) for one in rows])),
                "squares": Term(torch.stack([self.method.moments.squares(one) for one in rows])),
            }

    class Server(ServerHalf):
        """Keeps the sums of the classes, and calibrates the head at each task's end."""

        method: Ccvr

        def __init__(self, name: str, method: Ccvr) -> None:
            super().__init__(name, method)
            self.sums: dict[int, tuple[Tensor, Tensor, Tensor]] = {}  # class -> n, sum [d], sum of squares, float64

        def end_task(self, server: Server) -> Plan:
            """Request the sums of all present clients, and train the head on draws from their Gaussians."""
            if not self.method.epochs:
                return
            present = server.present_classes()
            reply = yield Request("moments", present, to="everyone")
            if not self.method.earlier:
                self.sums = {}
            if "counts" in reply:
                for label, *sums in zip(present, reply["counts"], reply["sums"], reply["squares"], strict=True):
                    if sums[0]:
                        self.sums[label] = sums[0].double(), sums[1].clone(), sums[2].clone()
            if self.sums:
                self._calibrate(server)

        def _calibrate(self, server: Server) -> None:
            """Train the head on as many virtual features of each class, among these classes."""
            columns = torch.tensor(sorted(self.sums))
            calibrated = trained_head(
                server.network,
                server.parameters,
                self._batches(server),
                lambda logits, y: functional.cross_entropy(logits.index_select(1, columns), y),
                self.method.momentum,
            )
            server.replace_model(Weights(calibrated, server.buffers, server.integers))

        def _batches(self, server: Server) -> Iterator[Batch]:
            """Yield the steps. Labels are the places of the classes in ascending order."""
            method, draws = self.method, server.generator(self.name)
            drawn = [
                method.moments.draw(*self.sums[label], method.virtual, draws).to(server.parameters.dtype)
                for label in sorted(self.sums)
            ]
            x, y = torch.cat(drawn), torch.arange(len(drawn)).repeat_interleave(method.virtual)
            for epoch in range(method.epochs):
                rate = method.lr * (1 + cos(pi * epoch / method.epochs)) / 2
                for batch in torch.from_numpy(draws.permutation(len(x))).split(method.batch_size):
                    yield x[batch], y[batch], rate
