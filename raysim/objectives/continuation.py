"""Prompts and references of texts, and what a model appends to prompts: the most likely tokens, or given ones.

Targets are int64 [n, length] with IGNORED where nothing counts. The first run of counted targets is the reference. The
target of the prompt's last position is the reference's first token.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from raysim.objectives.objective import IGNORED, Inputs, Model

IDS, MASK = "input_ids", "attention_mask"
PADDING = 0  # an id that the mask hides, or that comes after everything that a causal model looks at
NONE = -1  # in place of an id where nothing was generated


def find_runs(targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return each row's first position with a counted target, and how many follow one another: int64 [n] each."""
    counted = targets != IGNORED
    first = counted.int().argmax(1)
    before = torch.arange(targets.shape[1], device=targets.device) < first[:, None]
    return first, (counted | before).int().cumprod(1).sum(1) - first


def references_in(targets: Tensor) -> list[list[int]]:
    """Return the ids of each row's reference."""
    rows = zip(targets.cpu(), *(part.tolist() for part in find_runs(targets)), strict=True)
    return [row[first : first + length].tolist() for row, first, length in rows]


class Continuation:
    """Samples of which only the prompts are left, at the left, and the tokens that are appended.

    Args:
        x: the samples: ids [n, length], or `input_ids` and `attention_mask`.
        ends: the position of each prompt's last token, int64 [n].
    """

    def __init__(self, x: Inputs, ends: Tensor) -> None:
        ids, mask = (x[IDS], x.get(MASK)) if isinstance(x, Mapping) else (x, None)
        beyond = torch.arange(ids.shape[1], device=ids.device) > ends[:, None]
        self._ids = ids.masked_fill(beyond, PADDING)
        self._mask = None if mask is None else mask.masked_fill(beyond, 0)
        self._rows = torch.arange(len(ids), device=ids.device)
        self._names = isinstance(x, Mapping)
        self.ends = ends

    @property
    def have_room(self) -> Tensor:
        """Which rows have a position for another token, bool [n]."""
        return self.ends + 1 < self._ids.shape[1]

    def append(self, ids: Tensor, rows: Tensor) -> None:
        """Append one of the ids [n] to each of these rows (bool [n]), which have room."""
        self.ends = self.ends + rows
        self._ids[self._rows[rows], self.ends[rows]] = ids[rows]
        if self._mask is not None:
            self._mask[self._rows[rows], self.ends[rows]] = 1

    def pass_through(self, model: Model) -> Tensor:
        """Return the model's logits [n, length, ids]."""
        parts = {IDS: self._ids} if self._mask is None else {IDS: self._ids, MASK: self._mask}
        return model(parts if self._names else self._ids)

    def logits_before(self, model: Model, most: int = 1) -> Tensor:
        """Return the logits [n, most, ids] of the last `most` tokens' successors, from one pass."""
        behind = torch.arange(1 - most, 1, device=self.ends.device)
        return self.pass_through(model)[self._rows[:, None], self.ends[:, None] + behind]


def continue_greedily(model: Model, continued: Continuation, most: int, end: int | None) -> Tensor:
    """Return the tokens that a model generates: int64 [n, most], NONE after a row's last one.

    Each pass appends the most likely token to every row. The lowest id wins a tie. A row stops after the id `end`,
    after `most` tokens, or where it has no room. Rows keep their length, so a chunk's bits depend on nothing else.
    """
    generated = torch.full((len(continued.ends), most), NONE, device=continued.ends.device)
    going = torch.ones_like(continued.ends, dtype=torch.bool)
    for step in range(most):
        chosen = continued.logits_before(model)[:, 0].argmax(-1)
        generated[:, step] = chosen.where(going, NONE)
        going = going & continued.have_room & (chosen != (NONE if end is None else end))
        if step + 1 == most or not bool(going.any()):
            break
        continued.append(chosen, going)
    return generated


def without_none(generated: Tensor) -> Sequence[list[int]]:
    """Return the ids of each row of `continue_greedily`."""
    return [[number for number in row if number != NONE] for row in generated.tolist()]
