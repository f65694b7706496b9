"""`--resume`: the config that a directory's run goes on with, and its result if it is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from raysim.config import Config, load
from raysim.config.comparison import describe_difference
from raysim.records.result import Result, load_result
from raysim.records.run_directory import claim_directory
from raysim.system.errors import ConfigError

MAY_DIFFER = ("resources", "logging", "checkpoint")


def resolve_resumed(
    out: str | Path | None,
    config: str | Path | Mapping[str, object] | Config | None,
    overrides: Sequence[str] | Mapping[str, object],
) -> Config:
    """Return the config that a run goes on with: its directory's, or the one that is given, if they agree.

    Raises:
        ConfigError: there is no run and no config, or what is given would change the run's results.
    """
    if out is None:
        raise ConfigError(
            "--resume: found no --out, allowed: --resume --out DIR, the directory of the run to go on with"
        )
    own = Path(out) / "config.yaml"
    if not own.exists():
        if config is None:
            raise ConfigError(
                f"--resume: {own} is not there, allowed: a run's directory, or a config to start one with"
            )
        claim_directory(Path(out))
        return load(config, overrides)
    before = load(own)
    now = load(own if config is None else config, overrides)
    unlike = describe_difference(before, now)
    if unlike is not None:
        raise ConfigError(
            f"--resume: {out} is a run of another config: {unlike}; allowed: other {', '.join(MAY_DIFFER)}"
        )
    return now


def load_finished(directory: Path) -> Result | None:
    """Return the result of the run in a directory, if it is done. Raises ConfigError where it cannot be read."""
    if not (directory / "summary.json").exists():
        return None
    ended = load_result(directory)
    return ended if ended.status == "done" else None
