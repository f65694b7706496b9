"""`raysim check` from Python."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from raysim.config import Config, load
from raysim.launch.check import estimate_run


def check_run(
    config: str | Path | Mapping[str, object] | Config, overrides: Sequence[str] | Mapping[str, object] = ()
) -> dict[str, str]:
    """Return what a run would start, send, compute and need, by labels such as steps and memory; start nothing.

    Args:
        config: a YAML file, a mapping or a config.
        overrides: KEY=VALUE strings, or a mapping from dotted keys to values.

    Raises:
        ConfigError: as the run itself would.
    """
    return dict(estimate_run(load(config, overrides)))
