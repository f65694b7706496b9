"""What a component says of its keys: the comments that stand beside them in its source."""

from __future__ import annotations

import ast
import functools
import inspect
import io
import textwrap
import tokenize
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Key = tuple[str, int, int]  # its name, and the first and last line that it is written on


def descriptions(component: Callable[..., Any]) -> Mapping[str, str]:
    """Return key -> the comment beside it: behind a dataclass's field or a function's keyword-only parameter.

    A subclass has its bases' keys. Nothing is known of a key without a comment, or where there is no source to read.
    """
    while isinstance(component, functools.partial):
        component = component.func
    written = reversed(component.__mro__) if isinstance(component, type) else [component]
    return {key: text for part in written for key, text in _beside_keys(part)}


def _beside_keys(part: type[Any] | Callable[..., Any]) -> Iterator[tuple[str, str]]:
    try:
        source = textwrap.dedent(inspect.getsource(part))
        defined = ast.parse(source).body[0]
    except (OSError, TypeError, SyntaxError):
        return
    comments = _comments(source)
    for key, first, last in _keys(defined):
        text = " ".join(comments[line] for line in range(first, last + 1) if line in comments)
        if text:
            yield key, text


def _keys(defined: ast.stmt) -> Iterator[Key]:
    if isinstance(defined, ast.ClassDef):
        for line in defined.body:
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                yield line.target.id, line.lineno, line.end_lineno or line.lineno
    elif isinstance(defined, ast.FunctionDef):
        for parameter, default in zip(defined.args.kwonlyargs, defined.args.kw_defaults, strict=True):
            last = parameter if default is None else default
            yield parameter.arg, parameter.lineno, last.end_lineno or last.lineno


def _comments(source: str) -> Mapping[int, str]:
    """Return line -> its comment, without the sign."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}
