"""GLFC, also called FCIL: a loss balanced over old and new classes, and an old teacher. Dong et al., CVPR 2022.

"Federated class-incremental learning", arXiv 2203.11473: the clients' core. A row's gradient at its label's logit has
the size |sigmoid(z_y) - 1|. Rows are weighted so that old and new classes are learned equally fast (L_GC). The old
model's outputs are targets for the old classes (L_RD). Exemplars are iCaRL's.

The authors have a proxy server, so that clients need not know when a task ends. It chooses the old model by images that
it reconstructs from clients' gradients. Here clients know, and the old model is the one that ended the previous task.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Le, doc
from torch import Tensor

from raysim.algorithms.parts.exemplars import EXEMPLARS, ExemplarClient, TeacherServer, binary_loss, keep_exemplars
from raysim.api import Client, Method, Plan, Request, Server, Setting, Step


@dataclass(frozen=True, kw_only=True)
class Glfc(Method):
    """GLFC, FCIL: balances old and new classes, with the old model (Dong et al., CVPR 2022, arXiv 2203.11473)."""

    strength: Annotated[float, Ge(0), Le(1), doc("weight of L_RD where classes are old; the rest is L_GC's")] = 0.5
    old_model: Annotated[Literal["previous_task", "proxy"], doc("proxy: the paper's, not in raysim")] = "previous_task"

    needs: ClassVar = frozenset({"server_boundaries", "earlier_logits", "classes"})
    memory: ClassVar = EXEMPLARS

    def head_parts(self) -> int:
        """Return 1: exemplars are chosen by the head's input."""
        return 1

    def refusal(self, setting: Setting) -> str | None:
        """Refuse the paper's choice of the old model."""
        if self.old_model == "previous_task":
            return None
        return "found old_model proxy, for which raysim has no server, allowed: previous_task"

    class Client(ExemplarClient):
        """Trains on new data and exemplars; chooses exemplars at a task's end."""

        method: Glfc

        def task_loss(self, step: Step) -> Tensor:
            """Return (1 - strength) L_GC + strength L_RD; without old classes the plain binary cross-entropy."""
            assert self.old is not None
            assert self.seen is not None
            teacher = self.taught(step)
            if teacher is None:
                return binary_loss(step.logits, step.y, None, self.old, self.seen)
            labels = step.logits.detach().gather(1, step.y[:, None])
            weights = balance((-labels).sigmoid(), torch.isin(step.y, self.old)[:, None])  # 1 - sigmoid(z_y)
            balanced = binary_loss(step.logits, step.y, None, self.old, self.seen, weights)
            distilled = binary_loss(step.logits, step.y, teacher, self.old, self.seen)
            return (1 - self.method.strength) * balanced + self.method.strength * distilled

        def choose(self, client: Client, message: None) -> None:
            """Choose exemplars, at the model that ended the task; nothing is sent."""
            keep_exemplars(client, self.name)

    class Server(TeacherServer):
        """Broadcasts the old model."""

        method: Glfc

        def end_task(self, server: Server) -> Plan:
            """Request that all present clients choose exemplars."""
            yield Request("choose", to="everyone")


def balance(sizes: Tensor, of_old: Tensor) -> Tensor:
    """Return the rows' weights [n, 1]: a row's size over the mean size of its group, of old or of new classes.

    `sizes` are >= 0, `of_old` is bool, both [n, 1]. If a group's sizes are all 0, its weights are 1.
    """
    weights = torch.ones_like(sizes)
    for group in (of_old, ~of_old):
        mean = (sizes * group).sum() / group.sum()
        weights = torch.where(group & (mean > 0), sizes / mean, weights)
    return weights
