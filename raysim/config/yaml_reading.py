"""YAML files and VALUEs to plain values, by the rules of YAML 1.2, with the line of every key.

PyYAML parses; what its scalars mean is decided here, because PyYAML follows YAML 1.1, where `no` is false, `1e-3` is a
string and a key given twice is silently the last one.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import yaml

from raysim.config.document import DEEPEST, Document, Given, Keys
from raysim.config.error_text import shorten
from raysim.system.errors import ConfigError

MOST_VALUES = 100_000  # after aliases are written out: a file of a few lines can stand for billions
LARGEST_FILE = 10_000_000  # bytes
LONGEST_NUMBER = 400  # characters: more than any float or seed needs, less than Python's own limit for int()

PLAIN = "plain"
TAG = "tag:yaml.org,2002:"
TYPES = {TAG + "int": int, TAG + "float": float, TAG + "bool": bool, TAG + "null": type(None)}

# the core schema of YAML 1.2.2, section 10.3.2: what an unquoted scalar matches first is its value
CORE_SCHEMA: tuple[tuple[str, Callable[[str], bool | int | float | None]], ...] = (
    (r"null|Null|NULL|~|", lambda text: None),
    (r"true|True|TRUE", lambda text: True),
    (r"false|False|FALSE", lambda text: False),
    (r"[-+]?[0-9]+", int),
    (r"0o[0-7]+", lambda text: int(text, 8)),
    (r"0x[0-9a-fA-F]+", lambda text: int(text, 16)),
    (r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", float),
    (r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", lambda text: float(text.replace(".", ""))),
)

Refuse = Callable[[int, str], NoReturn]


class _Loader(yaml.BaseLoader):
    """PyYAML's parser, with unquoted scalars marked as such instead of resolved by YAML 1.1."""

    def resolve(self, kind: type[yaml.Node], value: str | None, implicit: object) -> str:
        """Return the marker for an unquoted scalar, and the tag of its kind for everything else."""
        if kind is yaml.ScalarNode and isinstance(implicit, tuple) and implicit[0]:
            return PLAIN
        return {yaml.ScalarNode: TAG + "str", yaml.SequenceNode: TAG + "seq"}.get(kind, TAG + "map")


def read_yaml(path: str | Path) -> Document:
    """Read a YAML file whose top level is a block of keys; everything that can be wrong is a ConfigError."""
    file = str(path)

    def refuse(line: int, problem: str) -> NoReturn:
        raise ConfigError(f"{file}:{line}: {problem}")

    values = _NodeReader(refuse)
    node = _compose(_text(file, refuse), refuse)
    found = None if node is None else values.value(node, (), frozenset())
    if node is None or found is None:
        raise ConfigError(f"{file}: the file is empty, allowed: a block of keys, such as name: my-run")
    if not isinstance(found, dict):
        refuse(node.start_mark.line + 1, "the top level is no block of keys, allowed: lines such as name: my-run")
    return Document(file, found, dict(values.lines))


def parse_value(text: str, given: Given | None = None) -> object:
    """Return the value of the VALUE in KEY=VALUE; an empty one is null."""
    shown = given.text if given else text

    def refuse(line: int, problem: str) -> NoReturn:
        raise ConfigError(f"{shorten(shown)}: {problem}")

    node = _compose(text, refuse)
    return None if node is None else _NodeReader(refuse).value(node, (), frozenset())


def parse_plain_scalar(text: str) -> bool | int | float | str | None:
    """Return the value of an unquoted scalar; ValueError where it is a number of absurd length."""
    for pattern, convert in CORE_SCHEMA:
        if re.fullmatch(pattern, text):
            if len(text) > LONGEST_NUMBER:
                raise ValueError(f"a number of {len(text)} characters; at most {LONGEST_NUMBER} are read")
            return convert(text)
    return text


def _text(file: str, refuse: Refuse) -> str:
    try:
        path = Path(file)
        if path.exists() and not (path.is_file() or path.is_dir()):  # reading a pipe or a device may never end
            raise ConfigError(f"{file}: this is no regular file, allowed: a YAML file, not a pipe or a device")
        if path.is_file() and path.stat().st_size > LARGEST_FILE:
            allowed = f"a YAML file of at most {LARGEST_FILE:,}"
            raise ConfigError(f"{file}: found {path.stat().st_size:,} bytes, allowed: {allowed}")
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        known: dict[type[Exception], str] = {
            FileNotFoundError: "there is no such file",
            IsADirectoryError: "this is a directory, allowed: a YAML file",
        }
        why = f"the file cannot be read: {getattr(error, 'strerror', None) or error}"
        raise ConfigError(f"{file}: {known.get(type(error), why)}") from None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        refuse(line, f"byte 0x{content[error.start]:02x} is no UTF-8; the file must be a text file in UTF-8")


def _compose(text: str, refuse: Refuse) -> yaml.Node | None:
    try:
        loader: Any = _Loader  # the stubs know PyYAML's own loaders only
        node: yaml.Node | None = yaml.compose(text, Loader=loader)
        return node
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or error.context or "it cannot be parsed"
        if problem == "but found another document":
            problem = "a second document begins here (---), allowed: one document"
        refuse(mark.line + 1 if mark else 1, f"broken YAML: {problem}")
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        refuse(line, f"broken YAML: the character {text[error.position]!r} is not allowed")
    except RecursionError:
        refuse(1, f"broken YAML: nested more than {DEEPEST} deep")
    except (ValueError, OverflowError):
        refuse(1, "broken YAML: an escape such as \\UFFFFFFFF stands for no character")


class _NodeReader:
    """One pass over a document's nodes: makes the values, keeps the lines and counts what aliases stand for."""

    def __init__(self, refuse: Refuse) -> None:
        self.lines: dict[Keys, int] = {}
        self._refuse_line = refuse
        self._count = 0

    def value(self, node: yaml.Node, keys: Keys, around: frozenset[int]) -> object:
        """Return the plain value of a node; `around` are the nodes that it lies in."""
        self._count += 1
        if self._count > MOST_VALUES:
            self._refuse(node, f"the aliases stand for more than {MOST_VALUES} values")
        if id(node) in around:
            self._refuse(node, "an alias (*) stands for a block that contains it")
        if len(keys) > DEEPEST:
            self._refuse(node, f"nested more than {DEEPEST} deep")
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if node.tag not in (TAG + ("map" if isinstance(node, yaml.MappingNode) else "seq"), "!"):
            self._refuse_tag(node)
        read = self._mapping if isinstance(node, yaml.MappingNode) else self._sequence
        return read(node, keys, around | {id(node)})

    def _mapping(self, node: yaml.Node, keys: Keys, around: frozenset[int]) -> dict[str, object]:
        values: dict[str, object] = {}
        for key_node, value_node in node.value:
            key = self._key(key_node)
            at = (*keys, key)
            if key in values:
                self._refuse(key_node, f"the key '{key}' is given twice, first in line {self.lines[at]}")
            self.lines[at] = _line(key_node)
            values[key] = self.value(value_node, at, around)
        return values

    def _sequence(self, node: yaml.Node, keys: Keys, around: frozenset[int]) -> list[object]:
        values = []
        for index, item in enumerate(node.value):
            self.lines[(*keys, index)] = _line(item)
            values.append(self.value(item, (*keys, index), around))
        return values

    def _key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            self._refuse(node, "found a list or a block as a key, allowed: keys that are strings")
        if node.tag == PLAIN and node.value == "<<":
            self._refuse(node, "merge keys (<<) are not part of YAML 1.2; write the keys out")
        key = self._scalar(node)
        if not isinstance(key, str):
            self._refuse(node, f"found the key {node.value or 'null'}, allowed: keys that are strings (quote it)")
        return key

    def _scalar(self, node: yaml.Node) -> object:
        text = str(node.value)
        if node.tag == TAG + "str":
            return text
        try:
            value = parse_plain_scalar(text)
        except ValueError as error:
            self._refuse(node, f"found {error}")
        if node.tag == PLAIN:
            return value
        kind = TYPES.get(node.tag) or self._refuse_tag(node)
        if kind is float and type(value) is int:
            return float(value)
        if type(value) is not kind:
            self._refuse(node, f"found '{shorten(text, 40)}' with the tag {_show_tag(node.tag)}, which it is not")
        return value

    def _refuse_tag(self, node: yaml.Node) -> NoReturn:
        self._refuse(node, f"unknown tag '{_show_tag(node.tag)}'; tags are not needed here")

    def _refuse(self, node: yaml.Node, problem: str) -> NoReturn:
        self._refuse_line(_line(node), problem)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _show_tag(tag: str) -> str:
    return "!!" + tag.removeprefix(TAG) if tag.startswith(TAG) else tag
