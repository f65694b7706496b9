"""Parameters that stay at the clients, by their names: the config's model.local.

Each client trains them with the rest of the model, keeps them, and never sends them. FedBN (Li et al., ICLR 2021, arXiv
2102.07623) keeps BatchNorm layers at the clients in this way.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from raysim.algorithms.parts.personalized_model import Vectors
from raysim.api import Client, ClientHalf, Delta, FlatModel, Method, Terms, to_device
from raysim.models.freezing import match_names

NAME = "local_parameters"


@dataclass(frozen=True, kw_only=True)
class LocalParameters(Method):
    """Parameters and buffers with names that match a pattern stay at the clients."""

    patterns: tuple[str, ...]

    def local_part(self, model: FlatModel) -> Vectors:
        """Return which entries of the parameters, the float and the integer buffers stay: bool [P], [B], [I]."""
        layouts = model.layouts
        names = {*match_names([name for layout in layouts for name in layout], self.patterns, "model.local")}
        parts = [[torch.full((shape.numel(),), name in names) for name, shape in of.items()] for of in layouts]
        return tuple(torch.cat([torch.zeros(0, dtype=torch.bool), *part]) for part in parts)

    def local_bytes(self, model: FlatModel) -> int:
        """Return the bytes of the parameters and buffers that stay."""
        kept = zip(model.vectors, self.local_part(model), strict=True)
        return sum(int(mask.sum()) * vector.element_size() for vector, mask in kept)

    def unfit(self, model: FlatModel) -> str | None:
        """Refuse patterns that match all parameters: nothing would be federated."""
        if not bool(self.local_part(model)[0].all()):
            return None
        return "found all trained parameters, allowed: patterns that leave some to the server"

    class Client(ClientHalf):
        """Keeps its part of the model."""

        method: LocalParameters
        own: Vectors | None = None  # the values of the entries that stay

        def receive(self, client: Client) -> None:
            """Put the client's part into the model that was sent."""
            if self.own is not None:
                for vector, mask, own in zip(client.model.vectors, self._masks(client), self.own, strict=True):
                    vector[mask] = to_device(own, vector.device)  # a checkpoint keeps integers on the CPU

        def finish(self, client: Client, delta: Delta) -> tuple[Delta, Terms]:
            """Keep the client's part, and send the change of the rest."""
            model, masks = client.model, self._masks(client)
            self.own = tuple(vector[mask] for vector, mask in zip(model.vectors, masks, strict=True))
            parameters, buffers, integers = masks
            sent = client.from_server("model").integers
            model.integers[integers] = sent[integers]  # counts are sent as they are
            return Delta(_without(delta.parameters, parameters), _without(delta.buffers, buffers)), {}

        def _masks(self, client: Client) -> Vectors:
            return tuple(mask.to(client.model.device) for mask in self.method.local_part(client.model))


def _without(vector: Tensor, mask: Tensor) -> Tensor:
    """Return a vector with zeros at the entries of a mask."""
    return vector.masked_fill(mask, 0)
