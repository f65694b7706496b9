"""PILoRA: low-rank additions that are orthogonal between tasks, and prototypes as classifier. Guo et al., ECCV 2024.

"PILoRA: prototype guided incremental LoRA for federated class-incremental learning", arXiv 2401.02094. Every class y
has a prototype c_y, which is trained: here a row of the head's weight. For features f(x) of d numbers, the distances
are d_y(x) = || f(x) - c_y ||^2 / d, and the loss of task t is

    CE(-d, y) + compact mean d_y + sparse || A_t ||_1 + orthogonal sum_{u<t} || A_t A_u^T ||_1

The server averages A and B. A client's prototype of a class weighs more if it is near all clients' mean features m_j.
With D_i = sum_j || c_i - m_j || and r_i = 1 / D_i, rescaled to [0, 1], the weights are softmax(r / temperature).
Each task trains a new A and B on W0 alone. Evaluations use W0 + sum_u B_u A_u, and the nearest prototype.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge, Gt, doc
from torch import Tensor
from torch.nn import functional

from raysim.algorithms.parts.task_adapters import (
    A,
    begin_adapters,
    entries,
    lacks_adapters,
    sum_of_tasks,
    weights_of,
    with_additions,
)
from raysim.api import (
    Broadcast,
    Client,
    ClientHalf,
    Delta,
    FlatModel,
    Method,
    Server,
    ServerHalf,
    Step,
    Term,
    Terms,
    Weights,
    to_device,
)

NEAR = 1e-10  # added to D_i, so that a prototype at all means has a finite weight


@dataclass(frozen=True, kw_only=True)
class PiLora(Method):
    """PILoRA: orthogonal low-rank additions, and prototypes as classifier (Guo et al., ECCV 2024)."""

    compact: Annotated[float, Ge(0), doc("weight of the distance to the prototype of a sample's class")] = 0.001
    sparse: Annotated[float, Ge(0), doc("weight of the sum of A's absolute entries")] = 0.01
    orthogonal: Annotated[float, Ge(0), doc("weight of the products with A of earlier tasks, from task 2 on")] = 0.5
    temperature: Annotated[float, Gt(0), doc("of the softmax that weighs the clients' prototypes")] = 0.2

    needs: ClassVar = frozenset({"classes", "one_head", "barrier"})
    replies: ClassVar = {"prototypes": "by_client", "means": "by_client", "counts": "by_client"}

    def head_parts(self) -> int:
        """Return 2: the head's weight holds the prototypes, and evaluations need its bias."""
        return 2

    def unfit(self, model: FlatModel) -> str | None:
        """Refuse a model without adapters."""
        return lacks_adapters(model)

    class Client(ClientHalf):
        """Trains A, B and prototypes, and sends the means of its features."""

        features: ClassVar = True
        transient: ClassVar = ClientHalf.transient | {"earlier"}
        method: PiLora
        present: tuple[int, ...] = ()  # the classes of the present tasks
        sums: Tensor | None = None  # [classes, d + 1]: this phase's sums of features by class, and the counts
        earlier: Mapping[str, Tensor] | None = None  # A of all earlier tasks [tasks * rank, i], by the name of A

        def start(self, client: Client, message: tuple[tuple[int, ...], int]) -> None:
            """Take up the earlier tasks' A, and begin the sums."""
            self.present, tasks = message
            model = client.model
            self.earlier = self._earlier(client, tasks)
            self.sums = model.parameters.new_zeros(client.classes, model.widths[model.head[0]] + 1)

        def _earlier(self, client: Client, tasks: int) -> dict[str, Tensor]:
            """Return A of the finished tasks by name, one below the other."""
            model, found = client.model, dict[str, Tensor]()
            a = entries(model, A)
            for task in range(tasks):
                vector = torch.zeros_like(model.parameters).masked_scatter_(
                    a, client.from_server(f"{self.name}.{task}")
                )
                for name, matrix in model.named(vector).items():
                    if name.endswith(A):
                        found[name] = torch.cat([*([found[name]] if name in found else []), matrix.flatten(1)])
            return found

        def task_loss(self, step: Step) -> Tensor:
            """Return CE(-d, y) + compact mean d_y."""
            model = step.client.model
            distances = squared_distances(step.features, model.module.get_parameter(model.head[0]))
            own = distances.gather(1, step.y[:, None]).mean()
            return step.client.loss(-distances, step.y) + self.method.compact * own

        def penalty(self, step: Step) -> Tensor:
            """Return sparse || A ||_1 + orthogonal sum_u || A A_u^T ||_1, summed over the layers."""
            model, total = step.client.model, step.loss.new_zeros(())
            assert self.earlier is not None
            for name in (name for name in model.layout if name.endswith(A)):
                a = model.module.get_parameter(name).flatten(1)
                total = total + self.method.sparse * a.abs().sum()
                if name in self.earlier:
                    total = total + self.method.orthogonal * (a @ self.earlier[name].T).abs().sum()
            return total

        def observe(self, step: Step) -> None:
            """Add the features of new samples to the sums of their classes."""
            assert self.sums is not None
            rows = len(step.positions)
            features = step.features[:rows].detach()
            ones = functional.one_hot(step.y[:rows], len(self.sums)).to(features.dtype)
            self.sums += ones.T @ torch.cat([features, features.new_ones(rows, 1)], 1)

        def finish(self, client: Client, delta: Delta) -> tuple[Delta, Terms]:
            """Send prototypes, mean features and numbers of samples of the present classes."""
            assert self.sums is not None
            classes = to_device(torch.tensor(self.present), client.model.device)
            sums, counts = self.sums.index_select(0, classes).split([self.sums.shape[1] - 1, 1], 1)
            prototypes = client.model.named(client.model.parameters)[client.model.head[0]].index_select(0, classes)
            self.sums = None
            terms = {"prototypes": prototypes, "means": sums / counts.clamp(min=1), "counts": counts[:, 0]}
            return delta, {name: Term(value) for name, value in terms.items()}

        def personalize(self, client: Client, weights: Weights) -> Weights:
            """Return the model with the nearest prototype as classifier."""
            return nearest_prototype(client.model, weights)

    class Server(ServerHalf):
        """Weighs the clients' prototypes, and sets finished tasks' additions aside."""

        method: PiLora
        finished: list[Tensor] | None = None  # the parameters [P] that ended each task

        def announce(self, server: Server) -> tuple[tuple[tuple[int, ...], int], Sequence[Broadcast]]:
            """Send the present classes, and A of each earlier task once."""
            a, finished = entries(server.network, A), self.finished or []
            past = [Broadcast(f"{self.name}.{task}", 0, one[a]) for task, one in enumerate(finished)]
            return (server.present_classes(), len(finished)), past

        def update(self, server: Server, delta: Delta, reply: Mapping[str, Any]) -> Delta:
            """Replace the prototypes of the present classes by the clients' weighted sums. The rest is the mean."""
            parameters, head = delta.parameters.clone(), server.network.head[0]
            change, current = (server.network.named(vector)[head] for vector in (parameters, server.parameters))
            prototypes, means, counts = (torch.stack([*reply[term].values()]).double() for term in self.method.replies)
            for place, label in enumerate(server.present_classes()):
                seen = counts[:, place] > 0
                if seen.any():
                    weights = prototype_weights(prototypes[:, place], means[seen, place], self.method.temperature)
                    change[label] = (weights @ prototypes[:, place]).to(change) - current[label]
            return Delta(parameters, delta.buffers)

        def end_task(self, server: Server) -> None:
            """Set the task's addition aside. Draw a new A, with B = 0."""
            self.finished = [*(self.finished or ()), server.parameters]
            begin_adapters(server, self.name)

        def evaluated(self, server: Server) -> Weights:
            """Return W0 + the sum of the tasks' additions, with the nearest prototype as classifier."""
            network = server.network
            added = sum_of_tasks(network, self.finished or [])
            return nearest_prototype(network, with_additions(network, weights_of(server), added))


def squared_distances(features: Tensor, prototypes: Tensor) -> Tensor:
    """Return || f - c_y ||^2 / d [n, classes] of features [n, d] to prototypes [classes, d]."""
    return (features[:, None] - prototypes).square().mean(2)


def prototype_weights(prototypes: Tensor, means: Tensor, temperature: float) -> Tensor:
    """Return the weights [clients] of the clients' prototypes of one class [clients, d].

    `means` [m, d] are the mean features of the clients that have the class. Equal distances give equal weights.
    """
    distances = (prototypes[:, None] - means).norm(dim=2).sum(1)
    nearness = 1 / (distances + NEAR)
    spread = nearness.max() - nearness.min()
    return torch.where(spread > 0, (nearness - nearness.min()) / spread / temperature, 0.0).softmax(0)


def nearest_prototype(model: FlatModel, weights: Weights) -> Weights:
    """Return weights with a head that has the softmax of -d_y: W = 2 c / d and b = -|| c ||^2 / d.

    The logits are -d_y + || f ||^2 / d. The last term is equal for all classes.
    """
    parameters = weights.parameters.clone()
    head, bias = (model.named(parameters)[name] for name in model.head)
    bias.copy_(-head.square().mean(1))
    head.mul_(2 / head.shape[1])
    return replace(weights, parameters=parameters)
