"""FedPer: the base layers are federated, the personalization layers stay at the client. Arivazhagan et al., 2019.

"Federated learning with personalization layers", arXiv 1912.00818. Evaluate the personalized models with
evaluation.model=local: the personalization layers of the server's model are untrained. List it first, so that later
methods see a delta without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, doc

from raysim.algorithms.parts.personalized_model import Vectors
from raysim.api import Client, ClientHalf, Delta, FlatModel, Method, Terms


@dataclass(frozen=True, kw_only=True)
class FedPer(Method):
    """FedPer: the last layers stay at each client (Arivazhagan et al., 2019, arXiv 1912.00818)."""

    layers: Annotated[int, Ge(0), doc("K_P: how many of the model's last layers stay at the client")] = 1

    neutral: ClassVar = {"layers": 0}

    def begins(self, model: FlatModel) -> Sequence[int]:
        """Return where the personalization layers begin in the parameters, the float and the integer buffers."""
        return model.begin_of(model.layers[-self.layers]) if self.layers else [*map(len, model.vectors)]

    def personal_part(self, model: FlatModel) -> Vectors:
        """Return views of the personalization layers of the current model: W_P, BatchNorm's statistics and counts."""
        return tuple(vector[begin:] for vector, begin in zip(model.vectors, self.begins(model), strict=True))

    def local_bytes(self, model: FlatModel) -> int:
        """Return the bytes of the personalization layers."""
        return sum(part.nbytes for part in self.personal_part(model))

    def unfit(self, model: FlatModel) -> str | None:
        """Refuse more layers than the model has."""
        there = len(model.layers)
        return None if self.layers <= there else f"found layers {self.layers}, allowed with this model: 0 to {there}"

    class Client(ClientHalf):
        """Keeps W_P,k and trains it with the received base layers, Algorithm 1."""

        method: FedPer
        own: Vectors | None = None  # W_P,k, with its statistics

        def receive(self, client: Client) -> None:
            """Put W_P,k into the model that was sent."""
            if self.own is not None:
                for part, own in zip(self.method.personal_part(client.model), self.own, strict=True):
                    part.copy_(own)

        def finish(self, client: Client, delta: Delta) -> tuple[Delta, Terms]:
            """Keep W_P,k, and send the change of the base layers."""
            model = client.model
            self.own = tuple(part.clone() for part in self.method.personal_part(model))
            parameters, buffers, integers = self.method.begins(model)
            sent = Delta(delta.parameters.clone(), delta.buffers.clone())
            sent.parameters[parameters:] = 0
            sent.buffers[buffers:] = 0
            model.integers[integers:] = client.from_server("model").integers[integers:]  # counts are sent as they are
            return sent, {}
