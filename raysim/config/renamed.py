"""Keys of the config that were renamed: their values go to the new keys, with a warning.

A row stays until the next major version, since run directories and packed results of this one may have the old key.
docs/stability.md promises this.
"""

from collections.abc import Mapping

from raysim.config.document import Document, Given
from raysim.config.error_text import show
from raysim.system.caller import DeprecatedKey, warn_caller

RENAMED: Mapping[str, tuple[str, str]] = {}
"""Dotted key -> its present name, and the version that renamed it: "training.rate": ("training.optimizer.lr", "1.1").

Both are spelled as in a file with blocks. The value keeps its meaning.
"""


def move_renamed(document: Document) -> None:
    """Give the values of renamed keys to the present ones, and warn.

    Of both names, the one that was given as KEY=VALUE counts. Raises ConfigError if both or none of them were.
    """
    for old, (new, version) in RENAMED.items():
        keys, target = tuple(old.split(".")), tuple(new.split("."))
        block = _find_block(document, keys)
        if block is None:
            continue
        words = f"this key is called {new} since raysim {version}, and the old name will be removed; write {new}"
        warn_caller(f"{document.place(keys)}: {words}", DeprecatedKey)
        overrides = [isinstance(document.origin(each), Given) for each in (keys, target)]
        present = _find_block(document, target) is not None
        if present and overrides[0] == overrides[1]:
            raise document.error(keys, f"found {old} and {new}, which is its name now, allowed: {new} alone")
        origin = document.origin(keys)
        value = block.pop(keys[-1])
        if not present or overrides[0]:
            document.put(target, value, origin or Given(target, f"{old}={show(value)}", 0))


def _find_block(document: Document, keys: tuple[str, ...]) -> dict[str, object] | None:
    """Return the block that holds the last of these keys, or None if the key is absent."""
    block: object = document.values
    for key in keys[:-1]:
        block = block.get(key) if isinstance(block, dict) else None
    return block if isinstance(block, dict) and keys[-1] in block else None
