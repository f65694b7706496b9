"""Telling a run's callbacks of its events: each once, with their records kept and their wish to end the run carried."""

from collections.abc import Sequence
from copy import deepcopy

from raysim.callbacks.callback import Callback, RunView
from raysim.config import Config
from raysim.config.lookup import resolve
from raysim.engine.events import Checkpoint, Event, RolledBack, RoundDone, Started
from raysim.records.notes import Note
from raysim.records.recorder import Recorder
from raysim.records.result import Result
from raysim.system.errors import ConfigError, RunError, describe_error
from raysim.system.seeding import generators_restored

Named = Sequence[tuple[str, Callback]]


def make_callbacks(config: Config, protocols: Sequence[str], given: Sequence[str | Callback] = ()) -> Named:
    """Return the callbacks of a config, then those given that are no names, which the config has; each with its name.

    Raises:
        ConfigError: one does not suit the run, or what was given is no callback.
        RunError: one could not be made.
    """
    made: list[tuple[str, Callback]] = []
    for name, keys in config.callbacks.items():
        try:
            made.append((name, resolve("callback", name)(**keys)))
        except (Exception, SystemExit) as error:
            raise RunError(f"callback {name}: {describe_error(error)}") from error
    for callback in given:
        if isinstance(callback, str):
            continue
        if not isinstance(callback, Callback):
            raise ConfigError(f"callbacks: found {callback!r}, allowed: names and objects of raysim.callbacks.Callback")
        made.append((type(callback).__name__, callback))
    for name, callback in made:
        try:
            with generators_restored():
                callback.check(config, protocols)
        except ConfigError as error:
            raise ConfigError(f"callbacks.{name}: {error}") from error
        except (Exception, SystemExit) as error:
            raise RunError(f"callback {name}: {describe_error(error)}; check") from error
    return made


class CallbackList:
    """The callbacks of one run, in the driver. What they are told are copies, so they can touch no state of the run.

    Args:
        callbacks: with their names.
        recorder: the run's; it takes an event before they are told of it.
        rows: after which rounds a task ends.
    """

    def __init__(self, callbacks: Named, recorder: Recorder, rows: Sequence[int]) -> None:
        self._views = [(callback, RunView(name, recorder.config, recorder.directory)) for name, callback in callbacks]
        self._recorder = recorder
        self._rows = rows
        self._told: int | None = None  # how many rounds they know of, once they know that the run has started
        self._rounds = 0
        self._last: tuple[int, str] | None = None  # the round that the run is to end with, and why
        self._unsaved: list[Note] = []  # what was recorded since the newest checkpoint

    def take(self, event: Event) -> str | None:
        """Tell of an event what is new; if the run is to end with it, return a line that says why.

        Raises:
            RunError: a callback failed.
        """
        done = event.done if isinstance(event, Started) else event.round if isinstance(event, RoundDone) else None
        match event:
            case Started() if self._told is None:
                self._told, self._rounds = event.done, event.rounds
                for callback, view in self._views:
                    self._call(callback, view, "on_start")
                    view.started = True
                self._begin_task()
            case RoundDone() if self._told is not None and event.round > self._told:
                self._told = event.round
                self._tell_round(event)
            case Checkpoint():
                self._unsaved.clear()
            case RolledBack():
                for note in self._unsaved:  # the files were cut back to the checkpoint
                    self._recorder.note(note)
                if self._told is not None:
                    self._tell("on_loss", event.why, event.round)
        return self._last[1] if self._last is not None and self._last[0] == done else None

    def end(self, result: Result) -> None:
        """Tell how the run ended those that know of its start. Raises RunError for the first that fails, at the end."""
        failed: list[RunError] = []
        for callback, view in self._views:
            if not view.started:
                continue
            try:
                self._call(callback, view, "on_end", result)
            except RunError as error:
                failed.append(error)
        if failed:
            raise failed[0]

    def _tell_round(self, event: RoundDone) -> None:
        self._tell("on_round", event)
        if event.evaluation is not None:
            self._tell("on_evaluation", event)
        if event.task_done:
            self._tell("on_task_end", event)
            if event.round < self._rounds and self._last is None:
                self._begin_task()

    def _begin_task(self) -> None:
        self._tell("on_task_begin", 1 + sum(row <= (self._told or 0) for row in self._rows))

    def _tell(self, hook: str, *said: object) -> None:
        for callback, view in self._views:
            self._call(callback, view, hook, *said)

    def _call(self, callback: Callback, view: RunView, hook: str, *said: object) -> None:
        view.round, view.rounds = self._told or 0, self._rounds
        try:
            with generators_restored():
                getattr(callback, hook)(view, *deepcopy(said))
        except (Exception, SystemExit) as error:
            raise RunError(f"callback {view.name}: {describe_error(error)}; {hook}, round {view.round}") from error
        for note in view.notes:
            self._recorder.note(note)
        self._unsaved += view.notes
        view.notes.clear()
        if view.stopped is not None and self._last is None:
            self._last = view.round, f"{view.name} ends the run after round {view.round}: {view.stopped}"
            self._recorder.stop_at(view.name, view.round)
