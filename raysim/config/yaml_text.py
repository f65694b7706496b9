"""Read YAML 1.2 into plain values with the line of every key, and write it.

PyYAML itself follows YAML 1.1, where `no` is false and `1e-3` is a string, and it accepts repeated keys.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import yaml
from pydantic import BaseModel

from raysim.config.document import DEEPEST, Document, Given, Keys, Line, to_plain
from raysim.config.error_text import shorten, show
from raysim.system.errors import ConfigError

LARGEST_FILE = 10_000_000  # bytes
MOST_VALUES = 100_000  # aliases written out: a few lines of them can stand for billions
TAG = "tag:yaml.org,2002:"

# the core schema of YAML 1.2.2, section 10.3.2: what an unquoted scalar matches first is its value
SCALARS: Mapping[str, tuple[str, Callable[[str], object]]] = {
    "null": (r"null|Null|NULL|~|", lambda text: None),
    "bool": (r"true|True|TRUE|false|False|FALSE", lambda text: text.lower() == "true"),
    "int": (r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", lambda text: int(text, 0 if text[:2] in ("0o", "0x") else 10)),
    "float": (
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        lambda text: float(text.replace(".", "") if text[-1].isalpha() else text),
    ),
}


class _Loader(yaml.SafeLoader):
    """PyYAML's parser with the scalars of YAML 1.2."""


class _Dumper(yaml.SafeDumper):
    """PyYAML's writer, with strings quoted where YAML 1.2 or PyYAML's YAML 1.1 would read something else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _string(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # PyYAML writes some line ends raw between single quotes, where they are folded
    return dumper.represent_scalar(TAG + "str", text, style=None if text.isprintable() else '"')


def _number(dumper: yaml.SafeDumper, number: float) -> yaml.ScalarNode:
    text = repr(number)
    if "e" in text and "." not in text:  # 1e-05 is a string to readers of YAML 1.1
        text = text.replace("e", ".0e")
    return dumper.represent_scalar(TAG + "float", text)


_Loader.yaml_implicit_resolvers = {}
_Dumper.add_representer(str, _string)
_Dumper.add_representer(float, _number)
for _kind, (_pattern, _) in SCALARS.items():
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(TAG + _kind, re.compile(rf"(?:{_pattern})\Z"), None)


def read_yaml(path: str | Path, content: bytes | None = None) -> Document:
    """Read a YAML file with a block of keys at the top level; `content` is its content if it is read already.

    Raises:
        ConfigError: it cannot be read, or has something else.
    """
    file, lines = str(path), dict[Keys, int]()
    values = _parse(read_file(file) if content is None else content, lambda line: f"{file}:{line}", lines, _Loader)
    if values is None:
        raise ConfigError(f"{file}: the file is empty, allowed: a block of keys, such as name: my-run")
    if not isinstance(values, dict):
        raise ConfigError(f"{file}:1: the top level is no block of keys, allowed: lines such as name: my-run")
    return Document(file, values, {keys: Line(file, number) for keys, number in lines.items()})


def parse_value(text: str, given: Given | None = None) -> object:
    """Return the value of VALUE in KEY=VALUE. An empty one is null."""
    return _parse(text, lambda line: shorten(given.text if given else text), {}, _Loader)


def read_yaml_texts(path: str | Path) -> object:
    """Return a file's lists and blocks with all scalars, keys included, as the texts that are written in it.

    This is for files of other tools. Their names may look like numbers or truth values, in YAML 1.1 or 1.2.

    Raises:
        ConfigError: the file cannot be read, is no YAML, or gives a key twice.
    """
    file = str(path)
    return _parse(read_file(file), lambda line: f"{file}:{line}", {}, yaml.BaseLoader)


def read_file(file: str) -> bytes:
    """Return the content of a YAML file. Raises ConfigError."""
    path = Path(file)
    try:
        if path.is_dir():
            raise ConfigError(f"{file}: this is a directory, allowed: a YAML file")
        if path.exists() and not path.is_file():  # reading a pipe or a device may never end
            raise ConfigError(f"{file}: this is no regular file, allowed: a YAML file, not a pipe or a device")
        if path.exists() and (size := path.stat().st_size) > LARGEST_FILE:
            raise ConfigError(f"{file}: found {size:,} bytes, allowed: a YAML file of at most {LARGEST_FILE:,}")
        return path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"{file}: there is no such file") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: the file cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _parse(
    text: str | bytes, place: Callable[[int], str], lines: dict[Keys, int], loader: type[_Loader | yaml.BaseLoader]
) -> object:
    """Return the value of a text, and add the lines of its keys to `lines`. `place` describes a line in errors."""
    try:
        node = yaml.compose(text, Loader=loader)
        return None if node is None else _value(node, (), lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, problem = mark.line + 1 if mark else 1, error.problem or error.context or "it cannot be parsed"
        if problem == "but found another document":
            problem = "a second document begins here (---), allowed: one document"
        if not isinstance(error, yaml.constructor.ConstructorError):
            problem = f"broken YAML: {problem}"
    except yaml.reader.ReaderError as error:
        end, found = error.position, error.character
        line = (text.count("\n", 0, end) if isinstance(text, str) else text.count(b"\n", 0, end)) + 1
        problem = f"broken YAML: the character {chr(found)!r} is not allowed"
        if error.encoding != "unicode":
            problem = f"byte 0x{found:02x} is no UTF-8; the file must be a text file in UTF-8"
    except RecursionError:
        line, problem = 1, f"nested more than {DEEPEST} deep"
    except (ValueError, OverflowError):
        line, problem = 1, "broken YAML: an escape such as \\UFFFFFFFF stands for no character"
    raise ConfigError(f"{place(line)}: {problem}")


def _value(node: yaml.Node, keys: Keys, lines: dict[Keys, int]) -> object:
    kind = node.tag.removeprefix(TAG)
    if len(keys) > DEEPEST:
        _refuse(node, f"nested more than {DEEPEST} deep")
    if len(lines) > MOST_VALUES:
        _refuse(node, f"found more than {MOST_VALUES} values, those of aliases included")
    if isinstance(node, yaml.MappingNode) and kind == "map":
        return _block(node, keys, lines)
    if isinstance(node, yaml.SequenceNode) and kind == "seq":
        lines |= {(*keys, place): _line(item) for place, item in enumerate(node.value)}
        return [_value(item, (*keys, place), lines) for place, item in enumerate(node.value)]
    if isinstance(node, yaml.ScalarNode) and kind == "str":
        return str(node.value)
    if not isinstance(node, yaml.ScalarNode) or kind not in SCALARS:
        tag = f"!!{kind}" if node.tag.startswith(TAG) else node.tag
        _refuse(node, f"unknown tag '{tag}'; tags are not needed here")
    pattern, convert = SCALARS[kind]
    if not re.fullmatch(pattern, node.value):
        _refuse(node, f"found '{shorten(node.value, 40)}' with the tag !!{kind}, which it is not")
    try:
        return convert(node.value)
    except ValueError:  # Python refuses integers of many thousand digits
        _refuse(node, f"found a number of {len(node.value)} characters, which is too long")


def _block(node: yaml.MappingNode, keys: Keys, lines: dict[Keys, int]) -> dict[str, object]:
    values: dict[str, object] = {}
    for key_node, value_node in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            _refuse(key_node, "found a list or a block as a key, allowed: keys that are strings")
        key = _value(key_node, (), {})
        if not isinstance(key, str):
            _refuse(key_node, f"found the key {key_node.value or 'null'}, allowed: keys that are strings (quote it)")
        at = (*keys, key)
        if key in values:
            _refuse(key_node, f"the key '{key}' is given twice, first in line {lines[at]}")
        lines[at] = _line(key_node)
        values[key] = _value(value_node, at, lines)
    return values


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _refuse(node: Any, problem: str) -> NoReturn:
    raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def to_yaml(values: object, flow: bool = False) -> str:
    """Return plain values, or a config's, as YAML; in one line with braces if `flow`."""
    plain = to_plain(values) if isinstance(values, BaseModel) else values
    text: str = yaml.dump(
        plain, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=flow, width=2**31
    )
    return text


def to_yaml_line(value: object) -> str:
    """Return a plain value as YAML in one line, and a string without quotes."""
    if isinstance(value, str):
        return value
    try:
        return to_yaml(value, flow=True).partition("\n")[0]
    except yaml.representer.RepresenterError:  # a Python object, which the config will refuse
        return show(value)
