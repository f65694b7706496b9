"""Fed-LoRA: low-rank additions to a frozen model, one for each task, averaged by the server. Hu et al., ICLR 2022.

LoRA (arXiv 2106.09685) trains B and A in W0 + s B A; the config's `model.adapters` names the layers. This is the
federated baseline of Salami et al. (ICLR 2025, arXiv 2410.17961): the server averages A, B and the head. At a task's
end, D_t = s B A is set aside, A is drawn anew, and B is 0. Clients train W0 + s B A. Evaluations merge the tasks:

    individual_mean   W0 + 1/t (D_1 + ... + D_t)
    individual_sum    W0 + D_1 + ... + D_t

The server's W0 + mean(B) mean(A) is not the mean of the clients' models: FFA-LoRA's point.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_types import doc
from torch import Tensor

from raysim.algorithms.parts.task_adapters import (
    begin_adapters,
    lacks_adapters,
    sum_of_tasks,
    weights_of,
    with_additions,
)
from raysim.api import FlatModel, Method, Server, ServerHalf, Weights

Merge = Literal["individual_mean", "individual_sum", "none"]


@dataclass(frozen=True, kw_only=True)
class FedLora(Method):
    """Fed-LoRA: low-rank additions to a frozen model, new ones for each task (Hu et al., ICLR 2022)."""

    merge: Annotated[Merge, doc("what evaluations add to W0; none trains one B and A in all tasks")] = "individual_mean"

    neutral: ClassVar[Mapping[str, object] | None] = {"merge": "none"}

    def waits(self) -> bool:
        """Return whether updates may not cross a task's end, after which they would be of other additions."""
        return self.merge != "none"

    def unfit(self, model: FlatModel) -> str | None:
        """Refuse a model without adapters."""
        return lacks_adapters(model)

    class Server(ServerHalf):
        """Sets a finished task's addition aside, begins a new one, and merges all of them for evaluations."""

        method: FedLora
        finished: list[Tensor] | None = None  # the parameters [P] that ended each task

        def end_task(self, server: Server) -> None:
            """Set D_t aside. Draw a new A, with B = 0."""
            if self.method.merge != "none":
                self.finished = [*(self.finished or ()), server.parameters]
                begin_adapters(server, self.name)

        def evaluated(self, server: Server) -> Weights | None:
            """Return W0 + the sum or the mean of the tasks' additions, the present task's among them."""
            if not self.finished:
                return None
            tasks = server.task + 1 if self.method.merge == "individual_mean" else 1
            total = sum_of_tasks(server.network, self.finished)
            added = {name: addition / tasks for name, addition in total.items()}
            return with_additions(server.network, weights_of(server), added, 1 / tasks)
