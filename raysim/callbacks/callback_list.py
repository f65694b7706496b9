"""Dispatch a run's events to its callbacks, each once, write their records and end the run if they ask for it."""

from collections.abc import Sequence
from copy import deepcopy

from raysim.callbacks.callback import Callback, RunView
from raysim.config import Config
from raysim.config.lookup import resolve
from raysim.engine.custom_classes import wrong_parameters
from raysim.engine.events import Checkpoint, Event, RolledBack, RoundDone, Started
from raysim.records.notes import Note
from raysim.records.recorder import Recorder
from raysim.records.result import Result
from raysim.system.custom_code import place_of
from raysim.system.errors import ConfigError, RunError, describe_error
from raysim.system.seeding import generators_restored

Named = Sequence[tuple[str, Callback]]


def make_callbacks(config: Config, protocols: Sequence[str], given: Sequence[str | Callback] = ()) -> Named:
    """Return the callbacks of a config, then the given objects, each with its name. The config has the given names.

    Raises:
        ConfigError: a callback does not suit the run, or a given object is not a callback.
        RunError: a callback could not be constructed.
    """
    callbacks: list[tuple[str, Callback]] = []
    for name, keys in config.callbacks.items():
        try:
            callbacks.append((name, resolve("callback", name)(**keys)))
        except (Exception, SystemExit) as error:
            raise RunError(f"callback {name}: {describe_error(error)}") from error
    for callback in given:
        if isinstance(callback, str):
            continue
        if not isinstance(callback, Callback):
            raise ConfigError(f"callbacks: found {callback!r}, allowed: names and objects of raysim.callbacks.Callback")
        callbacks.append((type(callback).__name__, callback))
    for name, callback in callbacks:
        _check_hooks(name, callback)
        try:
            with generators_restored():
                callback.check(config, protocols)
        except ConfigError as error:
            raise ConfigError(f"callbacks.{name}: {error}") from error
        except (Exception, SystemExit) as error:
            raise RunError(f"callback {name}: {describe_error(error)}; check") from error
    return callbacks


def _check_hooks(name: str, callback: Callback) -> None:
    """Refuse a callback with a misspelled hook, which would never be called, or with one that cannot be called.

    Raises:
        ConfigError: there is such a hook.
    """
    hooks = [hook for hook in vars(Callback) if hook.startswith("on_")]
    for strange in sorted(part for part in dir(type(callback)) if part.startswith("on_") and part not in hooks):
        words = f"found {place_of(getattr(type(callback), strange))}, which is never called"
        raise ConfigError(f"callbacks.{name}: {words}, allowed: {', '.join(hooks)}")
    for problem in wrong_parameters(Callback, callback, hooks):
        raise ConfigError(f"callbacks.{name}: {problem}")


class CallbackList:
    """The callbacks of one run, in the driver. They receive copies of events, so they cannot change the run's state.

    Args:
        callbacks: the callbacks and their names.
        recorder: the run's recorder. It receives each event before the callbacks.
        rows: the rounds after which a task ends.
    """

    def __init__(self, callbacks: Named, recorder: Recorder, rows: Sequence[int]) -> None:
        self._views = [(callback, RunView(name, recorder.config, recorder.directory)) for name, callback in callbacks]
        self._recorder = recorder
        self._rows = rows
        self._reported: int | None = None  # the last round reported to the callbacks; None before `on_start`
        self._rounds = 0
        self._ending: tuple[int, str] | None = None  # the round to end the run with, and the reason
        self._unsaved: list[Note] = []  # records since the newest checkpoint
        self._owners: dict[tuple[str, str], RunView] = {}  # ("figure" or "number", name) -> whose records these are

    def take(self, event: Event) -> str | None:
        """Report an event to the callbacks, unless it is a repetition. Return the reason if the run must end with it.

        Raises:
            RunError: a callback failed.
        """
        done = event.done if isinstance(event, Started) else event.round if isinstance(event, RoundDone) else None
        match event:
            case Started() if self._reported is None:
                self._reported, self._rounds = event.done, event.rounds
                for callback, view in self._views:
                    self._call(callback, view, "on_start")
                    view.started = True
                self._begin_task()
            case RoundDone() if self._reported is not None and event.round > self._reported:
                self._reported = event.round
                self._report_round(event)
            case Checkpoint():
                self._unsaved.clear()
            case RolledBack():
                for note in self._unsaved:  # the files were cut back to the checkpoint
                    self._recorder.note(note)
                if self._reported is not None:
                    self._report("on_loss", event.why, event.round)
        return self._ending[1] if self._ending is not None and self._ending[0] == done else None

    def end(self, result: Result) -> None:
        """Report the end to the callbacks that have started. Afterwards raise the RunError of the first failure."""
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

    def _report_round(self, event: RoundDone) -> None:
        self._report("on_round", event)
        if event.evaluation is not None:
            self._report("on_evaluation", event)
        if event.task_done:
            self._report("on_task_end", event)
            if event.round < self._rounds and self._ending is None:
                self._begin_task()

    def _begin_task(self) -> None:
        self._report("on_task_begin", 1 + sum(row <= (self._reported or 0) for row in self._rows))

    def _report(self, hook: str, *arguments: object) -> None:
        for callback, view in self._views:
            self._call(callback, view, hook, *arguments)

    def _call(self, callback: Callback, view: RunView, hook: str, *arguments: object) -> None:
        view.round, view.rounds = self._reported or 0, self._rounds
        try:
            with generators_restored():
                getattr(callback, hook)(view, *deepcopy(arguments))
        except (Exception, SystemExit) as error:
            raise RunError(f"callback {view.name}: {describe_error(error)}; {hook}, round {view.round}") from error
        notes, view.notes = view.notes, []
        for note in notes:
            self._claim(view, note, hook)
            self._recorder.note(note)
        self._unsaved += notes
        if view.stopped is not None and self._ending is None:
            self._ending = view.round, f"{view.name} ends the run after round {view.round}: {view.stopped}"
            self._recorder.stop_at(view.name, view.round)

    def _claim(self, view: RunView, note: Note, hook: str) -> None:
        """Reserve the name of a record for its callback. Raises RunError if another callback uses the name."""
        kind = "number" if isinstance(note.value, float) else "figure"
        owner = self._owners.setdefault((kind, note.name), view)
        if owner is not view:
            raise RunError(
                f"callback {view.name}: found the {kind} {note.name!r}, which the callback {owner.name} records too, "
                f"allowed: a name that no other callback uses; {hook}, round {view.round}"
            )
