"""The trained prompts of a run's model, for the methods that work on them."""

from collections.abc import Iterator
from typing import TypeVar

from torch import Tensor

from raysim.models.flat import FlatModel
from raysim.models.orthonormal import draw_orthonormal_rows
from raysim.models.prompts import CodaPrompts, DualPrompts, L2PPrompts, PrefixPrompts, Prompts

__all__ = [
    "CodaPrompts",
    "DualPrompts",
    "L2PPrompts",
    "components_in",
    "draw_orthonormal_rows",
    "prompts_of",
    "unfit_prompts",
]

KINDS: dict[type[Prompts], str] = {L2PPrompts: "l2p", DualPrompts: "dual", CodaPrompts: "coda", PrefixPrompts: "prefix"}
AnyPrompts = TypeVar("AnyPrompts", bound=Prompts)


def prompts_of(model: FlatModel, kind: type[AnyPrompts]) -> AnyPrompts:
    """Return the model's prompts of this kind. `unfit_prompts` has refused models without them."""
    return next(part for part in model.module.modules() if isinstance(part, kind))


def unfit_prompts(model: FlatModel, kind: type[Prompts]) -> str | None:
    """Return why a model is not suitable for a method that trains prompts of this kind. None if it has them."""
    parts = [part for part in model.module.modules() if isinstance(part, Prompts)]
    if any(isinstance(part, kind) for part in parts):
        return None
    others = [name for other, name in KINDS.items() if any(isinstance(part, other) for part in parts)]
    found = f"prompts of the kind {others[0]}" if others else "no prompts in the model"
    allowed = f"a model with prompts of the kind {KINDS[kind]}"
    return f"found {found}, allowed: {allowed}; set model.prompts={{kind: {KINDS[kind]}}} of vit or hugging_face"


def components_in(model: FlatModel, vector: Tensor) -> Iterator[Tensor]:
    """Yield views [pool, ...] of a vector [P]: the components, keys and attention vectors of each block."""
    views = model.named(vector)
    for name, parameter in model.module.named_parameters():
        if name in views and any(parameter is table for table in prompts_of(model, CodaPrompts).tables):
            yield views[name]
