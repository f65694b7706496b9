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
    """A run from its start, or from a checkpoint, to its end, unless a process is lost."""

    def events(self) -> Generator[Event, None, None]:
        """Iterate over the events. Raises Lost."""

    def stop(self) -> None:
        """End the run after the round in progress."""


class Recovery:
    """Restart of a run from its last checkpoint after a process was lost; surviving processes are not used again.

    Args:
        start: starts the run from a checkpoint (None: from its beginning); `apart`, for the last try, has every client
            computed by itself, to show which of them causes the loss of a process.
        recorder: records the run, and knows its newest checkpoint.
        tries: how many losses are survived in a row without the run getting further than before.
    """

    def __init__(
        self,
        start: Callable[[SavedCheckpoint | None, bool], Attempt],
        recorder: Recorder,
        tries: int,
    ) -> None:
        self._start = start
        self._recorder = recorder
        self._tries = tries
        self._attempt: Attempt | None = None
        self._stopping = False
        self._rounds = 0
        self._doing = STARTING

    def doing(self) -> str:
        """Return what a stop would wait for now."""
        return self._doing

    def stop(self) -> None:
        """End the run after the round in progress."""
        self._stopping = True
        if self._attempt is not None:
            self._attempt.stop()

    def end_round(self) -> None:
        """End the run after the round in progress, unless a loss has it go back before: then it goes on."""
        if self._attempt is not None:
            self._attempt.stop()

    def events(self) -> Generator[Event, None, None]:
        """Record the events of the run and iterate over them, including those of rounds computed again.

        Raises:
            ConfigError: there is no room for the run.
            RunError: the same rounds were lost too often, or there is no longer room for the run to continue.
        """
        furthest, reached, losses = 0, 0, 0
        while True:
            try:
                with closing(self._begin(apart=losses >= self._tries).events()) as events:
                    for event in events:
                        self._recorder.take(event)
                        self._follow(event)
                        if isinstance(event, RoundDone):
                            reached = event.round
                        yield event
                        del event  # free a checkpoint's records, as the next event may take a round
                return
            except Lost as lost:
                losses = 1 if reached > furthest else losses + 1
                furthest = max(furthest, reached)
                if losses > self._tries:
                    often = f"{lost.who} died {losses} times in round {furthest + 1}"
                    raise RunError(f"{often}: {lost.how}; {lost.advice}") from None
                yield RolledBack(str(lost), self._recorder.go_back(str(lost)))

    def _follow(self, event: Event) -> None:
        """Note what a stop would wait for after this event."""
        if isinstance(event, Waiting):
            self._doing = event.text.partition(": ")[0]
        elif isinstance(event, Started):
            self._rounds = event.rounds
            self._doing = f"finishing round {event.done + 1} of {self._rounds}"
        elif isinstance(event, RoundDone):
            self._doing = f"finishing round {min(event.round + 1, self._rounds)} of {self._rounds}"

    def _begin(self, apart: bool) -> Attempt:
        first, self._doing = self._attempt is None, STARTING
        try:
            self._attempt = self._start(self._recorder.saved, apart)
        except ConfigError as error:
            if first:
                raise
            raise RunError(f"there is no room any more: {error}") from error
        if self._stopping:
            self._attempt.stop()
        return self._attempt
