"""LwF: distill the last task's final model on the new data. Li and Hoiem, TPAMI 2018.

In a federation, as in the official code of TARGET (Zhang et al., ICCV 2023), the teacher is the global model. C-FLAG's
class-incremental rows use the settings of that code: strength 3, temperature 2, and the cross-entropy over the new
classes alone (training.logits=task). The defaults are Li and Hoiem's, without a warm-up of the head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt, doc
from torch import Tensor

from raysim.algorithms.parts.distillation import distillation_loss
from raysim.api import Broadcast, Client, ClientHalf, Method, Server, ServerHalf, Step, to_device


@dataclass(frozen=True, kw_only=True)
class LwF(Method):
    """LwF: distill the last task's final model on the new data (Li and Hoiem, TPAMI 2018, arXiv 1606.09282)."""

    strength: Annotated[float, Ge(0), doc("lambda_o: weight of the distillation loss")] = 1.0
    temperature: Annotated[float, Gt(0), doc("T, eq. 4: what both models' logits are divided by")] = 2.0
    t_squared: Annotated[bool, doc("multiply by T^2, so that gradients keep their size (Hinton et al.)")] = False
    rows: Annotated[Literal["new", "all"], doc("all distills on rows that other methods add to the batch, too")] = "new"

    neutral: ClassVar = {"strength": 0.0}
    needs: ClassVar = frozenset({"server_boundaries", "one_head", "classes"})

    class Client(ClientHalf):
        """Adds the distillation loss, from task 2 on."""

        method: LwF
        old: Tensor | None = None  # int64: the classes that the teacher knows

        def start(self, client: Client, message: tuple[int, ...] | None) -> None:
            """Store the classes of earlier tasks; None in task 1."""
            self.old = None if message is None else to_device(torch.tensor(message), client.model.device)

        def penalty(self, step: Step) -> Tensor:
            """Return strength * KD(teacher, student; T) over the old classes' logits, renormalized among themselves."""
            method, client = self.method, step.client
            rows = len(step.x) if method.rows == "all" else len(step.positions)
            if self.old is None or not method.strength or not rows:
                return step.loss.new_zeros(())
            with client.rng_scope(self.name):
                teacher = client.model.logits(step.x[:rows], *client.from_server(self.name))
            known, learnt = (logits.index_select(1, self.old) for logits in (teacher, step.logits[:rows]))
            scale = method.strength * (method.temperature**2 if method.t_squared else 1.0)
            return scale * distillation_loss(known, learnt, method.temperature)

    class Server(ServerHalf):
        """Broadcasts the teacher, the model that ended the previous task, once per task."""

        method: LwF
        task: int = 0
        teacher: tuple[Tensor, Tensor] | None = None

        def announce(self, server: Server) -> tuple[tuple[int, ...] | None, Sequence[Broadcast]]:
            """Broadcast the teacher with its BatchNorm statistics; send the classes of earlier tasks."""
            if server.task != self.task:  # the model is still the one that ended the previous task
                self.task, self.teacher = server.task, (server.parameters, server.buffers)
            if self.teacher is None:
                return None, ()
            return server.earlier_classes(), [Broadcast(self.name, self.task, self.teacher)]
