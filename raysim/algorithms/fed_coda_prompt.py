"""Fed-CODA-P: FedAvg of prefixes that are weighted sums of components, to which tasks add. Smith et al., CVPR 2023.

"CODA-Prompt: continual decomposed attention-based prompting for rehearsal-free continual learning", arXiv 2211.13218.
A task trains its own components, with their keys and attention vectors. It uses those of earlier tasks, which stay as
they are. When a task begins, the server draws its components orthonormal to the earlier ones. A penalty keeps them so.

The federated method is a baseline of LoRM (Salami et al., ICLR 2025). Its code has no penalty (mu=0).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, doc
from torch import Tensor

from raysim.algorithms.parts.prompt_slots import (
    CodaPrompts,
    components_in,
    draw_orthonormal_rows,
    prompts_of,
    unfit_prompts,
)
from raysim.api import ClientHalf, Delta, FlatModel, Method, Server, ServerHalf, Step, Weights


@dataclass(frozen=True, kw_only=True)
class FedCodaPrompt(Method):
    """Fed-CODA-P: trains components of prefixes, some for each task (Smith et al., CVPR 2023)."""

    mu: Annotated[float, Ge(0), doc("lambda: weight of the orthogonality penalty")] = 0.1
    expand: Annotated[bool, doc("draw a task's components when it begins, and keep those of earlier tasks")] = True

    neutral: ClassVar = {"mu": 0.0, "expand": False}
    needs: ClassVar = frozenset({"one_order"})

    def unfit(self, model: FlatModel) -> str | None:
        """Refuse a model without components."""
        return unfit_prompts(model, CodaPrompts)

    class Client(ClientHalf):
        """Adds the penalty. The model leaves components of earlier tasks without a gradient."""

        method: FedCodaPrompt

        def penalty(self, step: Step) -> Tensor:
            """Return mu * (sum over components, keys and attention vectors M of the mean square of M M^T - I)."""
            if not self.method.mu:
                return step.loss.new_zeros(())
            return self.method.mu * prompts_of(step.client.model, CodaPrompts).orthogonality()

    class Server(ServerHalf):
        """Draws a task's components, and keeps those of earlier tasks."""

        method: FedCodaPrompt

        def update(self, server: Server, delta: Delta, reply: Mapping[str, Any]) -> Delta:
            """Keep the components of earlier tasks, which weight decay or the server's momentum would change."""
            if not self.method.expand:
                return delta
            change = delta.parameters.clone()
            start, _ = prompts_of(server.network, CodaPrompts).rows_of(server.task)
            for rows in components_in(server.network, change):
                rows[:start] = 0
            return Delta(change, delta.buffers)

        def end_task(self, server: Server) -> None:
            """Draw the next task's components, orthonormal to each other and orthogonal to the earlier ones."""
            if not self.method.expand or server.progress.is_final:
                return
            parameters = server.parameters.clone()
            start, stop = prompts_of(server.network, CodaPrompts).rows_of(server.task + 1)
            with server.rng_scope(self.name):
                for rows in components_in(server.network, parameters):
                    rows.copy_(draw_orthonormal_rows(rows, start, stop))
            server.replace_model(Weights(parameters, server.buffers, server.integers))
