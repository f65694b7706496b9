"""Tokens of texts: how they are found, and their ids by how often the training texts have them."""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Annotated, TypeVar

import numpy as np
from annotated_types import Ge, doc

from raysim.config.error_text import show
from raysim.data.dataset import Array
from raysim.objectives.words import with_marks
from raysim.system.capacity import require_memory
from raysim.system.errors import ConfigError

UNKNOWN, FIRST_WORD = 1, 2
"""The ids of an unknown token and of the most frequent word. Id 0 is padding (see models/inputs)."""

MOST_IDS = 10_000

Text = TypeVar("Text")


@dataclass(frozen=True, kw_only=True)
class TokenKeys:
    """The keys of every dataset of texts: what its tokens are, and how many are used."""

    token: Annotated[
        str | None,
        doc("a regular expression: what it finds in the text are the tokens; null is words, with apostrophes inside"),
    ] = None
    lower: Annotated[bool | None, doc("whether texts become lower case; null is true, or what a tokenizer does")] = None
    length: Annotated[int, Ge(1), doc("tokens of a sample: longer texts are cut, shorter ones filled up with id 0")] = (
        64
    )
    vocabulary: Annotated[
        Annotated[int, Ge(3)] | None,
        doc("ids at most: padding is 0, an unknown token 1, then the most frequent; null is 10000, or a tokenizer's"),
    ] = None

    def splitter(self) -> Callable[[str], list[str]]:
        """Return a function that returns the first tokens of a text: `length`, and one more if there is one.

        Raises:
            ConfigError: `token` is no regular expression.
        """
        try:
            pattern = word() if self.token is None else re.compile(self.token)
        except (re.error, RecursionError, OverflowError) as error:
            problem = f"found {show(self.token)}, allowed: a regular expression ({error})"
            raise ConfigError(f"dataset.token: {problem}") from error

        def tokens(text: str) -> list[str]:
            matches = (match[0] for match in pattern.finditer(self.normal(text)))
            return list(islice((token for token in matches if token), self.length + 1))

        return tokens

    def normal(self, text: str) -> str:
        """Return a text in lower case, unless `lower` is false, and with composed letters (Unicode's NFC)."""
        return unicodedata.normalize("NFC", text if self.lower is False else text.lower())


@cache
def word() -> re.Pattern[str]:
    """Return the pattern of a word: letters with their marks, and apostrophes inside."""
    inside = with_marks(r"\w")
    return re.compile(f"{inside}(?:'{inside})*")


def index_texts(
    parts: Sequence[Sequence[Text]], tokens: Callable[[Text], list[str]], keys: TokenKeys, where: object
) -> tuple[list[Array], tuple[str, ...], tuple[str, ...]]:
    """Return the ids of each part's texts, int64 [n, length], the words, and notes. The first part is for training.

    `tokens` returns a text's first tokens, more than `length` if the text has more. `where` names the training texts in
    errors.

    Raises:
        ConfigError: no training text has a token, or the ids do not fit into memory.
    """
    count = sum(map(len, parts))
    require_memory(8 * keys.length * count, "dataset.length", f"{keys.length} for {count} texts")
    counts = Counter(token for text in parts[0] for token in tokens(text)[: keys.length])
    if not counts:
        what = "a text" if keys.lower is False else "a text in lower case"
        problem = f"found {show(keys.token)}, which finds nothing in the training texts of {where}"
        raise ConfigError(f"dataset.token: {problem}, allowed: what finds a token in {what}")
    words = tuple(sorted(counts, key=lambda word: (-counts[word], word))[: (keys.vocabulary or MOST_IDS) - FIRST_WORD])
    ids = number_words(words)
    rows = [[[ids.get(token, UNKNOWN) for token in tokens(text)] for text in part] for part in parts]
    longer = sum(len(row) > keys.length for part in rows for row in part)
    notes = (f"cut {longer:,} of {count:,} texts to {keys.length:,} tokens",) if longer else ()
    return [_stack(part, keys.length) for part in rows], words, notes


def number_words(words: Sequence[str]) -> dict[str, int]:
    """Return the ids of words."""
    return {word: number for number, word in enumerate(words, FIRST_WORD)}


def _stack(rows: Sequence[Sequence[int]], length: int) -> Array:
    """Return the first token ids as int64 [n, length]. A text without tokens becomes one unknown token."""
    x = np.zeros((len(rows), length), np.int64)
    for number, row in enumerate(rows):
        first = row[:length] or [UNKNOWN]
        x[number, : len(first)] = first
    return x
