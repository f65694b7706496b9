"""FFA-LoRA: LoRA with a fixed A, so that the mean of the clients' B A is mean(B) A. Sun et al., ICLR 2024.

"Improving LoRA in privacy-preserving federated learning", arXiv 2403.12313. A keeps the values that it was drawn with.
Clients train B and the head. As a baseline of Salami et al. (ICLR 2025, arXiv 2410.17961) it has tasks as Fed-LoRA has
them: the server draws a new A for each task, which is sent once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from raysim.algorithms.lora import FedLora
from raysim.algorithms.parts.task_adapters import A, entries, hold
from raysim.api import Broadcast, Client, ClientHalf, FlatModel, Server, Step


@dataclass(frozen=True, kw_only=True)
class FfaLora(FedLora):
    """FFA-LoRA: Fed-LoRA that trains B and the head, with a fixed A (Sun et al., ICLR 2024)."""

    neutral: ClassVar[Mapping[str, object] | None] = None

    def local_bytes(self, model: FlatModel) -> int:
        """Return the bytes of A, which is not sent with the model."""
        return int(entries(model, A).sum()) * model.parameters.element_size()

    class Client(ClientHalf):
        """Trains everything but A."""

        method: FfaLora
        fixed: Tensor | None = None  # bool [P]: the entries of A

        def start(self, client: Client, message: None) -> None:
            """Find A."""
            self.fixed = entries(client.model, A)

        def gradient(self, step: Step, gradient: Tensor) -> Tensor:
            """Return the gradient without that of A."""
            assert self.fixed is not None
            return gradient.masked_fill_(self.fixed, 0)

        def observe(self, step: Step) -> None:
            """Undo the optimizer's decay of A, if it has any."""
            assert self.fixed is not None
            hold(step, self.fixed)

    class Server(FedLora.Server):
        """Fed-LoRA's server, which sends A once per task."""

        method: FfaLora

        def announce(self, server: Server) -> tuple[None, Sequence[Broadcast]]:
            """Broadcast A. Clients have it in the model already: this counts its bytes."""
            a = server.parameters[entries(server.network, A)]
            return None, [Broadcast(self.name, len(self.finished or ()), a)]
