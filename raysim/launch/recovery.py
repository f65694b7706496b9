"""Recovery of a run from the loss of a process: the whole run returns to the last checkpoint."""

from collections.abc import Callable, Generator
from contextlib import closing
from typing import Protocol

from raysim.engine.events import Event, RolledBack, RoundDone, Started, Waiting
from raysim.records.checkpoints import SavedCheckpoint
from raysim.records.recorder import Recorder
from raysim.system.errors import ConfigError, Lost, RunError

STARTING = "waiting until all hosts have started and answered"


class Attempt(Protocol):
    """A run from its start, or from a checkpoint, to its end, unless a process is lost.

    There are three: a Simulation in this process, a run in one actor, and a coordinator with its hosts.
    """

    def events(self) -> Generator[Event, None, None]:
        """Iterate over the events; closing the iterator ends the run's processes.

        Raises:
            Lost: a process of the run was lost.
        """

    def stop(self) -> None:
        """End the run after the round in progress. Called from any thread."""

    def heard(self) -> None:
        """Note that the driver has handled the last event; a run in another process may wait for that."""


Start = Callable[[SavedCheckpoint | None, bool], Attempt]
"""Starts a run from a checkpoint (None: from its beginning).

With the second argument, for the last try, every client is computed by itself where the run has hosts, to show which of
them causes the loss of a process.
"""


class Recovery:
    """Restart of a run from its last checkpoint after a process was lost; surviving processes are not used again.

    Args:
        start: starts the run.
        tries: how many losses are survived in a row without the run getting further than before.

    Attributes:
        attempt: the run since its start or its last loss; None before that, and from a loss to the next start.
    """

    def __init__(self, start: Start, tries: int) -> None:
        self._start = start
        self._tries = tries
        self.attempt: Attempt | None = None
        self._events: Generator[Event, None, None]
        self._lost: Lost | None = None
        self._stopping = False
        self._rounds = 0
        self._doing = STARTING

    def doing(self) -> str:
        """Return what a stop would wait for now."""
        return self._doing

    def stop(self) -> None:
        """End the run after the round in progress."""
        self._stopping = True
        self.end_round()

    def heard(self) -> None:
        """Have the run continue where it waits until its last event has been handled."""
        if self.attempt is not None:
            self.attempt.heard()

    def lose(self, lost: Lost) -> None:
        """Give up the present attempt, between two events, because what it runs on is gone."""
        if self.attempt is not None:
            self.attempt, self._lost = None, lost
            self._events.close()

    def end_round(self) -> None:
        """End the run after the round in progress, unless a loss returns it to an earlier round first."""
        if (attempt := self.attempt) is not None:
            attempt.stop()

    def events(self, recorder: Recorder) -> Generator[Event, None, None]:
        """Record the events of the run and iterate over them, including those of rounds computed again.

        Args:
            recorder: records the run, and knows its newest checkpoint.

        Raises:
            ConfigError: there is no room for the run.
            RunError: the same rounds were lost too often, or there is no longer room for the run to continue.
        """
        furthest = reached = recorder.saved.round if recorder.saved else 0
        losses, began = 0, False
        while True:
            try:
                self._events, self._lost = self._begin(recorder.saved, losses >= self._tries, began).events(), None
                began = True
                with closing(self._events):
                    for event in self._events:
                        recorder.take(event)
                        self._follow(event)
                        if isinstance(event, RoundDone):
                            reached = event.round
                        passed_on = [event]
                        del event  # free a checkpoint's records, as the next event may take a round
                        yield passed_on.pop()
                if self._lost is None:
                    return
                raise self._lost
            except Lost as lost:
                self.attempt = None
                losses = 1 if reached > furthest else losses + 1
                furthest = max(furthest, reached)
                if losses > self._tries:
                    often = f"{lost.who} died {losses} times in round {furthest + 1}"
                    raise RunError(f"{often}: {lost.how}; {lost.advice}") from None
                yield RolledBack(str(lost), recorder.go_back(str(lost)))

    def _follow(self, event: Event) -> None:
        """Note what a stop would wait for after this event."""
        if isinstance(event, Waiting):
            self._doing = event.text.partition(": ")[0]
        elif isinstance(event, Started):
            self._rounds = event.rounds
            self._doing = f"finishing round {event.done + 1} of {self._rounds}"
        elif isinstance(event, RoundDone):
            self._doing = f"finishing round {min(event.round + 1, self._rounds)} of {self._rounds}"

    def _begin(self, saved: SavedCheckpoint | None, apart: bool, again: bool) -> Attempt:
        self._doing = STARTING
        try:
            self.attempt = self._start(saved, apart)
        except ConfigError as error:
            if not again:
                raise
            raise RunError(f"there is no room any more: {error}") from error
        if self._stopping:
            self.attempt.stop()
        return self.attempt
