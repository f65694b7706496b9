"""Resume a run from its directory: its config then, and the command to do so."""

from collections.abc import Mapping
from pathlib import Path
from shlex import quote

from raysim.config import Config, load
from raysim.config.comparison import CHANGE_NO_STATE, describe_difference
from raysim.config.document import Overrides
from raysim.config.lookup import custom_names, only_named_by
from raysim.records.run_directory import claim_directory
from raysim.system.errors import ConfigError

MAY_DIFFER = ("resources", "logging", "checkpoint", "callbacks")  # blocks of the config, when a run is resumed


def resolve_resumed(
    out: str | Path | None,
    config: str | Path | Mapping[str, object] | Config | None,
    overrides: Overrides,
    trust: bool,
) -> Config:
    """Return the config of a resumed run: its directory's, or the given one if they agree.

    Without `trust`, the directory's config may name only built-in components and those of the given config.

    Raises:
        ConfigError: there is no run and no config, or the given config would change the run's results.
    """
    if out is None:
        raise ConfigError("--resume: found no --out, allowed: --resume --out DIR, the run's directory")
    own = Path(out) / "config.yaml"
    if not own.exists():
        if config is None:
            raise ConfigError(f"--resume: there is no {own}, allowed: a run's directory, or a config to start one with")
        claim_directory(Path(out))
        return load(config, overrides)
    given = [] if config is None else [load(config, overrides)]
    with only_named_by(*given, trust=trust):
        before = load(Path(out) / "config.yaml")
        now = given[0] if given else load(own, overrides)
    unlike = describe_difference(before, now, CHANGE_NO_STATE)
    if unlike is not None:
        raise ConfigError(f"--resume: {out} has another config: {unlike}; allowed: other {', '.join(MAY_DIFFER)}")
    return now


def resume_command(config: Config, directory: Path, local: bool) -> str:
    """Return the command that resumes a run from its directory. `local` says whether it ran without Ray."""
    return f"raysim run --resume --out {quote(str(directory))}{' --local' * local}{trust_option(config)}"


def trust_option(config: Config) -> str:
    """Return the option of commands that read a run's directory: --trust if the run has custom components."""
    return " --trust" * any(not name.startswith("raysim.") for name in custom_names(config))
