"""What a run is to be: its config, its directory, and whether there is anything left to do."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, count
from pathlib import Path

from raysim.callbacks.callback import Callback
from raysim.config import Config, load
from raysim.config.comparison import label_run
from raysim.config.document import Overrides
from raysim.launch.resuming import resolve_resumed
from raysim.records.result import Result, load_result
from raysim.records.run_directory import claim_directory
from raysim.system.errors import ConfigError
from raysim.system.files import lock_directory

Source = str | Path | Mapping[str, object] | Config


@dataclass(frozen=True)
class ResolvedRun:
    """A run before anything of it is started.

    Attributes:
        config: the resolved config.
        directory: the run's directory, which a run may write to.
        callbacks: names or objects of callbacks, in addition to those of the config.
        new: whether the directory has no run yet.
        ended: the result of a run that was finished before; None if there is something to do.
        made: the directories that were made for it, the innermost first.
    """

    config: Config
    directory: Path
    callbacks: Sequence[str | Callback]
    new: bool
    ended: Result | None
    made: Sequence[Path] = ()

    def release(self) -> None:
        """Remove the directories that were made for the run, if it wrote nothing there."""
        for path in self.made:
            with suppress(OSError):
                path.rmdir()


def resolve_run(
    config: Source | None,
    overrides: Overrides,
    out: str | Path | None,
    callbacks: Sequence[str | Callback],
    resume: bool,
    trust: bool,
    label: Overrides = (),
) -> ResolvedRun:
    """Return the run that the arguments of `raysim.run` describe. Without `out`, make its directory.

    `label` has overrides that are in the config already, and that the directory is named after.

    Raises:
        ConfigError: the config or the directory is wrong, or another run is at work there.
    """
    if resume:
        resolved = resolve_resumed(out, config, overrides, trust)
    elif config is None:
        raise ConfigError("run: found no config, allowed: a YAML file, a mapping or a config")
    else:
        resolved = load(config, overrides)
    resolved = _with_callbacks(resolved, callbacks)
    if out is None:
        made = make_default_directory(resolved, label or overrides)
        return ResolvedRun(resolved, made[0], callbacks, True, None, made)
    directory = Path(out)
    new = not (resume and (directory / "config.yaml").exists())
    if resume:
        return ResolvedRun(resolved, directory, callbacks, new, _resumed_result(directory))
    claim_directory(directory)
    return ResolvedRun(resolved, directory, callbacks, new, None)


def _with_callbacks(config: Config, callbacks: Sequence[str | Callback]) -> Config:
    """Return the config with the callbacks that are given by name."""
    if isinstance(callbacks, str | Callback):  # a text's letters would be taken for names
        raise ConfigError(f"callbacks: found {callbacks!r:.60}, allowed: a list, such as ['early_stopping']")
    names = {name: None for name in callbacks if isinstance(name, str)}
    return load(config, {"callbacks": {**names, **config.callbacks}}) if names else config


def _resumed_result(directory: Path) -> Result | None:
    """Return the result of a directory's run if it is done. Refuse a directory in which another run is at work."""
    if (directory / "summary.json").exists() and (result := load_result(directory)).status == "done":
        return result
    if directory.exists():
        with lock_directory(directory, "run"):  # as the recorder does, but before anything has started
            pass
    return None


def make_default_directory(config: Config, overrides: Overrides = ()) -> Sequence[Path]:
    """Make runs/NAME/seed-SEED/DATE-TIME-LABEL (see label_run), with a number appended if that exists.

    Two runs that start in the same second get two directories. Return the directories that were made, the run's first.

    Raises:
        ConfigError: it cannot be made.
    """
    name = "-".join(filter(None, [datetime.now().strftime("%Y%m%d-%H%M%S"), label_run(config, overrides)]))
    first = Path("runs") / config.name / f"seed-{config.seed}" / name
    others = (first.with_name(f"{first.name}-{number}") for number in count(2))
    for path in chain([first], others):
        missing = [above for above in path.parents if not above.exists()]
        try:
            path.mkdir(parents=True)
            return [path, *missing]
        except (OSError, ValueError):
            if not os.path.lexists(path):
                claim_directory(path)  # says why
                raise
    raise AssertionError("there is always a next number")
