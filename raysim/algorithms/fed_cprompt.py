"""Fed-CPrompt: CODA-Prompt's components and a contrastive loss, without boundaries in common. Bagwe et al., 2023.

"Fed-CPrompt: contrastive prompt for rehearsal-free federated continual learning", ICML 2023 workshop on federated
learning, arXiv 2307.04869. Let z be the features of an image, the input of the head. The loss keeps them near those of
the model that the client received. It keeps them away from those of the model that ended the last task.

The defaults are those of the authors' code. Its components are all drawn at once, and its attention vectors go through
a softmax: model.prompts={kind: coda, attention: softmax, initial: orthogonal}.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, doc
from torch import Tensor

from raysim.algorithms.parts.prompt_slots import CodaPrompts, unfit_prompts
from raysim.api import Broadcast, Client, ClientHalf, FlatModel, Method, Server, ServerHalf, Step


@dataclass(frozen=True, kw_only=True)
class FedCPrompt(Method):
    """Fed-CPrompt: components of prefixes with a contrastive loss on features (Bagwe et al., ICML 2023 workshop)."""

    near: Annotated[float, Ge(0), doc("weight of the distance from the received model's features")] = 1000.0
    far: Annotated[float, Ge(0), doc("weight of the distance from the features of the last task's model")] = 10.0
    margin: Annotated[float, Ge(0), doc("by how much the second should exceed the first")] = 1.0
    reduction: Annotated[Literal["sum", "mean"], doc("of the distances of a batch's images")] = "sum"

    neutral: ClassVar = {"near": 0.0, "far": 0.0}
    needs: ClassVar = frozenset({"boundaries", "one_head"})

    def head_parts(self) -> int:
        """Return 1: the loss compares what enters the head."""
        return 1

    def unfit(self, model: FlatModel) -> str | None:
        """Refuse a model without components."""
        return unfit_prompts(model, CodaPrompts)

    def contrast(self, z: Tensor, received: Tensor, previous: Tensor | None) -> Tensor:
        """Return the contrastive loss of features [n, d]: of the model, the received one, and the last task's, if any.

        It is max(0, near |z - received|^2 - far |z - previous|^2 + margin), or in task 1 the first of these terms.
        The squared distances are summed over the images, or averaged.
        """
        distance = self.near * self._reduce(z - received)
        if previous is None:
            return distance
        return (distance - self.far * self._reduce(z - previous) + self.margin).clamp(min=0)

    def _reduce(self, differences: Tensor) -> Tensor:
        squares = differences.square().sum(1)
        return squares.sum() if self.reduction == "sum" else squares.mean()

    class Client(ClientHalf):
        """Adds the contrastive loss."""

        features: ClassVar = True
        method: FedCPrompt
        has_previous: bool = False

        def start(self, client: Client, message: bool) -> None:
            """Store whether a task has ended."""
            self.has_previous = message

        def penalty(self, step: Step) -> Tensor:
            """Return the loss on the batch. All features are of the task's prompts; the model's have a gradient."""
            method, client = self.method, step.client
            if not method.near and not method.far:
                return step.loss.new_zeros(())
            received = self._features(step, client.received, client.model.buffers)
            previous = self._features(step, *client.from_server(self.name)) if self.has_previous else None
            return method.contrast(step.features, received, previous)

        def _features(self, step: Step, parameters: Tensor, buffers: Tensor) -> Tensor:
            model, head = step.client.model, step.client.model.head[0]
            with step.client.rng_scope(self.name):
                return model.inputs(step.x, parameters, buffers, [head])[head]

    class Server(ServerHalf):
        """Broadcasts the model that ended the last task, once per task."""

        method: FedCPrompt
        task: int = 0
        previous: tuple[Tensor, Tensor] | None = None

        def announce(self, server: Server) -> tuple[bool, Sequence[Broadcast]]:
            """Broadcast the model that ended the last task; say whether there is one.

            If clients are at different tasks, a task ends when its row of the accuracy matrix is measured.
            """
            if server.task != self.task:
                self.task, self.previous = server.task, (server.parameters, server.buffers)
            if self.previous is None:
                return False, ()
            return True, [Broadcast(self.name, self.task, self.previous)]
