"""FLwF-2T: two teachers, the client's last model of the previous task and the server's. Usmanova et al., 2021 and 2022.

arXiv 2109.04197, "A distillation-based approach integrating continual learning and federated learning for pervasive
services"; the second teacher is the server's model. Presets: SPECIAL's tables and FedCIL's code, of which only the
latter states the weights, .33, .33 and .34: the defaults. FLwF-1T, without the server's teacher: alpha + beta = 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt, Le, doc
from torch import Tensor

from raysim.algorithms.parts.distillation import distillation_loss
from raysim.api import Client, ClientHalf, Delta, Method, Setting, Step, Terms

Teacher = tuple[Tensor, Tensor]  # its parameters [P] and float buffers [B]


@dataclass(frozen=True, kw_only=True)
class FLwF(Method):
    """FLwF-2T: distill the client's last model and the server's (Usmanova et al., 2021, arXiv 2109.04197)."""

    alpha: Annotated[float, Ge(0), Le(1), doc("weight of the cross-entropy on the new data")] = 1 / 3
    beta: Annotated[float, Ge(0), Le(1), doc("weight of the client's past model; the rest is the server's")] = 1 / 3
    temperature: Annotated[float, Gt(0), doc("T: what all models' logits are divided by")] = 2.0

    neutral: ClassVar = {"alpha": 1.0, "beta": 0.0}
    needs: ClassVar = frozenset({"one_head", "classes"})

    @property
    def gamma(self) -> float:
        """Return 1 - alpha - beta, the weight of the server's model. Decimals that sum to 1 give exactly 0."""
        return round(1 - self.alpha - self.beta, 12)

    def refusal(self, setting: Setting) -> str | None:
        """Refuse a negative weight of the server's teacher."""
        if self.gamma >= 0:
            return None
        return (
            f"found alpha {self.alpha:g} and beta {self.beta:g}, which leave {self.gamma:g} for the server's teacher, "
            "allowed: alpha + beta <= 1; lower one of them"
        )

    class Client(ClientHalf):
        """Keeps the model of its last local training, and at a boundary makes it a teacher."""

        method: FLwF
        taught: bool = False
        latest: Teacher | None = None
        past: Teacher | None = None
        buffers: Tensor | None = None  # in a phase: the float buffers of the received model

        def begin_task(self, client: Client) -> None:
            """Make the last local model the past one; there are teachers from the client's second task on."""
            self.taught = client.stream.stage(client.window) > 0
            self.past = self.latest

        def start(self, client: Client, message: None) -> None:
            """Keep the received model's statistics: they change in training, and some may be this client's own."""
            self.buffers = client.model.buffers.clone()

        def task_loss(self, step: Step) -> Tensor:
            """Return alpha CE + beta KD(past, student; T) + (1 - alpha - beta) KD(server, student; T), all classes."""
            method, client = self.method, step.client
            loss = client.loss(step.logits, step.y)
            if not self.taught:
                return loss
            # A client without a past model, as it never trained before: beta counts for the cross-entropy.
            loss = (method.alpha + (method.beta if self.past is None else 0.0)) * loss
            if method.beta and self.past is not None:
                loss = loss + method.beta * self._distil(step, self.past)
            if method.gamma:
                assert self.buffers is not None
                loss = loss + method.gamma * self._distil(step, (client.received, self.buffers))
            return loss

        def finish(self, client: Client, delta: Delta) -> tuple[Delta, Terms]:
            """Keep the local model before aggregation; send only the update."""
            self.buffers = None
            if self.method.beta:
                self.latest = client.model.parameters.clone(), client.model.buffers.clone()
            return delta, {}

        def _distil(self, step: Step, teacher: Teacher) -> Tensor:
            with step.client.rng_scope(self.name):
                logits = step.client.model.logits(step.x, *teacher)
            return distillation_loss(logits, step.logits, self.method.temperature)
