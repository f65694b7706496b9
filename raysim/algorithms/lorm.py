"""LoRM: low-rank additions that the server merges in closed form, A and B in turns. Salami et al., ICLR 2025.

"Closed-form merging of parameter-efficient modules for federated continual learning", arXiv 2410.17961. For a client's
layer inputs X_k, G_k = X_k X_k^T is its Gram matrix. In rounds 1, 3, ... of a task the clients train B and the head
with the common A; in rounds 2, 4, ... A and the head with the common B. The server merges what they trained:

    B = [sum_k B_k A G_k] A^T [A G A^T]^+        minimizes sum_k || (B A - B_k A) X_k ||^2, with G = sum_k G_k
    A = [sum_k A_k G_k] G^+                      minimizes sum_k || (B A - B A_k) X_k ||^2
    head: W = [sum_k W_k G_k] G^+                RegMean (Jin et al., ICLR 2023)

A Gram's entries off the diagonal are first multiplied by alpha. All else is averaged. At a task's end the clients send
their Grams G_t of the merged model. From the second task on, evaluations use W0 + [sum_t B_t A_t G_t] [sum_t G_t]^+,
which minimizes sum_t || (D - B_t A_t) X_t ||^2 over D. Each task trains new A and B, on W0 alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Le, doc
from torch import Tensor

from raysim.algorithms.parts.finished_task import finished_task
from raysim.algorithms.parts.grams import gram_matrices, pack, pseudo_inverse, times, unpack
from raysim.algorithms.parts.task_adapters import (
    A,
    B,
    additions,
    begin_adapters,
    entries,
    hold,
    lacks_adapters,
    lacks_matrices,
    sum_of_tasks,
    weights_of,
    with_additions,
)
from raysim.api import (
    Broadcast,
    Client,
    ClientHalf,
    Delta,
    FlatModel,
    Method,
    Plan,
    Request,
    Server,
    ServerHalf,
    Step,
    Term,
    Terms,
    Weights,
)

Fraction = Annotated[float, Ge(0), Le(1)]


@dataclass(frozen=True, kw_only=True)
class LoRM(Method):
    """LoRM: low-rank additions merged in closed form, A and B in turns (Salami et al., ICLR 2025)."""

    train: Annotated[
        Literal["alternate", "a", "b"], doc("alternate begins each task with B; a or b trains one only")
    ] = "alternate"
    alpha: Annotated[Fraction, doc("the factor of Gram entries off the diagonal; 0 sends diagonals only")] = 0.0
    alpha_head: Annotated[Fraction, doc("the same for the head's Gram")] = 0.5
    gram_at: Annotated[
        Literal["trained", "averaged"], doc("the model of the layer inputs: the trained one, or with the mean of tasks")
    ] = "trained"

    needs: ClassVar = frozenset({"one_head", "barrier"})
    replies: ClassVar = {"grams": "sum"}

    def head_parts(self) -> int:
        """Return 1: the head's weight is merged."""
        return 1

    def unfit(self, model: FlatModel) -> str | None:
        """Refuse a model without adapters, or with adapters that are no matrices [outputs, inputs]."""
        return lacks_matrices(model) or lacks_adapters(model)

    def layers(self, model: FlatModel, head: bool) -> dict[str, float]:
        """Return alpha by the name of the weight that has a layer's inputs: each A, and the head's weight."""
        adapted = dict.fromkeys((name for name in model.layout if name.endswith(A)), self.alpha)
        return adapted | ({model.head[0]: self.alpha_head} if head else {})

    class Client(ClientHalf):
        """Trains the head, and A or B. Sends their changes times its Grams, and the Grams."""

        method: LoRM
        trained: str = "b"
        total: int = 1  # the samples of the round's clients together; Grams are divided by it
        tasks: int = 0  # how many are finished
        fixed: Tensor | None = None  # bool [P]: the entries that this round does not train

        def start(self, client: Client, message: tuple[str, int, int]) -> None:
            """Find what this round does not train."""
            self.trained, self.total, self.tasks = message
            self.fixed = entries(client.model, A if self.trained == "b" else B)

        def gradient(self, step: Step, gradient: Tensor) -> Tensor:
            """Return the gradient without that of the fixed matrices."""
            assert self.fixed is not None
            return gradient.masked_fill_(self.fixed, 0)

        def observe(self, step: Step) -> None:
            """Undo the optimizer's decay of the fixed matrices, if it has any."""
            assert self.fixed is not None
            hold(step, self.fixed)

        def finish(self, client: Client, delta: Delta) -> tuple[Delta, Terms]:
            """Send (B_k - B) A G_k A^T or (A_k - A) G_k, (W_k - W) G_k of the head, and the Grams.

            The server's mean adds up the changes times the clients' shares, so each is divided by its share.
            """
            model, parameters = client.model, delta.parameters.clone()
            grams, change, current = (
                self._grams(client, client.arrived, head=True),
                model.named(parameters),
                model.named(model.parameters),
            )
            for name, gram in grams.items():
                if name.endswith(A) and self.trained == "b":
                    a, of_b = current[name].flatten(1), change[name.removesuffix(A) + B]
                    of_b.copy_((of_b.flatten(1) @ (times(a, gram) @ a.T)).view_as(of_b) / client.share)
                else:
                    change[name].copy_(times(change[name].flatten(1), gram).view_as(change[name]) / client.share)
            return Delta(parameters, delta.buffers), {"grams": Term(pack(grams))}

        def inputs(self, client: Client, message: tuple[int, int]) -> Terms:
            """Send the Grams of the adapted layers at the model that ended a task."""
            self.total, self.tasks = message
            return {"grams": Term(pack(self._grams(client, finished_task(client), head=False)))}

        def _grams(self, client: Client, positions: Tensor, head: bool) -> dict[str, Tensor]:
            """Return the Grams over these samples at the client's model, divided by the number of the clients' samples.

            With gram_at=averaged the model is W0 + (D_1 + ... + D_(t-1) + B A) / t.
            """
            model, own = client.model, client.model.copy()
            if self.method.gram_at == "averaged" and self.tasks:
                finished = [client.from_server(f"{self.name}.{task}") for task in range(self.tasks)]
                share = 1 / (self.tasks + 1)
                mean = {name: share * total for name, total in sum_of_tasks(model, finished).items()}
                model.load(with_additions(model, own, mean, share))
            grams = gram_matrices(client, positions, self.method.layers(model, head), self.name)
            model.load(own)
            return {name: gram / self.total for name, gram in grams.items()}

    class Server(ServerHalf):
        """Merges what the clients trained, and at a task's end the tasks."""

        method: LoRM
        finished: list[Tensor] | None = None  # the parameters [P] that ended each task
        products: dict[str, Tensor] | None = None  # sum_t B_t A_t G_t, by the name of the frozen weight, in float64
        grams: dict[str, Tensor] | None = None  # sum_t G_t

        def announce(self, server: Server) -> tuple[tuple[str, int, int], Sequence[Broadcast]]:
            """Send which matrix is trained, the cohort's number of samples, and the finished tasks' adapters."""
            samples = sum(server.size(client) for client in server.cohort)
            return (self._trained(server), samples, len(self.finished or ())), self._past()

        def update(self, server: Server, delta: Delta, reply: Mapping[str, Any]) -> Delta:
            """Merge B or A, and the head's weight, in closed form. The rest is the mean."""
            method, network, parameters = self.method, server.network, delta.parameters.clone()
            change, current = network.named(parameters), network.named(server.parameters)
            for name, gram in unpack(reply["grams"], method.layers(network, head=True), network.widths).items():
                target = name
                if name.endswith(A) and self._trained(server) == "b":
                    a, target = current[name].flatten(1).double(), name.removesuffix(A) + B
                    gram = times(a, gram) @ a.T
                change[target].copy_(merge(current[target], change[target], gram) - current[target])
            return Delta(parameters, delta.buffers)

        def end_task(self, server: Server) -> Plan:
            """Request the Grams of the model that ends the task. Begin new adapters."""
            method, network, finished = self.method, server.network, self.finished or []
            samples = sum(map(server.size, server.present))
            reply = yield Request("inputs", (samples, len(finished)), to="everyone", broadcasts=self._past())
            products, grams = dict(self.products or {}), dict(self.grams or {})
            added = additions(network, server.parameters)
            layers = method.layers(network, head=False)
            # without a client that is present there is no reply
            found = unpack(reply["grams"], layers, network.widths) if "grams" in reply else {}
            for name, gram in found.items():
                weight, total = f"{name.removesuffix(A)}.base.weight", samples * gram
                product = times(added[weight].flatten(1).double(), total)
                products[weight] = products[weight] + product if weight in products else product
                grams[weight] = grams[weight] + total if weight in grams else total
            self.finished, self.products, self.grams = [*finished, server.parameters], products, grams
            begin_adapters(server, self.name)

        def evaluated(self, server: Server) -> Weights | None:
            """Return W0 + E H^+ after the second and later tasks; in between W0 + the mean of the tasks' additions."""
            network, tasks = server.network, server.task + 1
            if not self.finished:
                return None
            if len(self.finished) == tasks > 1:
                return with_additions(network, weights_of(server), self._merged(server))
            mean = {name: total / tasks for name, total in sum_of_tasks(network, self.finished).items()}
            return with_additions(network, weights_of(server), mean, 1 / tasks)

        def _merged(self, server: Server) -> dict[str, Tensor]:
            """Return [sum_t B_t A_t G_t] [sum_t G_t]^+ of each adapted layer, in the weight's shape."""
            assert self.products is not None
            assert self.grams is not None
            frozen, dtype = server.network.frozen, server.parameters.dtype
            inverses = {name: pseudo_inverse(gram, dtype) for name, gram in self.grams.items()}
            found = {name: times(product, inverses[name]) for name, product in self.products.items()}
            return {name: value.to(dtype).view_as(frozen[name]) for name, value in found.items()}

        def _trained(self, server: Server) -> str:
            """Return the matrix of this round: b in a task's rounds 1, 3, ..."""
            of_task = server.round - server.progress.began
            return "ab"[of_task % 2] if self.method.train == "alternate" else self.method.train

        def _past(self) -> list[Broadcast]:
            """Return the adapters of the finished tasks, which clients need with gram_at=averaged."""
            if self.method.gram_at == "trained":
                return []
            return [Broadcast(f"{self.name}.{task}", 0, one) for task, one in enumerate(self.finished or ())]


def merge(current: Tensor, weighted: Tensor, gram: Tensor) -> Tensor:
    """Return [sum_k W_k G_k] G^+, in the shape and dtype of W.

    Args:
        current: W, from which the clients began.
        weighted: sum_k (W_k - W) G_k, in the same shape.
        gram: G, the sum of G_k.
    """
    total = times(current.flatten(1).double(), gram) + weighted.flatten(1).double()
    return times(total, pseudo_inverse(gram, current.dtype)).to(current.dtype).view_as(current)
