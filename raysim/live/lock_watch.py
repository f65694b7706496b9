"""Whether a process works on a run."""

import math
import time
from contextlib import suppress
from pathlib import Path

from raysim.system.files import is_locked

SECONDS_BETWEEN_LOOKS = 5.0  # at a run's lock
LEAST_PATIENCE = 30.0  # seconds without a new round after which a run has ended, if its lock was never seen


class LockWatch:
    """Whether a process works on a run, by its lock on the directory, or by what it writes where locks are not seen."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._looked = -math.inf
        self._locked = self._seen = False
        self._grown = -math.inf
        self._read = False

    def note_reading(self, grown: bool) -> None:
        """Note that all rounds so far are read, and whether some are new; those of the first reading may be old."""
        if grown and self._read:
            self._grown = time.monotonic()
        self._read = True

    def at_work(self, per_round: float) -> bool:
        """Return whether a process works on the run. A round takes `per_round` seconds."""
        now = time.monotonic()
        if now - self._looked >= SECONDS_BETWEEN_LOOKS:  # a look takes the lock for an instant
            self._looked = now
            with suppress(OSError):
                self._locked = is_locked(self._directory)
        self._seen |= self._locked
        return self._locked or (not self._seen and now - self._grown < max(LEAST_PATIENCE, 3 * per_round))
