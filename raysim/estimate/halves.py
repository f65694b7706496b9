"""What methods keep at a client and at the server: measured in two tiny rehearsals of different size."""

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import numpy.typing as npt

from raysim.config import Config
from raysim.estimate.brevity import shorten
from raysim.estimate.rehearsal import FEW, Rehearsal, in_small, rehearse
from raysim.federation.federation import Federation
from raysim.models.flat import FlatModel

Ints = npt.NDArray[np.int64]
BATCHES = (2, 3)  # of the two rehearsals, and the most samples that methods make for a step
ROUNDS = (1, 1)  # one of each of two tasks


def rehearse_halves(config: Config, federation: Federation, model: FlatModel) -> list[Rehearsal]:
    """Return two rehearsals of the methods that are raysim's own; none if there are none.

    User-defined methods are left out: what they do besides computing should happen in the run alone. A method that
    fails here is the run's to refuse; it counts as nothing.
    """
    built_in = {name: keys for name, keys in config.methods.items() if ":" not in name}
    size = min(config.training.batch_size, FEW)

    def carry_out(batches: int) -> Rehearsal | None:
        with suppress(Exception):
            short, brevity = shorten(config.model_copy(update={"methods": built_in}), batches)
            small = in_small(short, federation, batches, size, ROUNDS)
            return Rehearsal(batches, brevity, small[0].training, rehearse(*small, model, ROUNDS, brevity.made))
        return None

    seen = [carry_out(batches) for batches in BATCHES] if built_in else []
    return [each for each in seen if each is not None]


def measure_halves(rehearsals: Sequence[Rehearsal], batches: Ints) -> tuple[Ints, Ints, tuple[int, int]]:
    """Return the bytes that methods keep at clients with n batches each, and their largest tables (int64 [n]).

    The third result is the bytes of auxiliary networks: of the server, and of a host; see `Held`. Two rehearsals show a
    constant part and a part per batch. Their server's steps have different numbers of samples, too.
    """
    if len(rehearsals) < len(BATCHES):
        nothing = np.zeros(len(batches), np.int64)
        return nothing, nothing, (0, 0)
    (few, less), (more, most) = ((each.batches, each.brevity.samples) for each in rehearsals)
    at_few, at_more = map(_held, rehearsals)
    kept, tables = (at_few[:2, None] + (at_more - at_few)[:2, None] * (batches - few) // (more - few)).clip(0)
    serving = at_few[2] + (at_more - at_few)[2] * (1 - less) / (most - less) if most > less else at_more[2]
    return kept, tables, (int(serving), int(at_more[3]))


def _held(rehearsal: Rehearsal) -> Ints:
    """Return what was held after two tasks, which all rehearsals have if the run has them."""
    rounds = rehearsal.rounds
    ends = [turn for turn, done in enumerate(rounds, start=1) if done.is_last]
    held = rounds[(*ends, len(rounds), len(rounds))[1] - 1].held
    assert held is not None
    return np.array([held.kept, held.table, held.serving, held.beside])
