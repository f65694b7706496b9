"""Sums over samples for ridge regression on a frozen model's features: each sample is in the sums once.

At a task's end the server asks all clients that are present. A client sends the sums over those of its samples that it
has not sent before, also those of earlier tasks. Exchanges are never lost. So neither drop-outs nor an asynchronous
schedule, which discards old updates, leave a sample out or count it twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge, Gt, Le, doc
from torch import Tensor
from torch.nn.functional import one_hot

from raysim.algorithms.parts import ridge
from raysim.algorithms.parts.feature_grid import BITS, FeatureGrid, as_total, saturated_to_integers
from raysim.api import (
    Client,
    ClientHalf,
    ForgettingServer,
    Method,
    Plan,
    Request,
    RunError,
    Server,
    Setting,
    Term,
    Terms,
)

BLOCK = 1024
"""The samples of one block, which have their features in memory together."""


@dataclass(frozen=True, kw_only=True)
class RidgeMethod(Method):
    """The hyperparameters of a ridge regression on the inputs of the model's head."""

    ridge: Annotated[float, Ge(0), doc("lambda, the strength of the penalty on the head's weight")] = 0.01
    ridge_relative: Annotated[bool, doc("whether `ridge` is a multiple of the mean of the Gram's diagonal")] = True

    needs: ClassVar = frozenset({"classes", "one_head"})

    def head_parts(self) -> int:
        """Return 1: the head's weight is computed."""
        return 1


@dataclass(frozen=True, kw_only=True)
class GramMethod(RidgeMethod):
    """A ridge regression with sums that may be exact."""

    grid: Annotated[
        int | None, Ge(BITS[0]), Le(BITS[1]), doc("the bits of a feature, for exact sums; null rounds nothing")
    ] = None
    bound: Annotated[float, Gt(0), doc("with a grid, the largest feature; larger ones count as this one")] = 8.0

    replies: ClassVar = {"gram": "total", "cross": "total", "samples": "total", "saturated": "total"}

    @property
    def feature_grid(self) -> FeatureGrid | None:
        """The grid of the features, or None."""
        return None if self.grid is None else FeatureGrid(self.grid, self.bound)

    def refusal(self, setting: Setting) -> str | None:
        """Refuse a grid with which sums over all samples of the run could pass 2^53."""
        grid, samples = self.feature_grid, setting.samples
        return None if grid is None or samples is None else grid.refusal(samples)


def take_unsent(client: Client, sent: int) -> Tensor:
    """Return the positions (int64 [n]) from `sent` on that have arrived."""
    arrived = client.stream.span(0, client.window + 1)
    return arrived[arrived >= sent]


def head_inputs(client: Client, positions: Tensor, purpose: str, alone: bool) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the head's inputs z [n, M] and labels y [n] of these samples, in blocks, at the client's model.

    Samples are not augmented. The last bits of a matrix product may depend on its number of rows. With `alone` each
    sample has its own pass, so that its features do not depend on other samples.
    """
    model = client.model
    name = model.head[0]
    for block in positions.split(BLOCK):
        x, y = client.samples(block)
        # A row of a batch may begin at an address for which a product takes other instructions: a copy does not.
        parts = [row.clone() for row in x.split(1)] if alone else [x[part] for part in client.batches(len(x), True)]
        with client.rng_scope(purpose):
            rows = [model.inputs(part, model.parameters, model.buffers, [name])[name] for part in parts]
        yield torch.cat(rows), y


class GramClient(ClientHalf):
    """Sends the sums over its new samples."""

    method: GramMethod
    sent: int = 0  # the position in the stream before which all samples are in the server's sums

    def sums(self, client: Client, message: Tensor | None) -> Terms:
        """Send the sums over the samples that arrived since the last time, without those at the positions `message`."""
        positions = take_unsent(client, self.sent)
        self.sent = max(self.sent, client.stream.end(client.window))
        if message is not None:
            positions = positions[~torch.isin(positions, message.cpu())]
        return self._sums(client, positions)

    def forgotten(self, client: Client, message: Tensor) -> Terms:
        """Send the sums over those samples at the positions `message` that it has sent before."""
        positions = message.cpu()
        return self._sums(client, positions[positions < self.sent])

    def _sums(self, client: Client, positions: Tensor) -> Terms:
        """Return G (its upper triangle), P, and the numbers of samples and of saturated features.

        In float64, or in int64 with a grid. Of no samples there is nothing to send.
        """
        grid = self.method.feature_grid
        if not len(positions):
            return {}
        width = client.model.widths[client.model.head[0]]
        gram = torch.zeros(width, width, dtype=torch.float64, device=client.model.device)
        cross = gram.new_zeros(width, client.classes)
        saturated = 0
        for features, y in head_inputs(client, positions, self.name, alone=grid is not None):
            rows, beyond = saturated_to_integers(features, grid)
            gram.addmm_(rows.T, rows)
            cross.addmm_(rows.T, one_hot(y, client.classes).double())
            saturated += beyond
        return {
            "gram": Term(as_total(ridge.upper(gram), grid)),
            "cross": Term(as_total(cross, grid)),
            "samples": Term(torch.tensor(len(positions))),
            "saturated": Term(torch.tensor(saturated)),
        }


class GramServer(ForgettingServer):
    """Adds the sums, and solves for the head at each task's end."""

    method: GramMethod
    gram: Tensor | None = None  # G's upper triangle [M (M + 1) / 2], int64 in units of step^2 with a grid
    cross: Tensor | None = None  # P [M, C], int64 in units of step with a grid
    samples: int = 0  # how many samples are in the sums
    saturated: int = 0  # how many of their features were beyond the grid's bound
    solution: Tensor | None = None  # W [M, C], float64

    def __init__(self, name: str, method: GramMethod) -> None:
        super().__init__(name, method)
        self.forgotten: dict[int, Tensor] = {}  # client -> positions that requests named, also of data to come

    def end_task(self, server: Server) -> Plan:
        """Request the sums of all present clients over their new samples, and solve."""
        if self.forgotten:
            reply = yield Request("sums", messages={client: self.forgotten.get(client) for client in server.present})
        else:
            reply = yield Request("sums", to="everyone")
        self._add(reply, 1)
        server.record(f"{self.name}.samples", self.samples)
        if self.method.grid is not None:
            server.record(f"{self.name}.saturated", self.saturated)

    def forget(self, server: Server, asked: Mapping[int, Tensor]) -> Plan:
        """Request the sums over forgotten samples from the present clients that have them, and subtract these."""
        for client, positions in asked.items():
            earlier = self.forgotten.get(client)
            self.forgotten[client] = positions if earlier is None else torch.cat([earlier, positions])
        present = {client: positions for client, positions in asked.items() if client in server.present}
        if present:
            self._add((yield Request("forgotten", messages=present)), -1)
        server.record(f"{self.name}.samples", self.samples)

    @classmethod
    def remembers(cls, method: GramMethod) -> str | None:
        """Refuse sums that are rounded: (a + b) - b is not a."""
        if method.grid is None:
            return "found grid=null with clients.forget, allowed: a number of bits, with which sums are exact"
        return None

    def _add(self, reply: Mapping[str, Any], sign: int) -> None:
        """Add sums, or take them out, and solve again. There are none if no client had such samples."""
        if "gram" not in reply:
            return
        self.gram = sign * reply["gram"] if self.gram is None else self.gram + sign * reply["gram"]
        self.cross = sign * reply["cross"] if self.cross is None else self.cross + sign * reply["cross"]
        self.samples += sign * int(reply["samples"])
        self.saturated += sign * int(reply["saturated"])
        self.solution = self.solve() if self.samples else None

    def solve(self) -> Tensor:
        """Return W [M, C] of the sums, in float64.

        Raises:
            RunError: G is singular and has no penalty, or too small a one.
        """
        method = self.method
        assert self.gram is not None
        assert self.cross is not None
        step = 1.0 if method.feature_grid is None else method.feature_grid.step
        gram = ridge.symmetric(self.gram, len(self.cross)).double() * step**2
        penalty = ridge.strength(gram, method.ridge, method.ridge_relative)
        solution = ridge.solve(gram, self.cross.double() * step, penalty)
        if solution is None:
            raise RunError(ridge.describe_singular(self.name, method.ridge))
        return solution
