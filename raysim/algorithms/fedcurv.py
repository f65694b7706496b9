"""FedCurv: EWC between clients instead of tasks. Shoham et al., 2019, arXiv 1910.07796.

After local training, client s sends the diagonal Fisher information u_s at its local model w_s, and v_s = u_s w_s. From
the server's sums of both, each other client computes

    loss_j(w) + strength sum_{s != j} (w - w_s)^T diag(u_s) (w - w_s)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, doc
from torch import Tensor

from raysim.algorithms.parts.fisher import FisherForm, fisher_diagonal, refuse_form
from raysim.api import Broadcast, Client, ClientHalf, Delta, Method, Server, ServerHalf, Setting, Step, Term, Terms


@dataclass(frozen=True, kw_only=True)
class FedCurv(Method):
    """FedCurv: a pull to the other clients' models, by their Fisher information (Shoham et al., 2019)."""

    strength: Annotated[float, Ge(0), doc("lambda; the sum of the penalties grows with the number of clients")] = 0.01
    fisher: Annotated[FisherForm, doc("squared gradients of samples or batches, or with the model's labels")] = "sample"
    sample_size: Annotated[int, Ge(1), doc("samples that a client's Fisher is taken over in every round")] = 200

    neutral: ClassVar = {"strength": 0.0}
    needs: ClassVar = frozenset({"barrier"})  # the sums are of one round's clients
    instead: ClassVar = {"sample_gradients": "fisher=batch"}
    replies: ClassVar = {"fisher": "sum", "fisher_times_model": "sum"}

    def takes_sample_gradients(self) -> bool:
        """Return whether the Fisher is of single samples' gradients."""
        return self.fisher != "batch"

    def refusal(self, setting: Setting) -> str | None:
        """Refuse a Fisher with labels from the model if there are no classes."""
        return refuse_form(self.fisher, setting)

    class Client(ClientHalf):
        """Adds the penalty's gradient; sends u_j and v_j."""

        method: FedCurv
        summed: int = 0  # the round whose sums were broadcast, 0 for none
        sent: int = 0  # the round in which it last sent the two below
        fisher: Tensor | None = None  # u_j
        fisher_times_model: Tensor | None = None  # v_j

        def start(self, client: Client, message: int) -> None:
            """Store which round the sums are from."""
            self.summed = message

        def gradient(self, step: Step, gradient: Tensor) -> Tensor:
            """Add 2 strength (U w - V), the derivative of the sum over the others."""
            if not self.summed:
                return gradient
            fisher, fisher_times_model = step.client.from_server(self.name)
            # OpenFL's code always subtracts; a client that is not in the sum would make the penalty negative.
            if self.sent == self.summed:
                fisher, fisher_times_model = fisher - self.fisher, fisher_times_model - self.fisher_times_model
            pull = fisher * step.client.model.parameters - fisher_times_model
            return gradient.add_(pull, alpha=2 * self.method.strength)

        def finish(self, client: Client, delta: Delta) -> tuple[Delta, Terms]:
            """Send u_j and v_j of the local model."""
            form, size = self.method.fisher, self.method.sample_size
            self.fisher = fisher_diagonal(client, client.arrived, form, size, self.name)
            self.fisher_times_model = self.fisher * client.model.parameters
            self.sent = client.round
            return delta, {"fisher": Term(self.fisher), "fisher_times_model": Term(self.fisher_times_model)}

    class Server(ServerHalf):
        """Broadcasts the sums over the last round's clients."""

        method: FedCurv
        summed: int = 0
        fisher: Tensor | None = None  # U
        fisher_times_model: Tensor | None = None  # V

        def announce(self, server: Server) -> tuple[int, Sequence[Broadcast]]:
            """Broadcast U and V; the message is their round."""
            if not self.summed:
                return 0, ()
            return self.summed, [Broadcast(self.name, self.summed, (self.fisher, self.fisher_times_model))]

        def update(self, server: Server, delta: Delta, reply: Mapping[str, Any]) -> Delta:
            """Keep the cohort's sums."""
            self.fisher, self.fisher_times_model = reply["fisher"], reply["fisher_times_model"]
            self.summed = server.round
            return delta
