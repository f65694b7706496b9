"""iCaRL: exemplars near their class's mean, distillation, nearest means. Rebuffi et al., CVPR 2017, arXiv 1611.07725.

"Incremental classifier and representation learning". Let f be the input of the network's head, and phi(x) = f(x) /
||f(x)||. A class is represented by the mean of phi over its exemplars, and a sample gets the class with the nearest
mean.

Federated as in Fed-A-GEM's Table 1 and C-FLAG's Table 7: each client keeps exemplars of its own data, up to
memory.capacity. The teacher is the global model that ended the last task. Means are over the exemplars of the clients
that are present.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt, doc
from torch import Tensor
from torch.nn import functional

from raysim.algorithms.parts.distillation import distillation_loss
from raysim.algorithms.parts.exemplars import (
    EXEMPLARS,
    ExemplarClient,
    TeacherServer,
    binary_loss,
    keep_exemplars,
    unit_features,
)
from raysim.api import Client, Method, Plan, Request, Server, Step, Term, Terms, Weights, to_device

NEVER = -1e9  # the bias of a class without exemplars


@dataclass(frozen=True, kw_only=True)
class ICarl(Method):
    """iCaRL: herded exemplars, distillation and the nearest mean (Rebuffi et al., CVPR 2017, arXiv 1611.07725)."""

    loss: Annotated[Literal["bce", "ce_kd"], doc("a sigmoid per class, or cross-entropy with distillation")] = "bce"
    classifier: Annotated[Literal["nme", "linear"], doc("the nearest mean of exemplars, or the network's head")] = "nme"
    strength: Annotated[float, Ge(0), doc("weight of the distillation in ce_kd")] = 1.0
    temperature: Annotated[float, Gt(0), doc("T of the distillation in ce_kd")] = 2.0
    herding: Annotated[bool, doc("false chooses exemplars at random")] = True

    needs: ClassVar = frozenset({"server_boundaries", "earlier_logits", "classes"})
    memory: ClassVar = EXEMPLARS
    replies: ClassVar = {"features": "sum"}

    def head_parts(self) -> int:
        """Return 2 if the head is replaced, 1 if only its input is used."""
        return 2 if self.classifier == "nme" else int(self.herding)

    class Client(ExemplarClient):
        """Trains on new data and exemplars; chooses exemplars at a task's end."""

        method: ICarl

        def task_loss(self, step: Step) -> Tensor:
            """Return the loss of Algorithm 3, or the cross-entropy with the distillation of the old classes."""
            method, teacher = self.method, self.taught(step)
            assert self.old is not None
            assert self.seen is not None
            if method.loss == "bce":
                return binary_loss(step.logits, step.y, teacher, self.old, self.seen)
            loss = step.client.loss(step.logits, step.y)
            if teacher is None or not method.strength:
                return loss
            known, learnt = (logits.index_select(1, self.old) for logits in (teacher, step.logits))
            return loss + method.strength * distillation_loss(known, learnt, method.temperature)

        def choose(self, client: Client, message: None) -> Terms:
            """Choose exemplars; send the sums of phi over those of each class [classes, d], at the model received."""
            keep_exemplars(client, self.name, self.method.herding)
            if self.method.classifier == "linear":
                return {}
            return {"features": Term(self._class_sums(client))}

        def _class_sums(self, client: Client) -> Tensor:
            assert client.memory is not None
            model, positions = client.model, client.memory.entries().positions
            sums = torch.zeros_like(model.named(model.parameters)[model.head[0]], dtype=torch.float64)
            features = unit_features(client, positions, self.name)
            sums.index_add_(0, to_device(client.labels(positions), model.device), features)
            return sums.to(model.dtype)

    class Server(TeacherServer):
        """Broadcasts the teacher, and keeps the classes' means."""

        method: ICarl
        means: Tensor | None = None  # [classes, d], of norm 1, zero for classes without exemplars

        def end_task(self, server: Server) -> Plan:
            """Request exemplars of all present clients, and compute their means."""
            reply = yield Request("choose", to="everyone")
            if "features" in reply:
                self.means = functional.normalize(reply["features"], dim=1)

        def evaluated(self, server: Server) -> Weights | None:
            """Return the model with the nearest mean as its head, once there are means.

            Of means M_y of norm 1, argmin_y ||M_y - phi||^2 = argmax_y M_y . phi = argmax_y M_y . f: a linear layer.
            """
            if self.means is None:
                return None
            parameters = server.parameters.clone()
            weight, bias = (server.network.named(parameters)[name] for name in server.network.head)
            weight.copy_(self.means)
            bias.copy_(torch.where(self.means.any(1), 0.0, NEVER))
            return Weights(parameters, server.buffers, server.integers)
