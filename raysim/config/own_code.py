"""Which code of the user's own a config names: what workers on other machines must be sent."""

import sys
from collections.abc import Iterator
from pathlib import Path

from raysim.config.lookup import own_names
from raysim.config.schema import Config
from raysim.system.errors import INSTALLED, ConfigError


def refuse_main(config: Config) -> None:
    """Refuse code of the script that runs: actors have another main module. Raises ConfigError."""
    found = sorted(name for name in _names_for_actors(config) if name.startswith("__main__:"))
    if found:
        own = found[0].partition(":")[2]
        words = f"found '{found[0]}', which actors cannot import, allowed: package.module:{own}; move it into a module"
        raise ConfigError(f"{words} of its own, or run in this process (local=True, --local)")


def find_own_code(config: Config) -> list[Path]:
    """Return the files and folders of the top-level modules and packages of all package.module:name in a config.

    Installed packages are not among them: they must be installed on the other machines too, as raysim is.
    """
    names = {name.partition(":")[0].partition(".")[0] for name in _names_for_actors(config)}
    found = {path for name in names - {"raysim"} for path in _paths(name)}
    return sorted(path for path in found if not any(path.is_relative_to(place) for place in INSTALLED))


def _names_for_actors(config: Config) -> set[str]:
    """Return the names of all components of the user's own but callbacks, which no actor imports."""
    return own_names(config.model_copy(update={"callbacks": {}}))


def _paths(name: str) -> Iterator[Path]:
    """Yield where a module lies that the config has been read with; text that only looks like a name has none."""
    module = sys.modules.get(name)
    if module is None:
        return
    if hasattr(module, "__path__"):
        yield from (Path(place).resolve() for place in module.__path__)
    elif module.__file__ is not None:
        yield Path(module.__file__).resolve()
