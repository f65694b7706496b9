"""FedTrack: C-FLAG with no memory (alpha = 0) and no adaptive rates. Mitra et al., CDC 2021."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_types import Gt, doc

from raysim.algorithms.c_flag import CFlag
from raysim.api import Method


@dataclass(frozen=True, kw_only=True)
class FedTrack(Method):
    """FedTrack: steps along delayed gradients that track the federation's (Mitra et al., CDC 2021)."""

    beta: Annotated[float | None, Gt(0), doc("the learning rate; null is the training's")] = None
    order: Annotated[Literal["random", "cyclic", "reshuffled"], doc("the component that a step takes")] = "random"
    table: Annotated[Literal["rebuild", "keep"], doc("rebuild: one more pass in every round")] = "rebuild"
    mode: ClassVar = "iag"

    needs: ClassVar = frozenset({"plain_sgd", "unclipped"})
    frugal: ClassVar = CFlag.frugal
    replies: ClassVar = {"gradient": "mean"}
    Client: ClassVar = CFlag.Client
    Server: ClassVar = CFlag.Server
