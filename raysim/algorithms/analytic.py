"""Analytic: federated ridge regression on a frozen model's features, in closed form. He et al., CVPR 2025.

"AFL: A single-round analytic approach for federated learning with pre-trained models", arXiv 2405.16240, and over tasks
AFCL, arXiv 2505.12245. No client trains. z [M] is what enters the model's head, y [C] a one-hot label. Each client
sends sums over its samples, each sample once:

    G_k = sum z z^T [M, M],    P_k = sum z y^T [M, C].

The head is W = (sum_k G_k + lambda I)^-1 sum_k P_k, the ridge regression on all samples so far of all clients. The
papers send W_k = (G_k + g I)^-1 P_k and C_k = G_k + g I and take g off at the server. The result is the same.

With `grid`, features are integers of B bits, and the sums are exact; see parts/feature_grid.py for the bound. The head
then has the same bits for every partition, number of clients, order of tasks, participation and schedule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from raysim.algorithms.parts.gram_sums import GramClient, GramMethod, GramServer
from raysim.algorithms.parts.ridge import with_head
from raysim.api import Server, Weights


@dataclass(frozen=True, kw_only=True)
class Analytic(GramMethod):
    """Analytic: ridge regression on frozen features in closed form (AFL, He et al., CVPR 2025, arXiv 2405.16240)."""

    sends_model: ClassVar = False

    class Client(GramClient):
        """Sends the sums over its new samples at a task's end."""

    class Server(GramServer):
        """Adds the sums, and evaluates the model with their head."""

        method: Analytic

        def trains(self, server: Server) -> bool:
            """Return False: no client trains."""
            return False

        def evaluated(self, server: Server) -> Weights | None:
            """Return the model with the ridge head; the initial model before the first task's end."""
            return None if self.solution is None else with_head(server, self.solution.T)
