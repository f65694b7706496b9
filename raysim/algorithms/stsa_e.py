"""STSA-E: STSA with a Gram matrix that is estimated from sums of classes. Guan et al., WWW 2026, arXiv 2506.01327.

Clients send no Gram matrix. Each divides its new samples at random into `groups` of equal size. It sends the number
n_gc and the sum s_gc [M] of each group's features of each class. With P_c = sum_g s_gc, N_c = sum_g n_gc, and the
number K_c of groups of all clients that have samples of class c, the server estimates

    G_c = a sum_g s_gc s_gc^T / n_gc - b P_c P_c^T,   a = (N_c - 1) / (K_c - 1),   b = (N_c - K_c) / ((K_c - 1) N_c),

and P_c P_c^T / N_c for K_c = 1. The estimate is unbiased if a class's samples are independent and identically
distributed. Let m_g be the groups' means, and S the covariance. Then E sum_g n_g (m_g - m) (m_g - m)^T = (K_c - 1) S.
The true G_c has the expectation (N_c - 1) S + N_c E m m^T. The head is W = (sum_c G_c + lambda I)^-1 P.

No eigenvalue is negative. By Cauchy and Schwarz, v^T G_c v >= (v^T P_c)^2 / N_c for each v, as a / N_c - b = 1 / N_c.
Rounding may leave a small negative one. If lambda is smaller, it is raised by the size of the least.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge, doc
from torch import Tensor
from torch.nn.functional import one_hot

from raysim.algorithms.parts import ridge
from raysim.algorithms.parts.gram_sums import RidgeMethod, head_inputs, take_unsent
from raysim.algorithms.stsa import HeadKind, score
from raysim.api import Client, ClientHalf, Plan, Request, RunError, Server, ServerHalf, Term, Terms, Weights


@dataclass(frozen=True, kw_only=True)
class StsaE(RidgeMethod):
    """STSA-E: STSA with Gram matrices estimated from class sums (Guan et al., WWW 2026, arXiv 2506.01327)."""

    groups: Annotated[int, Ge(1), doc("the groups that a client divides a task's samples into")] = 5
    train_first: Annotated[bool, doc("whether clients train in task 1; false is for a pretrained model")] = True
    head: Annotated[HeadKind, doc("ridge scores z^T W_c, cosine their cosine")] = "ridge"

    replies: ClassVar = {"sums": "by_client", "counts": "by_client", "classes": "by_client"}

    def waits(self) -> bool:
        """Return whether task 1 trains: under an asynchronous schedule its updates would arrive in task 2."""
        return self.train_first

    class Client(ClientHalf):
        """Trains in task 1. Sends sums of groups of its new samples at a task's end."""

        method: StsaE
        sent: int = 0  # the position in the stream before which all samples are in the server's sums

        def sums(self, client: Client, message: tuple[int, ...]) -> Terms:
            """Send s [groups, k, M] and n [groups, k] of k classes, and these classes. Nothing if no sample is new.

            The classes are those of `message`, and others that the client has.
            """
            positions, groups = take_unsent(client, self.sent), self.method.groups
            self.sent = max(self.sent, client.stream.end(client.window))
            if not len(positions):
                return {}
            order = torch.from_numpy(client.generator(self.name).permutation(len(positions)))
            blocks = zip(*head_inputs(client, positions, self.name, alone=False), strict=True)
            features, y = (torch.cat(part) for part in blocks)
            classes = torch.tensor(sorted({*message, *y.tolist()}), device=y.device)
            index = torch.searchsorted(classes, y)
            size = max(1, len(positions) // groups)
            group = torch.empty_like(order)
            group[order] = (torch.arange(len(order)) // size).clamp(max=groups - 1)  # the last one has the rest
            cell = group.to(index.device) * len(classes) + index
            member = one_hot(cell, groups * len(classes)).double()
            sums = (member.T @ features.double()).view(groups, len(classes), -1)
            counts = member.sum(0).view(groups, len(classes))
            return {"sums": Term(sums), "counts": Term(counts), "classes": Term(classes.double())}

    class Server(ServerHalf):
        """Adds the estimates of the Gram matrices, and evaluates the model with their head."""

        method: StsaE
        gram: Tensor | None = None  # the estimate of G [M, M], in float64
        cross: Tensor | None = None  # P [M, C]
        solution: Tensor | None = None  # W [M, C]
        raised: float = 0.0  # what lambda was raised by

        def trains(self, server: Server) -> bool:
            """Return whether this is task 1 and it trains."""
            return self.method.train_first and server.task == 0

        def end_task(self, server: Server) -> Plan:
            """Request the groups' sums of all present clients over their new samples, and solve."""
            reply = yield Request("sums", server.present_classes(), to="everyone")
            if "sums" not in reply:
                return
            gram, cross = self.gram, self.cross
            if gram is None or cross is None:
                width = server.network.widths[server.network.head[0]]
                gram = torch.zeros(width, width, dtype=torch.float64)
                cross = gram.new_zeros(width, server.classes)
            for label, (sums, counts) in by_class(reply).items():
                gram = gram + estimate_gram(sums, counts)
                cross[:, label] += sums.sum(0)
            self.gram, self.cross = gram, cross
            self.solution, self.raised = solve_raised(gram, cross, self.method, self.name)
            server.record(f"{self.name}.raised", self.raised)

        def evaluated(self, server: Server) -> Weights | None:
            """Return the model with the head in closed form; the server's model before the first task's end."""
            if self.solution is None:
                return None
            return ridge.with_head(server, score(self.solution, self.method.head))


def by_class(reply: Mapping[str, Any]) -> dict[int, tuple[Tensor, Tensor]]:
    """Return the sums [K, M] and counts [K] of the groups with samples, over all clients, by class."""
    found: dict[int, list[tuple[Tensor, Tensor]]] = {}
    for client, classes in reply["classes"].items():
        sums, counts = reply["sums"][client], reply["counts"][client]
        for column, label in enumerate(classes.tolist()):
            there = counts[:, column] > 0
            if bool(there.any()):
                found.setdefault(int(label), []).append((sums[there, column], counts[there, column]))
    stacked = {label: zip(*parts, strict=True) for label, parts in sorted(found.items())}
    return {label: (torch.cat(sums), torch.cat(counts)) for label, (sums, counts) in stacked.items()}


def estimate_gram(sums: Tensor, counts: Tensor) -> Tensor:
    """Return the estimate of one class's G [M, M], from the sums [K, M] and counts [K] of its groups."""
    total, groups, samples = sums.sum(0), len(counts), float(counts.sum())
    if groups == 1:
        return torch.outer(total, total) / samples
    a, b = (samples - 1) / (groups - 1), (samples - groups) / ((groups - 1) * samples)
    return a * (sums.T @ (sums / counts[:, None])) - b * torch.outer(total, total)


def solve_raised(gram: Tensor, cross: Tensor, method: RidgeMethod, name: str) -> tuple[Tensor, float]:
    """Return W [M, C], and by what lambda was raised so that the matrix is positive definite.

    Raises:
        RunError: the matrix is singular even so, as lambda is 0 or too small.
    """
    penalty, raised = ridge.strength(gram, method.ridge, method.ridge_relative), 0.0
    solution = ridge.solve(gram, cross, penalty)
    if solution is None:
        raised = max(0.0, -float(torch.linalg.eigvalsh(gram)[0]))
        solution = ridge.solve(gram, cross, penalty + raised)
    if solution is None:
        raise RunError(ridge.describe_singular(name, method.ridge))
    return solution, raised
