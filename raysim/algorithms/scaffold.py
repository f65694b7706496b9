"""SCAFFOLD, option II: control variates correct client drift. Karimireddy et al., ICML 2020, arXiv 1910.06378.

List it before methods that project: they receive the corrected gradient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Gt, doc
from torch import Tensor

from raysim.api import Broadcast, Client, ClientHalf, Delta, Method, Server, ServerHalf, Step, Term, Terms


@dataclass(frozen=True, kw_only=True)
class Scaffold(Method):
    """SCAFFOLD: control variates against client drift (Karimireddy et al., ICML 2020, arXiv 1910.06378)."""

    global_rate: Annotated[float, Gt(0), doc("eta_g: what the mean delta is multiplied by")] = 1.0

    # option II computes the mean gradient from the sum of the steps
    needs: ClassVar = frozenset({"plain_sgd", "unclipped", "barrier"})
    replies: ClassVar = {"variate_change": "mean"}

    class Client(ClientHalf):
        """Steps along g - c_i + c; c_i is kept at the client."""

        vectorises: ClassVar = True
        method: Scaffold
        variate: Tensor | None = None  # c_i [P], zero at first

        def start(self, client: Client, message: None) -> None:
            """Begin a local training."""
            if self.variate is None:
                self.variate = torch.zeros_like(client.received)

        def gradient(self, step: Step, gradient: Tensor) -> Tensor:
            """Correct the step, eq. 3."""
            return gradient.add_(step.client.from_server(self.name) - self.variate)

        def finish(self, client: Client, delta: Delta) -> tuple[Delta, Terms]:
            """Send c_i+ - c_i = -c - delta / sum_k eta_k: eq. 4, option II, with y_i - x = delta."""
            if not client.steps or not client.lr:
                return delta, {"variate_change": Term(torch.zeros_like(delta.parameters))}
            change = -client.from_server(self.name) - delta.parameters / (client.steps * client.lr)
            assert self.variate is not None
            self.variate = self.variate + change
            return delta, {"variate_change": Term(change)}

    class Server(ServerHalf):
        """Keeps c, the mean of all clients' variates."""

        method: Scaffold
        variate: Tensor | None = None
        version: int = 0

        def announce(self, server: Server) -> tuple[None, Sequence[Broadcast]]:
            """Broadcast c."""
            if self.variate is None:
                self.variate = torch.zeros_like(server.parameters)
            return None, [Broadcast(self.name, self.version, self.variate)]

        def update(self, server: Server, delta: Delta, reply: Mapping[str, Any]) -> Delta:
            """Move c by the cohort's part of the mean change, eq. 5: |S|/N, N being the clients present.

            With weights, the part is the cohort's share of the total weight, so that c is the weighted mean.
            """
            assert self.variate is not None
            of_all = server.shares_of(server.present)
            part = fsum(of_all[client] for client in server.cohort)
            self.variate = self.variate + part * reply["variate_change"]
            self.version += 1
            return Delta(self.method.global_rate * delta.parameters, delta.buffers)
