"""HGP: FedAvg of prompts and head, and a server that balances the head with Gaussians of classes. Salami et al., 2024.

"Federated class-incremental learning with hierarchical generative prototypes", arXiv 2406.02447. Clients tune prefixes
of attention on a frozen transformer. What is biased is then the head: towards new classes, and towards a client's own.
So each client also sends Gaussians of its features z [d] by class: the number of samples n, the mean and the variance.
A class is the mixture of its clients' Gaussians, with weights n_k / sum_k n_k. In every round the server averages the
models. Then it trains the head for some epochs on features that it draws from all classes so far, by the loss

    CE(logits / (temperature || logits ||), y),    logits of the classes so far alone.

Gaussians of earlier tasks stay as their last round left them. The defaults are those of the authors' code, which draws
with three times the variances. Its clients have a loss over the classes of the task: training.logits=task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from annotated_types import Ge, Gt, Lt, doc
from torch import Tensor
from torch.nn import functional

from raysim.algorithms.parts.classes_so_far import classes_so_far
from raysim.algorithms.parts.gram_sums import head_inputs
from raysim.algorithms.parts.head_training import Batch, trained_head
from raysim.api import (
    Broadcast,
    Client,
    ClientHalf,
    Delta,
    Method,
    Repeats,
    Server,
    ServerHalf,
    Term,
    Terms,
)

TINY = 1e-8  # added to variances
SMALL = 1e-12  # added to logits and their norms, so that logits of zero have a loss


@dataclass(frozen=True, kw_only=True)
class Hgp(Method):
    """HGP: the server balances the head with Gaussians of the classes (Salami et al., 2024, arXiv 2406.02447)."""

    rebalance_epochs: Annotated[int, Ge(0), Repeats("steps"), doc("the server's epochs on drawn features")] = 5
    rebalance_lr: Annotated[float, Gt(0), doc("the learning rate of these epochs, of SGD")] = 1e-3
    momentum: Annotated[float, Ge(0), Lt(1), doc("the momentum of these epochs, anew in every round")] = 0.9
    batch_size: Annotated[
        int, Ge(1), Repeats("samples"), doc("drawn features of a step; an epoch has a step for each class")
    ] = 256
    temperature: Annotated[float, Gt(0), doc("of the softmax, for logits that are divided by their norm")] = 0.1
    spread: Annotated[float, Gt(0), doc("the factor of the variances in draws")] = 3.0
    keeps: Annotated[
        Literal["round", "client"],
        doc("a class has the Gaussians of the last round with it, or the last one of each client"),
    ] = "round"

    neutral: ClassVar = {"rebalance_epochs": 0}
    needs: ClassVar = frozenset({"classes", "one_head", "barrier"})
    replies: ClassVar = {"counts": "by_client", "means": "by_client", "variances": "by_client"}

    def head_parts(self) -> int:
        """Return 1: the head's weight is trained at the server, and its bias if it has one."""
        return 1

    class Client(ClientHalf):
        """Sends Gaussians of its features, at its model after local training."""

        method: Hgp
        present: tuple[int, ...] = ()  # the classes of the present tasks

        def start(self, client: Client, message: tuple[int, ...]) -> None:
            """Take up the present classes."""
            self.present = message

        def finish(self, client: Client, delta: Delta) -> tuple[Delta, Terms]:
            """Send n, mean and variance of each present class. A class with one sample has no variance: n = 0."""
            width = client.model.widths[client.model.head[0]]
            count = torch.zeros(len(self.present), dtype=client.model.dtype, device=client.model.device)
            mean = count.new_zeros(len(self.present), width)
            variance = torch.zeros_like(mean)
            blocks = head_inputs(client, client.arrived, self.name, alone=False)
            z, y = (torch.cat(parts) for parts in zip(*blocks, strict=True))
            for place, label in enumerate(self.present):
                rows = z[y == label].double()
                if len(rows) > 1:
                    count[place] = len(rows)
                    mean[place], variance[place] = rows.mean(0), rows.var(0)
            return delta, {"counts": Term(count), "means": Term(mean), "variances": Term(variance)}

    class Server(ServerHalf):
        """Keeps the Gaussians, and balances the head after each mean of the models."""

        method: Hgp

        def __init__(self, name: str, method: Hgp) -> None:
            super().__init__(name, method)
            # class -> client -> n, mean and variance, [1 + 2 d]
            self.gaussians: dict[int, dict[int, Tensor]] = {}

        def announce(self, server: Server) -> tuple[tuple[int, ...], Sequence[Broadcast]]:
            """Send the present classes."""
            return server.present_classes(), ()

        def update(self, server: Server, delta: Delta, reply: Mapping[str, Any]) -> Delta:
            """Return the mean change, with the change of the head that balances it."""
            self._keep(server, reply)
            if not self.method.rebalance_epochs or not self.gaussians:
                return delta
            columns = torch.tensor(sorted({*classes_so_far(server), *self.gaussians}))
            averaged = server.parameters + delta.parameters
            balanced = trained_head(
                server.network,
                averaged,
                self._batches(server.generator(self.name), columns),
                lambda logits, y: normalized_loss(logits.index_select(1, columns), y, self.method.temperature),
                self.method.momentum,
            )
            server.record("server_steps", self.method.rebalance_epochs * len(self.gaussians))
            return Delta(delta.parameters + (balanced - averaged), delta.buffers)

        def _keep(self, server: Server, reply: Mapping[str, Any]) -> None:
            """Replace the Gaussians of the classes that this round's clients have sent."""
            sent: dict[int, dict[int, Tensor]] = {}
            for client, counts in sorted(reply["counts"].items()):
                rows = torch.cat([counts[:, None], reply["means"][client], reply["variances"][client]], 1)
                for label, row in zip(server.present_classes(), rows, strict=True):
                    if row[0] > 0:
                        sent.setdefault(label, {})[client] = row.clone()
            for label, rows_by_client in sent.items():
                earlier = self.gaussians.get(label, {}) if self.method.keeps == "client" else {}
                self.gaussians[label] = earlier | rows_by_client

        def _batches(self, draws: np.random.Generator, columns: Tensor) -> Iterator[Batch]:
            """Yield the steps: as many in an epoch as there are classes with Gaussians.

            Labels are the places of the drawn classes among `columns`.
            """
            weights, means, variances, labels = mixtures(self.gaussians)
            places = torch.searchsorted(columns, labels)
            deviations = (self.method.spread * (variances + TINY)).sqrt()
            for _ in range(self.method.rebalance_epochs * len(self.gaussians)):
                chosen = torch.from_numpy(draws.choice(len(weights), self.method.batch_size, p=weights))
                noise = torch.from_numpy(draws.standard_normal((len(chosen), means.shape[1])))
                yield means[chosen] + deviations[chosen] * noise, places[chosen], self.method.rebalance_lr


def mixtures(gaussians: Mapping[int, Mapping[int, Tensor]]) -> tuple[np.ndarray, Tensor, Tensor, Tensor]:
    """Return all Gaussians: probabilities [m], means [m, d], variances [m, d] and classes [m], in float64.

    All classes are equally likely. The Gaussians of a class are as likely as their numbers of samples say. The order is
    that of classes, then clients.
    """
    ordered = [(label, [rows[k] for k in sorted(rows)]) for label, rows in sorted(gaussians.items())]
    rows = torch.stack([row for _, of_class in ordered for row in of_class]).double()
    labels = torch.tensor([label for label, of_class in ordered for _ in of_class])
    shares = [torch.stack(of_class)[:, 0].double() for _, of_class in ordered]
    weights = torch.cat([counts / counts.sum() / len(shares) for counts in shares]).numpy()
    means, variances = rows[:, 1:].chunk(2, 1)
    return weights / weights.sum(), means, variances, labels


def normalized_loss(logits: Tensor, y: Tensor, temperature: float) -> Tensor:
    """Return the cross-entropy of logits [n, K] that are divided by their norm and by the temperature."""
    scaled = (logits + SMALL) / (logits.norm(dim=1, keepdim=True) + SMALL) / temperature
    return functional.cross_entropy(scaled, y)
