"""GPM: steps do not change layers' outputs on earlier tasks' inputs. Saha, Garg and Roy, ICLR 2021, arXiv 2103.09762.

After a task each layer's inputs are reduced to the few directions M that hold most of their energy, the gradient
projection memory. From then on every gradient of the layer's weight loses its part in M's span,

    G <- G - G M M^T

so that steps of SGD do not change the layer's outputs on those inputs. Federated as in Fed-A-GEM's Table 1
(FL+GPM): each client keeps the memory of its own data, and the server averages as in FedAvg.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Le, MinLen, doc
from torch import Tensor

from raysim.algorithms.parts.subspace import HeadUse, extend_basis, projected_layers, remove_span
from raysim.api import Client, ClientHalf, Method, Step

Thresholds = Annotated[Sequence[Annotated[float, Ge(0), Le(1)]], MinLen(1)]


@dataclass(frozen=True, kw_only=True)
class Gpm(Method):
    """GPM: steps orthogonal to each layer's inputs in earlier tasks (Saha et al., ICLR 2021, arXiv 2103.09762)."""

    threshold: Annotated[Thresholds, doc("the share of energy kept, by layer; the last is for the rest")] = (0.95, 0.99)
    per_task: Annotated[float, Ge(0), doc("what the thresholds grow by at every further task, up to 1")] = 0.0
    samples: Annotated[int, Ge(1), doc("samples of a task that the basis is computed from")] = 125
    head: Annotated[HeadUse, doc("free omits the last layer, as for tasks with separate heads")] = "project"
    freeze_rest: Annotated[bool, doc("from task 2 on, whether biases and normalization keep their values")] = True

    neutral: ClassVar = {"threshold": (0.0,)}
    needs: ClassVar = frozenset({"undecayed_sgd"})

    def head_parts(self) -> int:
        """Return 1 if the head is excluded."""
        return int(self.head == "free")

    def threshold_of(self, layer: int, tasks: int) -> float:
        """Return a layer's threshold, given the number of tasks in the memory."""
        threshold = self.threshold[min(layer, len(self.threshold) - 1)]
        return min(threshold + tasks * self.per_task, 1.0)

    class Client(ClientHalf):
        """Keeps a basis for each layer, and projects every gradient."""

        method: Gpm
        tasks: int = 0
        bases: dict[str, Tensor] | None = None  # M [d, m], by the layer's weight

        def begin_task(self, client: Client) -> None:
            """Extend the memory by the finished samples, at the received model."""
            method = self.method
            if not len(client.finished) or not max(method.threshold) + method.per_task:
                return
            widths = projected_layers(client.model, method.head)
            moments, bases = self._moments(client, widths), self.bases or {}
            blank = client.model.parameters.new_zeros
            self.bases = {
                name: extend_basis(bases.get(name, blank(d, 0)), moments[name], method.threshold_of(layer, self.tasks))
                for layer, (name, d) in enumerate(widths.items())
            }
            self.tasks += 1

        def gradient(self, step: Step, gradient: Tensor) -> Tensor:
            """Remove the memory's span from layers' gradients; with `freeze_rest`, set all other gradients to zero."""
            if self.bases is None:
                return gradient
            model = step.client.model
            parts = model.named(gradient)
            remove_span(parts, self.bases)
            if self.method.freeze_rest:
                free = model.head if self.method.head == "free" else ()
                for name in parts.keys() - self.bases.keys() - set(free):
                    parts[name].zero_()
            return gradient

        def _moments(self, client: Client, widths: dict[str, int]) -> dict[str, Tensor]:
            """Return R R^T [d, d], float64, for each layer's inputs R on finished samples, not augmented."""
            model, draws = client.model, client.generator(self.name)
            order = torch.from_numpy(draws.permutation(len(client.finished)))
            drawn = client.finished[order[: self.method.samples]]
            moments = {name: model.parameters.new_zeros(d, d, dtype=torch.float64) for name, d in widths.items()}
            with client.rng_scope(self.name):
                for part in client.batches(len(drawn), single=True):
                    x, _ = client.samples(drawn[part])
                    for name, rows in model.inputs(x, model.parameters, model.buffers, widths).items():
                        moments[name].addmm_(rows.double().T, rows.double())
            return moments
