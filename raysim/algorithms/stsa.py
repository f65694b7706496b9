"""STSA: features trained in task 1, then ridge regression in closed form. Guan et al., WWW 2026, arXiv 2506.01327.

"Enhancing federated class-incremental learning via spatial-temporal statistics aggregation". In task 1 the clients
train the model as in FedAvg. Then the features z [M], which enter the head, are frozen. At each task's end, the first
one included, each client sends G_k = sum z z^T and P_k = sum z y^T over its samples. The server adds them over clients
and tasks, and solves

    W = (G + lambda I)^-1 P.

With `head: cosine` a class is scored by the cosine of z and W_c, as in the authors' code. The logits are z^T W_c /
||W_c||: the factor 1 / ||z|| is the same for all classes, so it changes no prediction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from annotated_types import doc
from torch import Tensor

from raysim.algorithms.parts.gram_sums import GramClient, GramMethod, GramServer
from raysim.algorithms.parts.ridge import with_head
from raysim.api import Server, Setting, Weights

HeadKind = Literal["ridge", "cosine"]


@dataclass(frozen=True, kw_only=True)
class Stsa(GramMethod):
    """STSA: features of task 1, then ridge regression in closed form (Guan et al., WWW 2026, arXiv 2506.01327)."""

    train_first: Annotated[bool, doc("whether clients train in task 1; false is for a pretrained model")] = True
    head: Annotated[HeadKind, doc("ridge scores z^T W_c, cosine their cosine")] = "ridge"

    def waits(self) -> bool:
        """Return whether task 1 trains: under an asynchronous schedule its updates would arrive in task 2."""
        return self.train_first

    def refusal(self, setting: Setting) -> str | None:
        """Refuse a grid for features that depend on the partition of task 1."""
        if self.grid is not None and self.train_first:
            return (
                f"found grid={self.grid} with train_first=true, whose features depend on how task 1 is divided, "
                "allowed: grid=null, or train_first=false"
            )
        return super().refusal(setting)

    class Client(GramClient):
        """Trains in task 1. Sends the sums over its new samples at a task's end."""

    class Server(GramServer):
        """Adds the sums, and evaluates the model with their head."""

        method: Stsa

        def trains(self, server: Server) -> bool:
            """Return whether this is task 1 and it trains."""
            return self.method.train_first and server.task == 0

        @classmethod
        def remembers(cls, method: GramMethod) -> str | None:
            """Refuse features that trained in task 1, in addition to rounded sums."""
            assert isinstance(method, Stsa)
            if method.train_first:
                return "found train_first=true with clients.forget: the features of task 1 remember, allowed: false"
            return super().remembers(method)

        def evaluated(self, server: Server) -> Weights | None:
            """Return the model with the head in closed form; the server's model before the first task's end."""
            if self.solution is None:
                return None
            return with_head(server, score(self.solution, self.method.head))


def score(solution: Tensor, kind: HeadKind) -> Tensor:
    """Return the head's weight [C, M] for W [M, C]. A class without samples has the score 0."""
    if kind == "ridge":
        return solution.T
    norms = solution.norm(dim=0)
    return (solution / torch.where(norms > 0, norms, 1.0)).T
