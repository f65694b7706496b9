"""The tokenizer with which answers are read: the texts of ids, the ids of texts, and the id that ends a text."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from raysim.system.tokenizer_files import count_ids, digest_tokenizer, load_tokenizer, one_thread

KEY = "objective.tokenizer"


class Tokenizer:
    """A tokenizer of a folder. Files are read when it is first used.

    Args:
        path: the folder, hf://OWNER/NAME[@REVISION], or a packaged name.

    Raises:
        ConfigError: every function raises it if there is no such folder, or if it has no tokenizer.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    @property
    def end(self) -> int | None:
        """The id that ends a text, if there is one."""
        found: int | None = _load(self.path).eos_token_id
        return found

    @property
    def digest(self) -> str:
        """The digest of the tokenizer, as in `Dataset.tokenizer`."""
        return digest_tokenizer(_load(self.path))

    def check(self, highest: int) -> str | None:
        """Return a problem with ids up to `highest`, or None."""
        count = count_ids(_load(self.path))
        if highest < count:
            return None
        return f"found ids up to {highest}, allowed: 0 to {count - 1}, which {KEY}={self.path} has"

    def texts(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Return the texts of rows of ids, without special tokens."""
        with one_thread():
            found: list[str] = _load(self.path).batch_decode([*rows], skip_special_tokens=True)
        return found

    def ids(self, text: str) -> list[int]:
        """Return the ids of a text, without special tokens."""
        with one_thread():
            found: list[int] = _load(self.path)(text, add_special_tokens=False)["input_ids"]
        return found


@cache  # every evaluation needs it again
def _load(path: str) -> Any:
    return load_tokenizer(KEY, path)
