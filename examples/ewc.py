"""EWC: what earlier tasks need is held where they left it. Kirkpatrick et al., PNAS 2017, arXiv 1612.00796.

A method of one's own in one file; docs/writing_a_method.md builds it step by step. Online and federated: after each
task every client sends the diagonal of its Fisher information at the new global model, on the task's data; the server
keeps their decayed sum, and the model as the anchor (Schwarz et al., ICML 2018, arXiv 1805.06370).

    raysim run configs/quickstart.yaml 'methods={examples.ewc:Ewc: {}}'
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Le
from torch import Tensor

from raysim.api import Ask, Client, ClientHalf, Method, Plan, Post, Server, ServerHalf, Step, Term, Terms


@dataclass(frozen=True, kw_only=True)
class Ewc(Method):
    """EWC: strength/2 sum_j F_j (w_j - w*_j)^2 at every client (Kirkpatrick et al., PNAS 2017, arXiv 1612.00796)."""

    strength: Annotated[float, Ge(0)] = 100.0  # lambda: how firmly earlier tasks hold what they need
    decay: Annotated[float, Ge(0), Le(1)] = 1.0  # gamma: what is left of the older tasks' Fisher at every new one
    sample_size: Annotated[int, Ge(1)] = 64  # samples of the task that a client's Fisher is taken over

    neutral: ClassVar = {"strength": 0.0}
    replies: ClassVar = {"fisher": "mean"}

    class Client(ClientHalf):
        """Adds the penalty's gradient; says at a task's end what the task needs."""

        knobs: Ewc
        anchored: bool = False

        def start(self, client: Client, mail: bool) -> None:
            """Learn whether there is an anchor yet."""
            self.anchored = mail

        def gradient(self, step: Step, gradient: Tensor) -> Tensor:
            """Add strength F (w - w*), the penalty's derivative in closed form."""
            if not self.anchored:
                return gradient
            anchor, fisher = step.client.post(self.name)
            return gradient.add_(fisher * (step.client.model.parameters - anchor), alpha=self.knobs.strength)

        def fisher(self, client: Client, mail: None) -> Terms:
            """Send the mean of single samples' squared gradients [P], with their true labels, in evaluation mode."""
            model = client.model
            order = torch.from_numpy(client.generator(self.name).permutation(len(client.arrived)))
            drawn = client.arrived[order[: self.knobs.sample_size]]
            total = torch.zeros_like(model.parameters)
            model.module.eval()
            for position in drawn.split(1):
                x, y = client.show(position)
                total += model.gradient_of(client.cross_entropy(model.module(x), y)).square()
            return {"fisher": Term(total / len(drawn))}

    class Server(ServerHalf):
        """Keeps the anchor and the Fisher, and posts both."""

        knobs: Ewc
        anchor: Tensor | None = None
        fisher: Tensor | None = None
        version: int = 0

        def announce(self, server: Server) -> tuple[bool, Sequence[Post]]:
            """Post the anchor and the Fisher; a client is sent them once per version."""
            if self.anchor is None:
                return False, ()
            return True, [Post(self.name, self.version, (self.anchor, self.fisher))]

        def end_task(self, server: Server) -> Plan:
            """Ask everyone present what this task needs, at the model that ended it."""
            reply = yield Ask("fisher", to="everyone")
            old = 0.0 if self.fisher is None else self.knobs.decay * self.fisher
            self.fisher, self.anchor = old + reply["fisher"], server.parameters
            self.version += 1
