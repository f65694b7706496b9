"""What the promise for 1.x covers, a line each: names of Python, commands with options, and config keys with defaults.

`python tools/stable_interface.py` adds new lines to tests/kept/stable_interface.txt. It removes none: a test fails
unless each line of that file is still true.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import raysim.api
from raysim.command_line import COMMANDS
from raysim.config import build_json_schema

KEPT = Path(__file__).parents[1] / "tests" / "kept" / "stable_interface.txt"
DATASETS = ("dataset.unlabelled", "scenario.shift.domains[]")  # places of further datasets, with the keys of `dataset`


def list_interface() -> set[str]:
    """Return the lines that are true today."""
    return {*_names(), *_commands(), *_keys(build_json_schema())}


def _names() -> Iterator[str]:
    """Yield the public names of raysim and raysim.api, and the parameters of what can be called."""
    for module in (raysim, raysim.api):
        for name in module.__all__:
            found = getattr(module, name)
            yield f"name {module.__name__}.{name}"
            try:
                parameters = inspect.signature(found).parameters.values()
            except (TypeError, ValueError):  # it cannot be called, or takes what a built-in class takes
                continue
            for parameter in parameters:
                if parameter.name in ("args", "kwargs"):  # Python's own, of protocols and types
                    continue
                default = "" if parameter.default is inspect.Parameter.empty else f" = {_show(parameter.default)}"
                yield f"parameter {module.__name__}.{name} {str(parameter.kind).lower()} {parameter.name}{default}"


def _show(default: object) -> str:
    """Return a default without what differs between two processes."""
    return repr(default) if default is None or isinstance(default, str | int | float | tuple) else "an object"


def _commands() -> Iterator[str]:
    """Yield the commands, and each spelling of their options, from the left column of their help."""
    for name, command in COMMANDS.items():
        yield f"command {name}"
        for described in re.findall(r"^  (-.*?)(?:  |$)", command.parser(name).format_help(), re.MULTILINE):
            yield from (f"option {name} {spelling}" for spelling in re.findall(r"--?[a-z][\w-]*", described))


def _keys(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield each key of the config with its default, and each value of a list of allowed ones.

    Keys of one component alone have its name in the path, such as `dataset(npz).path`.
    """
    definitions = schema["$defs"]

    def walk(node: Any, path: str, above: tuple[str, ...]) -> Iterator[str]:
        if not isinstance(node, Mapping):
            return
        if reference := node.get("$ref"):
            name = reference.rpartition("/")[2]
            if name not in above:  # a dataset of unlabelled samples is a dataset
                yield from walk(definitions[name], path, (*above, name))
        for choices in ("anyOf", "oneOf", "allOf"):
            for choice in node.get(choices, ()):
                if "if" in choice:
                    if path in DATASETS:
                        continue
                    ((_, named),) = choice["if"]["properties"].items()
                    yield from walk(choice["then"], f"{path}({named['const']})", above)
                else:
                    yield from walk(choice, path, above)
        for allowed in node.get("enum", ()):
            yield f"value {path} {json.dumps(allowed)}"
        yield from walk(node.get("items"), f"{path}[]", above)
        for key, value in node.get("properties", {}).items():
            if value is True:  # of all components
                continue
            place = f"{path}.{key}" if path else key
            kind = value.get("const")
            default = json.dumps(value["default"]) if "default" in value else "unset"
            yield f"key {place} = {json.dumps(kind) if kind is not None else default}"
            yield from walk(value, place, above)

    yield from walk({key: value for key, value in schema.items() if key != "$defs"}, "", ())


if __name__ == "__main__":
    kept = set(KEPT.read_text(encoding="utf-8").splitlines()) if KEPT.exists() else set[str]()
    KEPT.write_text("\n".join(sorted(kept | list_interface())) + "\n", encoding="utf-8")
