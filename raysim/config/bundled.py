"""The bundled configs by name, such as `quickstart`. The path of an existing file takes precedence over a name."""

import json
import os
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from raysim.config.error_text import nearest, shorten
from raysim.config.reference import build_json_schema
from raysim.config.yaml_text import read_file
from raysim.system.caller import warn_caller
from raysim.system.errors import ConfigError
from raysim.system.files import write_whole

BUNDLED = Path(__file__).parents[1] / "configs"  # in a checkout a link to the folder of that name at the root
SUFFIXES = (".yaml", ".yml")
SCHEMA = Path(__file__).with_name("raysim.schema.json")  # only a wheel has it: setup.py
MODELINE = f"# yaml-language-server: $schema={SCHEMA.name}\n".encode()  # by which editors find the schema
SWEEPS_KEY = re.compile(rb"^grid:", re.MULTILINE)


def find_config(source: str | Path, folder: Path | None = None) -> Path:
    """Return the file of a config.

    Args:
        source: a path, or the name of a bundled config.
        folder: the start of a relative path; by default the working directory.

    Raises:
        ConfigError: there is neither such a file nor such a name.
    """
    path, name, names = Path(folder or "", source), str(source), bundled_names()
    if name in names and not os.path.isfile(path):
        return BUNDLED / f"{name}.yaml"
    try:
        path.lstat()
    except FileNotFoundError:
        short = name.removeprefix("configs/").removesuffix(".yaml")
        near = f"; did you mean '{short}'?" if short in names else nearest(short, names)
        words = f"there is no such file, and raysim comes with no config of this name{near or ';'}"
        raise ConfigError(f"{shorten(str(path), 200)}: {words} `raysim configs` lists all") from None
    except (OSError, ValueError):  # whoever reads the file says what it is
        pass
    return path


def describe_hidden(source: object) -> str:
    """Return a sentence on a bundled config that a file of the working directory hides, or on a file that it hides."""
    if not isinstance(source, str | Path) or str(source) not in bundled_names():
        return ""
    if os.path.isfile(source):
        return f"{source} is the file ./{source}, which hides the config of this name that raysim comes with"
    other = Path(f"{source}.yaml")
    if other.is_file() and not _is_copy(other):
        return f"{source} is the config that raysim comes with, and not the file ./{other}; for this, give {other}"
    return ""


def _is_copy(file: Path) -> bool:
    """Return whether a file is a bundled config, unchanged. One that cannot be read is not."""
    try:
        return file.read_bytes().removeprefix(MODELINE) == (BUNDLED / file).read_bytes()
    except OSError:
        return False


def warn_hidden(source: object) -> None:
    """Warn the caller of raysim of such a file. The command line prints a line instead."""
    if words := describe_hidden(source):
        warn_caller(words)


def bundled_names() -> list[str]:
    """Return the names of the bundled configs and sweeps, the quickstart first."""
    names = (path.relative_to(BUNDLED).with_suffix("").as_posix() for path in BUNDLED.glob("**/*.yaml"))
    return sorted(names, key=lambda name: (name != "quickstart", "/" in name, name))


def list_configs(longest: int | None = None) -> Iterator[str]:
    """Yield a line for each bundled config: its name and its description, of at most `longest` characters."""
    names = bundled_names()
    width = max(map(len, names))
    for name in names:
        described = _describe(BUNDLED / f"{name}.yaml")
        if longest is not None:
            described = textwrap.shorten(described, longest, placeholder=" ...", break_on_hyphens=False)
        yield f"{name:<{width}} {described}"


def copy_config(source: str | Path, target: Path) -> bool:
    """Copy a config to a new file, with its comments, and return whether it is a sweep.

    A sweep is copied as it is. The first line of another copy leads editors to the schema in its folder.

    Raises:
        ConfigError: there is no such config, the file is there already, its name has no .yaml, or it cannot be
            written.
    """
    if target.suffix not in SUFFIXES:
        named = str(target) in bundled_names()
        line = f"raysim new my.yaml --from {target}" if named else f"raysim new {target.name}.yaml"
        words = f"found a name without .yaml, and nothing was written; did you mean `{line}`?"
        raise ConfigError(f"{shorten(str(target), 200)}: {words}")
    content = read_file(str(find_config(source)))
    sweep = bool(SWEEPS_KEY.search(content))
    if os.path.lexists(target):
        raise ConfigError(f"{target}: this exists already and was left as it is, allowed: a new file")
    schema = None if sweep else _schema()
    try:
        if schema is not None:
            write_whole(target.with_name(SCHEMA.name), schema)
        write_whole(target, MODELINE * (not sweep and MODELINE not in content) + content)
    except (OSError, ValueError) as error:
        words = f"it cannot be written: {getattr(error, 'strerror', None) or error}"
        raise ConfigError(f"{target}: {words}, allowed: a new file in a folder that exists") from None
    return sweep


def _schema() -> bytes:
    """Return the JSON Schema of configs. Where no wheel brings it, it takes seconds, as all components are imported."""
    return SCHEMA.read_bytes() if SCHEMA.is_file() else json.dumps(build_json_schema(), indent=2).encode()


def _describe(file: Path) -> str:
    """Return the first sentence of a file's first comment, without parentheses."""
    comment = " ".join(re.findall(r"\A(?:#.*\n)*", file.read_text(encoding="utf-8"))[0].replace("#", " ").split())
    return re.split(r"[.;] |\.$", re.sub(r" \([^()]*\)", "", comment))[0]
