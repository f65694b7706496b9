"""Values that several parts of a process share: copies without common memory, and whether a value has changed."""

import copy
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from itertools import zip_longest
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from raysim.system.state import Stateful, map_leaves

COMPARED = (int, float, complex, str, bytes, bytearray, set, frozenset, np.generic)
"""The types of other leaves that are compared by value. Objects of other classes may have no comparison."""


def nodes(value: Any, path: str = "", above: tuple[int, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield a value and what is nested in its lists, tuples, mappings and objects, each with its path, as "['w']".

    `above` has the ids of the objects that hold it, since an object may hold itself.

    >>> [path for path, _ in nodes({"w": [1, 2]})]
    ['', "['w']", "['w'][0]", "['w'][1]"]
    """
    yield path, value
    if isinstance(value, Mapping):
        parts = [(f"[{key!r:.60}]", part) for key, part in value.items()]
    elif is_dataclass(value) and not isinstance(value, type):
        parts = [(f".{part.name}", getattr(value, part.name)) for part in fields(value)]
    elif isinstance(value, list | tuple | deque):
        parts = [(f"[{i}]", part) for i, part in enumerate(value)]
    else:
        parts = [(f".{name}", part) for name, part in _attributes(value).items()]
    for name, part in parts if id(value) not in above else ():
        yield from nodes(part, path + name, (*above, id(value)))


def _attributes(value: Any) -> Mapping[str, Any]:
    """Return the attributes of an object of a class of its own, such as an `Encoded` value."""
    if isinstance(value, Tensor | Stateful | type | ModuleType | FunctionType | MethodType):
        return {}  # a Stateful one keeps and copies itself
    return getattr(value, "__dict__", {})


def separate(value: Any) -> Any:
    """Return a copy that shares no memory with a value: without autograd's graph, with dicts for mappings."""
    return map_leaves(_separate_leaf, value)


def _separate_leaf(leaf: Any) -> Any:
    return leaf.detach().clone() if isinstance(leaf, Tensor) else copy.deepcopy(leaf)


def memory_of(value: Any) -> set[int]:
    """Return addresses of the memory that could be changed through a value: of storages, arrays, lists and dicts."""
    found = set()
    for _, node in nodes(value):
        if isinstance(node, Tensor):
            found.add(node.untyped_storage().data_ptr())
        elif isinstance(node, np.ndarray):
            found.add(node.__array_interface__["data"][0])
        elif isinstance(node, list | dict | set | bytearray):
            found.add(id(node))
    return found - {0}  # of tensors without elements


def nbytes_of(value: Any) -> int:
    """Return the bytes of the tensors and arrays in a value. Parts of a tensor count as what they are."""
    return sum(node.nbytes for _, node in nodes(value) if isinstance(node, Tensor | np.ndarray))


class Snapshot:
    """A value, its memory, and a copy of what it was when this object was made."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.memory = memory_of(value)
        self._copy = separate(value)

    def change(self) -> str | None:
        """Return the path of the first part that has changed, or None."""
        return first_difference(self.value, self._copy)


def first_difference(one: Any, other: Any) -> str | None:
    """Return the path of the first part in which two values differ, or None."""
    for a, b in zip_longest(nodes(one), nodes(other)):
        if a is None or b is None:
            return (a or b or ("",))[0]
        if a[0] != b[0] or not _equal(a[1], b[1]):
            return a[0]
    return None


def _equal(one: Any, other: Any) -> bool:
    """Return whether two nodes are equal, apart from the nodes in them. NaN equals itself."""
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        if not (isinstance(one, Tensor) and isinstance(other, Tensor)):
            return False
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            return False
        return torch.equal(one, other) or bool(((one == other) | ((one != one) & (other != other))).all())
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        if not (isinstance(one, np.ndarray) and isinstance(other, np.ndarray)):
            return False
        return (one.shape, one.dtype) == (other.shape, other.dtype) and one.tobytes() == other.tobytes()
    if isinstance(one, COMPARED) or isinstance(other, COMPARED):
        return bool(one == other) or bool(one != one and other != other)
    return (one is None) == (other is None)
