"""What methods keep at a client: measured in two tiny rehearsals of different size."""

from contextlib import suppress

import numpy as np
import numpy.typing as npt

from raysim.config import Config
from raysim.estimate.rehearsal import FEW, in_small, rehearse
from raysim.federation.federation import Federation
from raysim.models.flat import FlatModel

Ints = npt.NDArray[np.int64]
BATCHES = (2, 3)  # of the two rehearsals
ROUNDS = (1, 1)  # one of each of two tasks


def measure_halves(
    config: Config, federation: Federation, model: FlatModel, batches: Ints
) -> tuple[Ints, Ints, tuple[int, int]]:
    """Return the bytes that methods keep at clients with n batches each, and their largest tables (int64 [n]).

    The third result is the bytes of auxiliary networks: of the server, and of a host; see Rehearsal. The two
    rehearsals show a constant part and a part per batch, or per row of a server's step. User-defined methods are left
    out: what they do besides computing should happen in the run alone.
    """
    built_in = {name: keys for name, keys in config.methods.items() if ":" not in name}
    if not built_in:
        nothing = np.zeros(len(batches), np.int64)
        return nothing, nothing, (0, 0)
    config = config.model_copy(update={"methods": built_in})
    few, more = (_measure(config, federation, model, count) for count in BATCHES)
    kept, tables, *_ = (few[:, None] + (more - few)[:, None] * (batches - BATCHES[0])).clip(0)
    rows = max(int(more[4]), BATCHES[1])
    return kept, tables, (int(few[2] + (more[2] - few[2]) * (rows - BATCHES[0])), int(more[3]))


def _measure(config: Config, federation: Federation, model: FlatModel, batches: int) -> Ints:
    """Return the bytes of `measure_halves` and the rows asked for, of one client with this many batches.

    A method that fails here is the run's to refuse; it counts as nothing.
    """
    size = min(config.training.batch_size, FEW)
    with suppress(Exception):
        seen = rehearse(*in_small(config, federation, batches, size, ROUNDS), model, ROUNDS, few=batches)
        return np.array([seen.kept, seen.table, seen.serving, seen.beside, seen.asked])
    return np.zeros(5, np.int64)
