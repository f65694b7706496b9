"""CFeD: some clients learn the new task, others review old tasks on data without labels. Ma et al., IJCAI 2022.

"Continual federated learning based on knowledge distillation". The defaults are those of the paper's code: review_share
.4, weight .1 and temperature 2. In Fed-A-GEM's Table 1 the data without labels are CIFAR-100's for CIFAR-10 and the
other way round. As here, the server distills nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt, Le, doc
from torch import Tensor

from raysim.algorithms.parts.distillation import distillation_loss
from raysim.api import Broadcast, Client, ClientHalf, Method, Server, ServerHalf, Step

NO_LABEL = -100


@dataclass(frozen=True, kw_only=True)
class CFeD(Method):
    """CFeD: a part of the cohort distills the old model on unlabeled data (Ma et al., IJCAI 2022)."""

    review_share: Annotated[float, Ge(0), Le(1), doc("the part of a cohort that reviews, from task 2 on")] = 0.4
    weight: Annotated[float, Gt(0), doc("of a reviewer's loss; without effect under Adam")] = 0.1
    temperature: Annotated[float, Gt(0), doc("T: what both models' logits are divided by")] = 2.0

    neutral: ClassVar = {"review_share": 0.0}
    needs: ClassVar = frozenset({"server_boundaries", "barrier", "unlabelled", "one_head", "classes"})

    def learners(self, cohort: int) -> int:
        """Return how many of a cohort learn.

        With 0 < review_share < 1, at least one learns, and of two or more at least one reviews.
        """
        learners = round((1 - self.review_share) * cohort)
        if 0 < self.review_share < 1:
            return min(max(learners, 1), max(cohort - 1, 1))
        return learners

    class Client(ClientHalf):
        """Learns as in FedAvg, or reviews if the server says so."""

        method: CFeD
        reviews: bool = False

        def start(self, client: Client, message: tuple[int, ...]) -> None:
            """Store whether this client reviews in this round."""
            self.reviews = client.id in message

        def batches(self, client: Client) -> Iterator[tuple[Tensor, Tensor]] | None:
            """Return a reviewer's epoch over its part of the unlabelled data, in random order."""
            return self._review(client) if self.reviews else None

        def _review(self, client: Client) -> Iterator[tuple[Tensor, Tensor]]:
            rows = client.unlabelled
            rows = rows[torch.from_numpy(client.generator(self.name).permutation(len(rows)))]
            for part in client.batches(len(rows)):
                x = client.unlabelled_samples(rows[part])
                yield x, torch.full((len(x),), NO_LABEL, device=x.device)

        def task_loss(self, step: Step) -> Tensor:
            """Return the cross-entropy or, in a review, weight * KD(the task's first model, student; T)."""
            client, method = step.client, self.method
            if not self.reviews:
                return client.loss(step.logits, step.y)
            with client.rng_scope(self.name):
                teacher = client.model.logits(step.x, *client.from_server(self.name))
            return method.weight * distillation_loss(teacher, step.logits, method.temperature)

    class Server(ServerHalf):
        """Divides each cohort, and broadcasts the model that the task began with."""

        method: CFeD
        task: int = 0
        first: tuple[Tensor, Tensor] | None = None

        def announce(self, server: Server) -> tuple[tuple[int, ...], Sequence[Broadcast]]:
            """Say who reviews; broadcast the model that ended the previous task, with its BatchNorm statistics."""
            if server.task != self.task:
                self.task, self.first = server.task, (server.parameters, server.buffers)
            if self.first is None:
                return (), ()
            order = server.generator(self.name).permutation(len(server.cohort))[
                self.method.learners(len(server.cohort)) :
            ]
            reviewers = tuple(sorted(server.cohort[place] for place in order))
            return reviewers, [Broadcast(self.name, self.task, self.first)]
