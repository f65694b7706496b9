"""C-FLAG: local steps along delayed gradients that track the federation's, and one step against forgetting.

Keshri, Shah & Prasad, AISTATS 2025, arXiv 2411.07959.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from annotated_types import Ge, Gt, doc
from torch import Tensor

from raysim.algorithms.parts import replay
from raysim.algorithms.parts.gradient_table import Components, check_table_fits, choose_components, empty_table, refresh
from raysim.api import (
    Broadcast,
    Client,
    ClientHalf,
    Delta,
    MemoryUse,
    Method,
    Plan,
    Request,
    RunError,
    Server,
    ServerHalf,
    Setting,
    Term,
    Terms,
)


@dataclass(frozen=True, kw_only=True)
class CFlag(Method):
    """C-FLAG: delayed gradients, a step on all memories, adaptive rates (Keshri et al., AISTATS 2025, 2411.07959)."""

    sample_size: Annotated[int, Ge(1), doc("memory samples of a client's gradient of f_i, drawn in each round")] = 200
    alpha: Annotated[
        float | None, Ge(0), doc("alpha, the learning rate on the memories; null is beta, as in the paper")
    ] = None
    beta: Annotated[float | None, Gt(0), doc("beta, the learning rate on new data; null is the training's")] = None
    smoothness: Annotated[float, Gt(0), doc("L, how fast the losses' gradients change")] = 5.0
    adaptive: Annotated[Literal["average", "worst", "off"], doc("Table 1's case; Algorithm 3 prints worst")] = "worst"
    interference: Annotated[Literal["exact", "as_printed"], doc("as_printed: alpha_i as in Table 1")] = "exact"
    correction: Annotated[Literal["as_printed", "nominal"], doc("nominal: times beta, not beta_i")] = "as_printed"
    objective_weights: Annotated[Literal["equal", "h"], doc("h: alpha = E beta |P| / |C|, as for eq. 3")] = "equal"
    bias: Annotated[float, Ge(0), doc("m; alpha_i is at most 2 / (L (1 + m)), eq. 14")] = 0.0
    beta_range: Annotated[tuple[Annotated[float, Ge(0)], Annotated[float, Gt(0)]], doc("for beta_i")] = (1e-4, 0.95)
    mode: Annotated[Literal["iag", "svrg"], doc("eq. 5, or one mini-batch's gradient, as in the authors' code")] = "iag"
    order: Annotated[Literal["random", "cyclic", "reshuffled"], doc("the component that a step takes")] = "random"
    table: Annotated[Literal["rebuild", "keep"], doc("rebuild: one more pass in every round")] = "rebuild"

    needs: ClassVar = frozenset({"plain_sgd", "unclipped", "boundaries", "earlier_logits"})
    frugal: ClassVar = {"table": "rebuild"}
    memory: ClassVar = MemoryUse(
        policies=("class_balanced", "class_ring", "task_ring", "reservoir", "sliding_window", "random"),
        fills=("boundary",),
    )
    replies: ClassVar = {"gradient": "mean", "memory_gradient": "mean"}

    def refusal(self, setting: Setting) -> str | None:
        """Return which rates AdapLR cannot start from, or which hyperparameters contradict one another."""
        beta = setting.lr if self.beta is None else self.beta
        alpha = beta if self.alpha is None else self.alpha
        below = min(1 / self.smoothness, largest_alpha(self))
        if self.objective_weights == "h" and (self.adaptive != "off" or self.alpha is not None):
            return "objective_weights=h sets alpha itself; set adaptive=off and leave alpha out"
        if self.adaptive != "off" and alpha >= below:
            return (
                f"found alpha={alpha:g}{' (training.optimizer.lr)' if self.alpha is self.beta is None else ''}, "
                f"allowed: less than {below:g}, as AdapLR needs 1 - smoothness * alpha > 0; or set adaptive=off"
            )
        if self.beta_range[0] > self.beta_range[1]:
            return f"found beta_range={list(self.beta_range)}, allowed: the smaller number first"
        return None

    class Client(ClientHalf):
        """Sends its gradients, takes E corrected steps, and weights their sum."""

        method: CFlag

        def __init__(self, name: str, method: CFlag) -> None:
            super().__init__(name, method)
            self.message: dict[str, Any] = {}
            self.loss: Tensor | None = None  # g_i and G_i, its gradient at x_t, from phase A to phase B
            self.own: Tensor | None = None
            self.kept: list[Tensor] = []  # with `table: keep`, the rows and, after their pass, BatchNorm's statistics

        def gradients(self, client: Client, message: None) -> Terms:
            """Phase A, Algorithm 1, line 2: send the gradient on all new data, and the one on the memory."""
            model = client.model
            model.module.train()
            components = Components(client, client.phases + 1)
            rows = None
            if self.method.mode == "iag" and self.method.table == "keep":
                check_table_fits(client, len(components), f"methods.{self.name}.table: keep")
                rows = empty_table(client, components)
            self.loss, self.own = components.full_gradient(rows)
            self.kept = [] if rows is None else [rows, model.buffers.clone(), model.integers.clone()]
            terms = {"gradient": Term(self.own)} if len(components) else {}
            entries = replay.draw_entries(client, self.method.sample_size, self.name) if self.method.memory else None
            if entries is not None:
                terms["memory_gradient"] = Term(replay.gradient_on(client, entries, self.name))
            return terms

        def start(self, client: Client, message: dict[str, Any]) -> None:
            """Store what the server sent, and the number of clients."""
            self.message = message

        def train(self, client: Client) -> Delta:
            """Phase B, Algorithm 1, lines 5 to 10."""
            model = client.model
            assert self.own is not None
            assert self.loss is not None
            before = model.buffers.clone()
            beta = client.lr if self.method.beta is None else self.method.beta
            posted = self._posted(client, "gradient")
            correction = torch.zeros_like(self.own) if posted is None else posted - self.own
            added, steps = torch.zeros_like(correction), 0  # A = sum_k g'_i(x_k), E
            model.module.train()
            # BatchNorm's statistics change here, in the table's pass and every step, and not in phase A
            for estimate in self._estimates(client):
                added.add_(estimate)
                model.parameters.sub_(correction + estimate, alpha=beta)  # eq. 4
                steps += 1
            client.steps = steps
            if steps:
                client.record("loss", self.loss)  # at the model that was sent, not along the steps as in FedAvg
            change = self._weighed(client, correction, added, steps, beta)
            self.loss, self.own, self.kept = None, None, []
            return Delta(-change, model.buffers - before)

        def _estimates(self, client: Client) -> Iterator[Tensor]:
            """Yield the estimate of the local gradient for each of the E steps, at the model at that step."""
            components = Components(client, client.phases)
            # E local epochs in the paper's text, E steps on one component each in eq. 4: here epochs times components
            steps = client.local_epochs * len(components)
            chosen = choose_components(self.method.order, steps, len(components), client.generator("batches"))
            if self.method.mode == "svrg":
                for component in chosen:
                    yield components.gradient(component)[1]
            elif steps:
                rows, total = self._table(client, components)
                yield total  # tau_0 = 0 for all components: the first step refreshes none
                for component in chosen[: steps - 1]:
                    refresh(rows, total, components, component)
                    yield total

        def _table(self, client: Client, components: Components) -> tuple[Tensor, Tensor]:
            """Return the gradients of all components [components, P] at x_t and their weighted sum [P]."""
            model = client.model
            assert self.own is not None
            if self.kept:
                rows, buffers, integers = self.kept
                model.buffers.copy_(buffers)
                model.integers.copy_(integers)
                return rows, self.own.clone()
            rows = empty_table(client, components)
            _, total = components.full_gradient(rows)
            if client.deterministic and not torch.equal(total, self.own):
                raise RunError(
                    f"client {client.id}: {self.name}: the same gradient came out differently in a round's second "
                    f"phase: the model draws from another generator than torch's; set methods.{self.name}.table=keep"
                )
            return rows, total

        def _posted(self, client: Client, name: str) -> Tensor | None:
            if name not in self.message["posted"]:
                return None
            value: Tensor = client.from_server(f"{self.name}.{name}")
            return value.to(client.model.device)

        def _weighed(self, client: Client, correction: Tensor, added: Tensor, steps: int, beta: float) -> Tensor:
            """Return Delta_i = alpha_i F + E beta_i (G - G_i) + beta_i A, Algorithm 3, line 14."""
            # Differs from the text and Alg. 3, line 2, which subtract x_E itself; eqs. 23 to 25 have x_t - x_E.
            method = self.method
            memory = self._posted(client, "memory_gradient")
            if memory is None:  # task 1
                return steps * beta * correction + beta * added
            alpha = beta if method.alpha is None else method.alpha
            if method.objective_weights == "h":
                alpha = steps * beta * self.message["past_per_new"]
            clients = self.message["cohort"]
            weight = client.share * (1 if method.adaptive == "average" else clients)
            alpha_i, beta_i = adapt_rates(method, memory, added, alpha, beta, weight)
            client.record("alpha_i", alpha_i)
            client.record("beta_i", beta_i)
            gamma = forgetting_term(memory, added, alpha_i, beta_i, method.smoothness, weight)
            client.record("gamma", clients * client.share * gamma)  # the mean of these is sum_i p_i Gamma_i(t)
            # One beta_i per client breaks sum_i p_i beta_i (G - G_i) = 0, which the convergence lemmas use.
            tracking = beta_i if method.correction == "as_printed" else beta
            return steps * tracking * correction + beta_i * added + alpha_i * memory

    class Server(ServerHalf):
        """Broadcasts the mean gradients to all clients, Algorithm 1, line 3."""

        method: CFlag

        def __init__(self, name: str, method: CFlag) -> None:
            super().__init__(name, method)
            self.means: dict[str, Tensor] = {}

        def prepare(self, server: Server) -> Plan:
            """Request the gradients. F is the mean over the clients that have a memory."""
            self.means = dict((yield Request("gradients")))

        def announce(self, server: Server) -> tuple[dict[str, Any], Sequence[Broadcast]]:
            """Broadcast G and F."""
            sizes = [server.samples_of(task) for task in range(server.task + 1)]
            message = {
                "posted": list(self.means),
                "cohort": len(server.cohort),
                "past_per_new": sum(sizes[:-1]) / max(sizes[-1], 1),  # |P| / |C|; custom streams have no tasks
            }
            broadcasts = [Broadcast(f"{self.name}.{name}", server.round, mean) for name, mean in self.means.items()]
            self.means = {}
            return message, broadcasts


def adapt_rates(
    method: CFlag, memory: Tensor, added: Tensor, alpha: float, beta: float, weight: float
) -> tuple[Tensor, Tensor]:
    """Return alpha_i and beta_i of Table 1, given F and A [P] and the weight p_i (average case) or N p_i (worst).

    There is no `if` on a tensor, which would synchronise with the GPU.
    """
    # Differs from Alg. 3, line 4, where a_i is beta A; Section 5, which has A, is what minimizes Gamma_i.
    inner, of_memory, of_added = (a.dot(b).double() for a, b in ((memory, added), (memory, memory), (added, added)))
    same = torch.ones_like(inner)
    if method.adaptive == "off":
        return alpha * same, beta * same
    # Differs from Table 1 if alpha and beta differ: the component of beta A along F has to be negated.
    rate = beta if method.interference == "exact" else alpha
    alpha_i = (alpha - rate * inner / of_memory).clamp(max=largest_alpha(method))
    low, high = method.beta_range
    beta_i = ((1 - method.smoothness * alpha) * inner / (method.smoothness * weight * of_added)).clamp(low, high)
    interferes, transfers = (inner <= 0) & (of_memory > 0), (inner > 0) & (of_added > 0)
    return torch.where(interferes, alpha_i, alpha * same), torch.where(transfers, beta_i, beta * same)


def forgetting_term(
    memory: Tensor, added: Tensor, alpha: Tensor | float, beta: Tensor | float, smoothness: float, weight: float
) -> Tensor:
    """Return Gamma_i, eq. 184 (weight p_i) or 189 (weight N p_i)."""
    inner, square = memory.dot(added).double(), added.dot(added).double()
    return smoothness / 2 * beta**2 * weight * square - beta * (1 - smoothness * alpha) * inner


def largest_alpha(method: CFlag) -> float:
    """Return the largest alpha_i that eq. 14 allows."""
    return 2 / (method.smoothness * (1 + method.bias))
