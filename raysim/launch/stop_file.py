"""A file named `stop` in a run's directory, by which any process or machine ends the run after its round."""

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

STOP = "stop"
SECONDS = 0.5  # between two looks at the directory during a long round


class StopFile:
    """The request in a run's directory to end the run: looked for after every event, and during long rounds.

    A request from before the run started or was resumed does not count, and is removed. So is one that was carried out.

    Args:
        directory: the run's.
        stop: ends the run after the round in progress. It is called at most once, from any thread.
    """

    def __init__(self, directory: Path, stop: Callable[[], None]) -> None:
        self._path = directory / STOP
        self._stop = stop
        self._lock = threading.Lock()
        self._heard = False
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="stop file", daemon=True)

    def __enter__(self) -> "StopFile":
        self._remove()
        self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._watcher.join()
        self._remove()

    def look(self) -> None:
        """End the run after the round in progress if the file is there."""
        with self._lock:
            if not self._heard and self._path.exists():
                self._heard = True
                self._stop()

    def _watch(self) -> None:
        while not self._ended.wait(SECONDS):
            self.look()

    def _remove(self) -> None:
        with suppress(OSError):
            self._path.unlink()


def request_stop(directory: Path) -> None:
    """Ask the run in a directory to end after its round. Raises OSError if the file cannot be written, or is a link."""
    os.close(os.open(directory / STOP, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o666))
