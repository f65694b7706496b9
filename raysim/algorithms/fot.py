"""FOT: server updates do not change layers' outputs on earlier tasks' inputs. Bakman et al., ICLR 2024.

"Federated orthogonal training: mitigating global catastrophic forgetting in continual federated learning", arXiv
2309.01289. After a task each client i sends, for every layer, a random sketch A_i Omega_i of the layer's inputs
A_i [d, n]. Their sum is a sketch of all clients' inputs side by side,

    S = sum_i A_i Omega_i = [A_1 .. A_N] [Omega_1; ..; Omega_N],        E[S S^T] = k sum_i A_i A_i^T,

from which the server takes the few directions O that hold most of their energy. From then on its update of the layer's
weight loses its part in their span: D <- D - D O O^T. Clients train as in FedAvg.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from annotated_types import Ge, Le, doc
from torch import Tensor

from raysim.algorithms.parts.finished_task import finished_task
from raysim.algorithms.parts.subspace import HeadUse, extend_basis, projected_layers, remove_span
from raysim.api import Client, ClientHalf, Delta, Method, Plan, Request, Server, ServerHalf, Term, Terms, to_device


@dataclass(frozen=True, kw_only=True)
class Fot(Method):
    """FOT: updates orthogonal to each layer's inputs in earlier tasks, on the server (Bakman et al., ICLR 2024)."""

    epsilon: Annotated[float, Ge(0), Le(1), doc("the share of the sketched energy that the directions hold")] = 0.94
    increment: Annotated[float, Ge(0), doc("what epsilon grows by at every further task, up to 1")] = 0.0
    columns: Annotated[int, Ge(1), doc("k of a layer's sketch, in multiples of d; with more it is less random")] = 1
    samples: Annotated[int | None, Ge(1), doc("samples of the task that a client sketches; null is all")] = None
    head: Annotated[HeadUse, doc("free omits the last layer, as for tasks with separate heads")] = "project"

    neutral: ClassVar = {"epsilon": 0.0}
    replies: ClassVar = {"sketch": "sum"}

    def head_parts(self) -> int:
        """Return 1 if the head is excluded."""
        return int(self.head == "free")

    class Client(ClientHalf):
        """Sketches the inputs of its layers."""

        method: Fot

        def sketch(self, client: Client, message: None) -> Terms:
            """Send A Omega [d, k] of each layer, one after the other, at the model that ended the task."""
            model, method, draws = client.model, self.method, client.generator(self.name)
            widths = projected_layers(model, method.head)
            sketches = {name: model.parameters.new_zeros(d, d * method.columns) for name, d in widths.items()}
            positions = finished_task(client)
            drawn = positions[torch.from_numpy(draws.permutation(len(positions)))[: method.samples]]
            for part in client.batches(len(drawn), single=True):
                x, _ = client.samples(drawn[part])
                for name, rows in model.inputs(x, model.parameters, model.buffers, widths).items():
                    omega = to_device(random_matrix(draws, len(rows), sketches[name].shape[1]), model.device)
                    sketches[name].addmm_(rows.T, omega.to(model.dtype))
            return {"sketch": Term(torch.cat([sketch.view(-1) for sketch in sketches.values()]))}

    class Server(ServerHalf):
        """Keeps a basis for each layer, and projects every update."""

        method: Fot
        tasks: int = 0
        bases: dict[str, Tensor] | None = None  # O [d, m], by the layer's weight

        def update(self, server: Server, delta: Delta, reply: Mapping[str, Any]) -> Delta:
            """Remove the span of the bases from the mean update, layer by layer."""
            if self.bases is None:
                return delta
            parameters = delta.parameters.clone()
            remove_span(server.network.named(parameters), self.bases)
            return Delta(parameters, delta.buffers)

        def end_task(self, server: Server) -> Plan:
            """Extend the bases by the sketches of all present clients."""
            if not self.method.epsilon + self.method.increment:
                return
            epsilon = min(self.method.epsilon + self.tasks * self.method.increment, 1.0)
            reply = yield Request("sketch", to="everyone")
            self.tasks += 1
            if "sketch" not in reply:  # no client is present
                return
            widths, bases = projected_layers(server.network, self.method.head), self.bases or {}
            flat = reply["sketch"].double().split([d * d * self.method.columns for d in widths.values()])
            sketches = {name: part.view(d, -1) for (name, d), part in zip(widths.items(), flat, strict=True)}
            blank = server.parameters.new_zeros
            self.bases = {
                name: extend_basis(bases.get(name, blank(len(sketch), 0)), sketch @ sketch.T, epsilon)
                for name, sketch in sketches.items()
            }


def random_matrix(draws: np.random.Generator, rows: int, columns: int) -> Tensor:
    """Return rows of Omega, [rows, columns], of independent standard normal numbers."""
    return torch.from_numpy(draws.standard_normal((rows, columns), dtype=np.float32))
