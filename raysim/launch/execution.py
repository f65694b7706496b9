"""Carry out a run: record and show its events, pass them to callbacks, recover from losses, write a summary."""

from collections.abc import Generator
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import Any

from raysim.callbacks.callback_list import CallbackList, Named
from raysim.config import Config
from raysim.engine.events import Started
from raysim.federation.federation import Federation
from raysim.launch.announcing import tell_unfinished
from raysim.launch.display import RunDisplay, show_warning
from raysim.launch.recovery import Recovery, Start
from raysim.launch.resuming import resume_command
from raysim.launch.stop_file import STOP, StopFile
from raysim.models.flat import FlatModel
from raysim.records.identity import describe_changes
from raysim.records.recorder import Recorder
from raysim.records.result import Result
from raysim.system.errors import ConfigError, RunError, describe_error, single_line
from raysim.system.footprint import Footprint
from raysim.system.interrupts import delay_interrupts


class Execution:
    """A run in the driver, from its first event to its summary; `raysim run` has one, a sweep several at a time.

    Args:
        config: the resolved config.
        federation: its data.
        model: its initial model.
        callbacks: with their names.
        directory: the run's.
        display: shows its events.
        start: starts the run, see `Start`.
        local: whether the command to resume it has --local.

    Attributes:
        recovery: restarts the run after the loss of a process.
        result: how the run ended; None before.
    """

    def __init__(
        self,
        config: Config,
        federation: Federation,
        model: FlatModel,
        callbacks: Named,
        directory: Path,
        display: RunDisplay,
        start: Start,
        local: bool = False,
        new: bool = False,
    ) -> None:
        self.recovery = Recovery(start, config.checkpoint.tries)
        self.result: Result | None = None
        self._config, self._federation, self._model, self._callbacks = config, federation, model, callbacks
        self._directory, self._display, self._local, self._new = directory, display, local, new

    def run(self, began: float, footprint: Footprint, around: AbstractContextManager[Any]) -> Result:
        """Carry the run out to its end, and return how it ended. Arguments and errors are those of `steps`."""
        steps = self.steps(began, footprint, around)
        try:
            for _ in steps:
                pass  # there is nothing to do between two steps
        except BaseException as error:
            steps.throw(error)  # it may have been raised between two steps
        assert self.result is not None
        return self.result

    def steps(
        self, began: float, footprint: Footprint, around: AbstractContextManager[Any] | None = None
    ) -> Generator[None, None, None]:
        """Carry the run out, one event a step. However it ends, and whatever is thrown in, there is a summary then.

        Args:
            began: when the run began, by time.perf_counter.
            footprint: the memory that it takes.
            around: entered while there are events.

        Raises:
            ConfigError: another process is using the directory, or there is no room for the run.
            RunError: the run failed, a callback did, or something could not be written.
        """
        recorder_of_run = Recorder(
            self._config, self._federation, self._model, self._directory, began, footprint, self._new
        )
        with recorder_of_run as recorder:
            audience = CallbackList(self._callbacks, recorder, self._federation.availability.rows)
            try:
                # closing the events ends the actors before their cluster
                with (
                    around or nullcontext(),
                    StopFile(self._directory, self._stop) as request,
                    closing(self.recovery.events(recorder)) as events,
                ):
                    for event in events:
                        if isinstance(event, Started):
                            self._warn_of_changes(recorder)
                        ends = audience.take(event)
                        self._display.take(event)
                        if ends is not None:
                            self.recovery.end_round()
                            self._display.say(ends)
                        request.look()
                        del event  # free a checkpoint's records, as the next event may take a round
                        self.recovery.heard()
                        yield
            except BaseException as error:
                try:
                    self._end(recorder, audience, *_describe_end(error))
                except RunError as also:  # for example, the disk is still full
                    error.add_note(str(also))
                if recorder.checkpoints.newest is not None:
                    where = f"resume from round {recorder.checkpoints.newest}"
                    error.add_note(f"{where}: {resume_command(self._config, self._directory, self._local)}")
                if self.result is not None and (unfinished := tell_unfinished(self.result)):
                    error.add_note(unfinished)
                raise
            self._end(recorder, audience, recorder.status)

    def _warn_of_changes(self, recorder: Recorder) -> None:
        """Warn if the run has resumed in other surroundings. Only once it has started are its machines known."""
        if recorder.changed and recorder.saved is not None:
            show_warning(self._display, describe_changes(recorder.changed, recorder.saved.round))

    def _stop(self) -> None:
        """End the run after its round, as its stop file asks."""
        self._display.say(
            f"found {self._directory / STOP}: the run ends after the round in progress, with a checkpoint"
        )
        self.recovery.stop()

    def _end(self, recorder: Recorder, audience: CallbackList, status: str, problem: str | None = None) -> None:
        with delay_interrupts():
            if recorder.footprint.is_sampling:
                recorder.footprint.sample()
            self.result = recorder.end(status, problem)
        if status == "done" and self.result.rounds and not self.result.updates:
            show_warning(self._display, "no client took part in any round, so the model is the initial one")
        audience.end(self.result)


def _describe_end(error: BaseException) -> tuple[str, str | None]:
    """Return the status of a run that ended with an error, and why it failed."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", None
    return "failed", single_line(str(error) if isinstance(error, ConfigError | RunError) else describe_error(error))
