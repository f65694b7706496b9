"""EWC: pull parameters that earlier tasks need to their old values. Kirkpatrick et al., PNAS 2017, arXiv 1612.00796.

Federated: after a task the clients send the diagonal of the Fisher information F_t at the model w*_t that ended it. It
says which parameters the task needs. From then on every client has a penalty on moving them.

    separate (Kirkpatrick et al.):  loss + strength/2 sum_t sum_j F_tj (w_j - w*_tj)^2
    online (Schwarz et al., ICML 2018, arXiv 1805.06370), with F <- decay F + F_t and the last task's w*:
                                    loss + strength/2 sum_j F_j (w_j - w*_j)^2

Both are one parabola for each parameter, of curvature F = sum_t F_t. Its minimum is the last task's w* (online), or the
mean of all w*_t, weighted by F_t (separate). So one Fisher and one anchor are enough for any number of tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt, Le, doc
from torch import Tensor

from raysim.algorithms.parts.finished_task import finished_task
from raysim.algorithms.parts.fisher import FisherForm, fisher_diagonal, refuse_form
from raysim.api import (
    Broadcast,
    Client,
    ClientHalf,
    Method,
    Plan,
    Request,
    Server,
    ServerHalf,
    Setting,
    Step,
    Term,
    Terms,
)


@dataclass(frozen=True, kw_only=True)
class Ewc(Method):
    """EWC: a pull to where earlier tasks ended, by their Fisher information (Kirkpatrick et al., PNAS 2017)."""

    strength: Annotated[float, Ge(0), doc("lambda: how firmly earlier tasks hold what they need")] = 10.0
    mode: Annotated[Literal["online", "separate"], doc("one penalty, or one for each task")] = "online"
    decay: Annotated[float, Ge(0), Le(1), doc("gamma: what is left of the older tasks' Fisher at every new one")] = 1.0
    fisher: Annotated[FisherForm, doc("squared gradients of samples or batches, or with the model's labels")] = "sample"
    sample_size: Annotated[int, Ge(1), doc("samples of the task that a client's Fisher is taken over")] = 200
    clip: Annotated[float | None, Gt(0), doc("the largest value of a client's Fisher")] = None
    scope: Annotated[Literal["global", "client"], doc("the clients' mean Fisher, or each client's")] = "global"

    neutral: ClassVar = {"strength": 0.0}
    instead: ClassVar = {"sample_gradients": "fisher=batch"}
    replies: ClassVar = {"fisher": "mean"}

    def takes_sample_gradients(self) -> bool:
        """Return whether the Fisher is of single samples' gradients."""
        return self.fisher != "batch"

    def refusal(self, setting: Setting) -> str | None:
        """Refuse a Fisher with labels from the model if there are no classes."""
        return refuse_form(self.fisher, setting)

    class Client(ClientHalf):
        """Adds the penalty's gradient; sends the task's Fisher at its end."""

        method: Ewc
        has_anchor: bool = False
        own: Held | None = None  # with scope client

        def start(self, client: Client, message: bool) -> None:
            """Store whether the server has sent a Fisher and an anchor yet."""
            self.has_anchor = message

        def gradient(self, step: Step, gradient: Tensor) -> Tensor:
            """Add strength F (w - anchor), the penalty's derivative in closed form.

            A step of SGD would pass the anchor where a = lr strength F is above 1, and diverge above 2. There the
            penalty's derivative is taken at the new w. In SGD's terms this divides the whole gradient by 1 + a.
            """
            held: Held | None = step.client.from_server(self.name) if self.has_anchor else self.own
            if held is None:  # task 1
                return gradient
            fisher, anchor = held
            gradient.add_(fisher * (step.client.model.parameters - anchor), alpha=self.method.strength)
            curvature = step.client.lr * self.method.strength * fisher
            return gradient.div_(torch.where(curvature > 1, 1 + curvature, 1.0))

        def need(self, client: Client, message: None) -> Terms:
            """Send or keep the finished task's Fisher, at the model that ended the task."""
            positions, form = finished_task(client), self.method.fisher
            fisher = fisher_diagonal(client, positions, form, self.method.sample_size, self.name)
            if self.method.clip is not None:
                fisher = fisher.clamp(max=self.method.clip)
            if self.method.scope == "global":
                return {"fisher": Term(fisher)}
            self.own = consolidate(self.method, self.own, fisher, client.received)
            return {}

    class Server(ServerHalf):
        """Keeps the Fisher and the anchor, and broadcasts both."""

        method: Ewc
        held: Held | None = None
        version: int = 0

        def announce(self, server: Server) -> tuple[bool, Sequence[Broadcast]]:
            """Broadcast the Fisher and the anchor; a client receives each version once."""
            return self.held is not None, () if self.held is None else [Broadcast(self.name, self.version, self.held)]

        def end_task(self, server: Server) -> Plan:
            """Request the Fisher from all present clients."""
            reply = yield Request("need", to="everyone")
            if "fisher" in reply:
                self.held = consolidate(self.method, self.held, reply["fisher"], server.parameters)
                self.version += 1


Held = tuple[Tensor, Tensor]
"""F and the anchor, both [P]."""


def consolidate(method: Ewc, held: Held | None, fisher: Tensor, model: Tensor) -> Held:
    """Return F and the anchor after a task that ended at this model [P] with this Fisher [P]."""
    if held is None:
        return fisher, model
    older, anchor = method.decay * held[0], held[1]
    return older + fisher, ANCHORS[method.mode](older, anchor, fisher, model)


def last_model(older: Tensor, anchor: Tensor, fisher: Tensor, model: Tensor) -> Tensor:
    """Return the model that ended the last task."""
    return model


def weighted_models(older: Tensor, anchor: Tensor, fisher: Tensor, model: Tensor) -> Tensor:
    """Return argmin_w older (w - anchor)^2 + fisher (w - model)^2; the anchor where no task needs the parameter."""
    total = older + fisher
    return anchor + torch.where(total > 0, fisher / total, 0.0) * (model - anchor)


ANCHORS: Mapping[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "online": last_model,
    "separate": weighted_models,
}
