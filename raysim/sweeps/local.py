"""Runs of a sweep one after the other in this process, without Ray."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence

from raysim.sweeps.grid import Cell
from raysim.sweeps.telling import Begun, Failed, Heard, Told
from raysim.sweeps.whole import Kept, WholeRun, data_of
from raysim.system.errors import ConfigError, RunError


class LocalRuns:
    """Carries runs out one after the other.

    Args:
        cells: the runs.
        kept: says where a run goes on, once it has begun.
    """

    def __init__(self, cells: Sequence[Cell], kept: Callable[[Cell], Kept | None]) -> None:
        self._cells = cells
        self._kept = kept
        self._stopping = False
        self._under_way: WholeRun | None = None

    def told(self) -> Generator[Told, None, None]:
        """Carry all out, and tell what happens."""
        for cell in self._cells:
            if self._stopping:
                return
            try:
                yield from self._run(cell)
            except (ConfigError, RunError) as error:
                yield Failed(cell, error)

    def stop(self) -> None:
        """Begin no more runs, and let the one under way end after the round in progress."""
        self._stopping = True
        if self._under_way is not None:
            self._under_way.stop()

    def _run(self, cell: Cell) -> Generator[Told, None, None]:
        began = time.perf_counter()
        federation = data_of(cell.config)
        if self._stopping:
            return
        yield Begun(cell, federation, began)
        self._under_way = run = WholeRun(cell.config, federation, self._kept(cell))
        if self._stopping:
            run.stop()
        for event, peak_memory_bytes in run.events():
            yield Heard(cell, event, peak_memory_bytes)
