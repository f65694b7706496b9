"""YAML files and VALUEs to plain values, by the rules of YAML 1.2, with the line of every key.

PyYAML parses; what its scalars mean is decided here, because PyYAML follows YAML 1.1, where `no` is false, `1e-3` is a
string and a key given twice is silently the last one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import yaml

from raysim.config.document import DEEPEST, Document, Given, Keys
from raysim.config.scalars import plain_scalar
from raysim.system.errors import ConfigError, single_line

MOST_VALUES = 100_000  # after aliases are written out: a file of a few lines can stand for billions

PLAIN = "plain"
TAG = "tag:yaml.org,2002:"

Refuse = Callable[[int, str], NoReturn]


class _Loader(yaml.BaseLoader):
    """PyYAML's parser, with unquoted scalars marked as such instead of resolved by YAML 1.1."""

    def resolve(self, kind: type[yaml.Node], value: str | None, implicit: object) -> str:
        """Return the marker for an unquoted scalar, and the tag of its kind for everything else."""
        if kind is yaml.ScalarNode and isinstance(implicit, tuple) and implicit[0]:
            return PLAIN
        return {yaml.ScalarNode: TAG + "str", yaml.SequenceNode: TAG + "seq"}.get(kind, TAG + "map")


def read(path: str | Path) -> Document:
    """Read a YAML file whose top level is a block of keys; everything that can be wrong is a ConfigError."""
    file = str(path)

    def refuse(line: int, problem: str) -> NoReturn:
        raise ConfigError(f"{file}:{line}: {problem}")

    values = _Reading(refuse)
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
    return None if node is None else _Reading(refuse).value(node, (), frozenset())


def shorten(text: str, longest: int = 100) -> str:
    """Return text in one line, cut where it is too long for a message."""
    text = single_line(text)
    return text if len(text) <= longest else text[: longest - 3] + "..."


def _text(file: str, refuse: Refuse) -> str:
    try:
        content = Path(file).read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"{file}: there is no such file") from None
    except IsADirectoryError:
        raise ConfigError(f"{file}: this is a directory, allowed: a YAML file") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"{file}: the file cannot be read: {why}") from None
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


class _Reading:
    """One pass over a document's nodes: makes the values, keeps the lines and counts what aliases stand for."""

    def __init__(self, refuse: Refuse) -> None:
        self.lines: dict[Keys, int] = {}
        self._refuse = refuse
        self._count = 0

    def value(self, node: yaml.Node, keys: Keys, around: frozenset[int]) -> object:
        """Return the plain value of a node; `around` are the nodes that it lies in."""
        line = node.start_mark.line + 1
        self._count += 1
        if self._count > MOST_VALUES:
            self._refuse(line, f"the aliases stand for more than {MOST_VALUES} values")
        if id(node) in around:
            self._refuse(line, "an alias (*) stands for a block that contains it")
        if len(keys) > DEEPEST:
            self._refuse(line, f"nested more than {DEEPEST} deep")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, keys, around | {id(node)})
        if isinstance(node, yaml.SequenceNode):
            return self._sequence(node, keys, around | {id(node)})
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode, keys: Keys, around: frozenset[int]) -> dict[str, object]:
        self._expect_tag(node, "map")
        values: dict[str, object] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            key, line = self._key(key_node), key_node.start_mark.line + 1
            if key in values:
                self._refuse(line, f"the key '{key}' is given twice, first in line {lines[key]}")
            lines[key] = self.lines[(*keys, key)] = line
            values[key] = self.value(value_node, (*keys, key), around)
        return values

    def _sequence(self, node: yaml.SequenceNode, keys: Keys, around: frozenset[int]) -> list[object]:
        self._expect_tag(node, "seq")
        values = []
        for index, item in enumerate(node.value):
            self.lines[(*keys, index)] = item.start_mark.line + 1
            values.append(self.value(item, (*keys, index), around))
        return values

    def _expect_tag(self, node: yaml.Node, kind: str) -> None:
        if node.tag not in (TAG + kind, "!"):
            self._refuse(node.start_mark.line + 1, f"unknown tag '{_shown_tag(node.tag)}'; tags are not needed here")

    def _key(self, node: yaml.Node) -> str:
        line = node.start_mark.line + 1
        if not isinstance(node, yaml.ScalarNode):
            self._refuse(line, "found a list or a block as a key, allowed: keys that are strings")
        if node.tag == PLAIN and node.value == "<<":
            self._refuse(line, "merge keys (<<) are not part of YAML 1.2; write the keys out")
        key = self._scalar(node)
        if not isinstance(key, str):
            self._refuse(line, f"found the key {node.value or 'null'}, allowed: keys that are strings (quote it)")
        return key

    def _scalar(self, node: yaml.Node) -> object:
        line, text = node.start_mark.line + 1, str(node.value)
        if node.tag == TAG + "str":
            return text
        try:
            value = plain_scalar(text)
        except ValueError as error:
            self._refuse(line, f"found {error}")
        if node.tag == PLAIN:
            return value
        kind = {TAG + "int": int, TAG + "float": float, TAG + "bool": bool, TAG + "null": type(None)}.get(node.tag)
        if kind is None:
            self._refuse(line, f"unknown tag '{_shown_tag(node.tag)}'; tags are not needed here")
        if kind is float and type(value) is int:
            return float(value)
        if type(value) is not kind:
            self._refuse(line, f"found '{shorten(text, 40)}' with the tag {_shown_tag(node.tag)}, which it is not")
        return value


def _shown_tag(tag: str) -> str:
    return "!!" + tag.removeprefix(TAG) if tag.startswith(TAG) else tag
