"""Re-Fed: each client caches the samples with the largest gradients on a personalized model. Li et al., CVPR 2024.

The messages are FedAvg's. Once per client and task, before it trains on the new data, a client trains a personalized
informative model (PIM) on its stored samples. It caches the samples with the largest gradients in this training.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt, Lt, doc
from torch import Tensor
from torch.func import vmap

from raysim.algorithms.parts.exemplars import herd, in_turn, unit_features
from raysim.algorithms.parts.personalized_model import Vectors, step_with_pull
from raysim.algorithms.parts.sample_gradients import squared_norms
from raysim.api import Client, ClientHalf, Diverged, MemoryUse, Method, Setting, Weights, to_device


@dataclass(frozen=True, kw_only=True)
class ReFed(Method):
    """Re-Fed: cache the samples with the largest gradients on a personalized model (Li et al., CVPR 2024)."""

    lam: Annotated[float, Gt(0), Lt(1), doc("lambda: near 0 the PIM stays global, near 1 it is local")] = 0.5
    epochs: Annotated[int, Ge(1), doc("s, appendix C: epochs of the PIM at a boundary")] = 40
    emphasis: Annotated[Literal["early", "average", "late"], doc("weights of eq. 5; late: table 10")] = "early"
    importance: Annotated[Literal["pim", "random", "loss", "herding"], doc("pim is the paper's")] = "pim"
    budget: Annotated[Literal["cached", "total"], doc("total: memory.capacity counts new data, too")] = "cached"
    norm: Annotated[Literal["squared", "plain"], doc("G as in eq. 4, or as in its text")] = "squared"
    personal: Annotated[Literal["trained", "pim"], doc("what is tested: as trained, or the last PIM")] = "trained"

    needs: ClassVar = frozenset({"boundaries", "earlier_logits"})
    instead: ClassVar = {"sample_gradients": "importance=loss"}
    memory: ClassVar = MemoryUse(policies=("importance",), fills=("boundary",), per=("client",))

    @property
    def pull(self) -> float:
        """Return q(lambda), below eq. 3."""
        return (1 - self.lam) / (2 * self.lam)

    def head_parts(self) -> int:
        """Return 1 if the score uses the head's input."""
        return int(self.importance == "herding")

    def takes_sample_gradients(self) -> bool:
        """Return whether the score is of single samples' gradients."""
        return self.importance == "pim"

    def refusal(self, setting: Setting) -> str | None:
        """Refuse herding, which is by class, if there are no classes."""
        if setting.classes or self.importance != "herding":
            return None
        return "found importance=herding, allowed without classes: pim, random or loss; or set objective=classification"

    def room(self, capacity: int, arrived: int) -> int:
        """Return how many samples may be cached."""
        return capacity if self.budget == "cached" else max(capacity - arrived, 0)

    class Client(ClientHalf):
        """Chooses the cache, Algorithm 1; an epoch then runs over the cache and the new data, eq. 6."""

        method: ReFed
        pim: Vectors | None = None  # v after the last boundary, if it is evaluated

        # Differs from Algorithm 1, which does so in every round: after the first, uncached samples are gone.
        def begin_task(self, client: Client) -> None:
            """Choose the cache from the last cache and the samples that arrived since."""
            assert client.memory is not None
            stored = torch.cat([client.memory.entries().positions, client.finished])
            room = self.method.room(client.memory.kind.capacity, len(client.arrived))
            if 0 < room < len(stored):
                stored = stored[self._ranking(client, stored)]
            client.memory.replace(stored[:room].sort().values)

        def samples(self, client: Client) -> Tensor:
            """Return the cache and the samples that have arrived."""
            assert client.memory is not None
            return torch.cat([client.memory.entries().positions, client.arrived])

        def personalize(self, client: Client, weights: Weights) -> Weights:
            """Return the PIM, if it is evaluated and there is one."""
            return weights if self.pim is None else Weights(*self.pim)

        def _ranking(self, client: Client, stored: Tensor) -> Tensor:
            """Return indices (int64) into `stored`, which is ascending, best first; ties go to the lower position."""
            rankings = {
                "pim": self._by_norms,
                "random": self._at_random,
                "loss": self._by_loss,
                "herding": self._herded,
            }
            return rankings[self.method.importance](client, stored)

        def _at_random(self, client: Client, stored: Tensor) -> Tensor:
            return torch.from_numpy(client.generator(self.name).permutation(len(stored)))

        def _by_loss(self, client: Client, stored: Tensor) -> Tensor:
            """Return the samples by their loss at the received model, largest first."""
            model = client.model
            losses = [model.parameters.new_zeros(0)]
            with client.rng_scope(self.name):
                for part in client.batches(len(stored), single=True):
                    x, y = client.samples(stored[part])
                    logits = model.logits(x, model.parameters, model.buffers)
                    losses.append(vmap(client.loss)(logits[:, None], y[:, None]))
            return torch.cat(losses).cpu().sort(descending=True, stable=True).indices

        def _herded(self, client: Client, stored: Tensor) -> Tensor:
            """Return each class's samples in the order of iCaRL's herding, with the classes in turn."""
            labels = client.labels(stored)
            places = [(labels == label).nonzero()[:, 0] for label in labels.unique().tolist()]
            return in_turn([of[herd(unit_features(client, stored[of], self.name), len(of))] for of in places])

        def _by_norms(self, client: Client, stored: Tensor) -> Tensor:
            norms = self._norms(client, stored)
            passes = torch.arange(1, self.method.epochs + 1, dtype=torch.float64)[:, None]  # p
            weights = torch.ones_like(passes) if self.method.emphasis == "average" else 1 / passes
            best_first = (weights * norms).sum(0).sort(descending=True, stable=True).indices  # I, eq. 5
            return best_first.flip(0) if self.method.emphasis == "late" else best_first

        def _norms(self, client: Client, stored: Tensor) -> Tensor:
            """Train the PIM, eq. 3, and return G^p of every stored sample, eq. 4: float64 [epochs, n], on the CPU.

            The PIM takes the place of the model, which is restored bit for bit; its draws are from separate streams.
            """
            model = client.model
            received, shuffle = model.weights(), client.generator(self.name)
            norms = torch.zeros(self.method.epochs, len(stored), dtype=model.dtype, device=model.device)
            with client.rng_scope(self.name):
                for of_epoch in norms:
                    order = torch.from_numpy(shuffle.permutation(len(stored)))
                    for part in client.batches(len(stored), single=True):
                        x, y = client.samples(stored[order[part]])
                        of_epoch[to_device(order[part], model.device)] = squared_norms(model, client.loss, x, y)
                        if not (model.normalises and len(y) == 1):  # BatchNorm has no statistics of one sample
                            self._step(client, x, y)
            if self.method.personal == "pim":
                self.pim = tuple(vector.clone() for vector in model.vectors)
            model.load(received)
            if not norms.isfinite().all():
                raise Diverged(
                    f"client {client.id} diverged in round {client.round} ({self.name}, its personalised model); "
                    "a smaller training.optimizer.lr may help"
                )
            return (norms if self.method.norm == "squared" else norms.sqrt()).double().cpu()

        def _step(self, client: Client, x: Tensor, y: Tensor) -> None:
            # Differs from eq. 3, whose sum over all samples diverges at the paper's rates: a batch's mean here.
            model = client.model
            model.module.train()
            gradient = model.gradient_of(client.loss(model(x), y))
            step_with_pull(model.parameters, gradient, client.received, client.lr, self.method.pull)
