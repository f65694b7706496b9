"""NCCL: adapt each step's rates for the memory's and the batch's gradients. Han et al., UAI 2023.

arXiv 2404.05555, at every client, with FedAvg's server: NCCL-FL of Keshri, Shah & Prasad (AISTATS 2025, arXiv
2411.07959). The rates are those of their Table 1, for one client and one step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt, doc
from torch import Tensor

from raysim.algorithms.parts import replay
from raysim.api import ClientHalf, MemoryUse, Method, Setting, Step


@dataclass(frozen=True, kw_only=True)
class Nccl(Method):
    """NCCL: adaptive rates on memory and batch at every client's step (Han et al., UAI 2023, arXiv 2404.05555)."""

    alpha: Annotated[
        float | None, Gt(0), doc("alpha, the learning rate on memory and batch; null is the training's")
    ] = None
    smoothness: Annotated[float, Gt(0), doc("L, how fast the losses' gradients change")] = 5.0
    sample_size: Annotated[int, Ge(1), doc("memory samples of a step's gradient, drawn anew for each step")] = 200
    cap: Annotated[bool, doc("the batch's learning rate is at most alpha")] = True

    needs: ClassVar = frozenset({"plain_sgd", "unclipped", "earlier_logits"})
    memory: ClassVar = MemoryUse(
        policies=("class_balanced", "class_ring", "task_ring", "reservoir", "sliding_window", "random"),
        fills=("boundary",),
    )

    def refusal(self, setting: Setting) -> str | None:
        """Refuse a rate that is too large for the smoothness."""
        alpha = setting.lr if self.alpha is None else self.alpha
        if alpha * self.smoothness >= 1:
            whose = " (training.optimizer.lr)" if self.alpha is None else ""
            return (
                f"found alpha={alpha:g}{whose}, allowed: less than {1 / self.smoothness:g}, as the rates need "
                "1 - smoothness * alpha > 0"
            )
        return None

    class Client(ClientHalf):
        """Takes every step along both gradients: w <- w - a F - b g."""

        method: Nccl

        def gradient(self, step: Step, gradient: Tensor) -> Tensor:
            """Return (a F + b g) / lr, with F the gradient on a fresh draw from the memory."""
            client = step.client
            entries = replay.draw_entries(client, self.method.sample_size, self.name)
            if entries is None or not client.lr:
                return gradient
            memory = replay.gradient_on(client, entries, self.name)
            alpha = client.lr if self.method.alpha is None else self.method.alpha
            of_memory, of_batch = adapt_step_rates(self.method, memory, gradient, alpha)
            usable = memory.dot(memory) > 0  # a perfectly fitted memory has no gradient
            return torch.where(usable, (of_memory * memory + of_batch * gradient) / client.lr, gradient)


def adapt_step_rates(method: Nccl, memory: Tensor, batch: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    """Return a and b, given F and g [P].

    Interference, <F, g> <= 0: a = alpha (1 - <F, g> / |F|^2) and b = alpha. The step then has as much along F as alpha
    F. Transference: a = alpha and b = (1 - alpha L) <F, g> / (L |g|^2), where the bound on the memory's loss is least.
    There is no `if` on a tensor, which would synchronize with the GPU.
    """
    inner, length, smoothness = memory.dot(batch), batch.dot(batch), method.smoothness
    against, same = inner <= 0, torch.full_like(inner, alpha)
    transfer = (1 - alpha * smoothness) * inner / (smoothness * length)
    if method.cap:
        transfer = transfer.clamp(max=alpha)
    return torch.where(against, alpha - alpha * inner / memory.dot(memory), same), torch.where(against, same, transfer)
