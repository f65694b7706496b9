"""Texts as ids of a pretrained model's tokenizer: its folder, and texts as ids and a mask, padded on the right."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from raysim.config.error_text import show
from raysim.data.dataset import Array
from raysim.objectives import IGNORED
from raysim.system.capacity import require_memory
from raysim.system.errors import ConfigError
from raysim.system.tokenizer_files import count_ids, digest_tokenizer, load_tokenizer, one_thread

Ids = npt.NDArray[np.int64]

KEY = "dataset.tokenizer"
UNLIMITED = 2**30  # a larger model_max_length says that the tokenizer knows no limit


@dataclass(frozen=True, eq=False)
class TextIds:
    """Texts as ids. `ids`, `mask` and `types` are int64 [N, length]; the mask is 1 at tokens and 0 at padding."""

    ids: Ids
    mask: Ids
    types: Ids
    cut: int
    """The number of texts with more than `length` tokens."""
    empty: int
    """The number of texts without a token. Each is one token, see `TextTokenizer.filler`."""


class TextTokenizer:
    """The fast tokenizer of a folder of Hugging Face's `transformers`."""

    def __init__(self, name: str) -> None:
        """Load the tokenizer of a folder, hf://OWNER/NAME[@REVISION] or a packaged name.

        Raises:
            ConfigError: there is no such folder, or it has no fast tokenizer.
        """
        self.name = name
        self.inner = load_tokenizer(KEY, name)
        self.digest = digest_tokenizer(self.inner)

    @property
    def size(self) -> int:
        """The number of ids, from 0, with those of added tokens."""
        return count_ids(self.inner)

    @property
    def filler(self) -> int:
        """The id of the one token of a text without tokens: an unknown token's, else that of the end, else 0."""
        named = (self.inner.unk_token_id, self.inner.eos_token_id, self.inner.pad_token_id)
        return next((number for number in named if number is not None), 0)

    @property
    def padding(self) -> int:
        """The id at padding. The mask says what is padding, so a tokenizer without such an id has that of the end."""
        named = (self.inner.pad_token_id, self.inner.eos_token_id)
        return next((number for number in named if number is not None), 0)

    def doubt(self, length: int) -> tuple[str, ...]:
        """Return a warning if texts may have more tokens than the tokenizer's model takes."""
        most = self.inner.model_max_length
        if most < min(length, UNLIMITED):
            return (f"dataset.length: found {length}, more than the {most} tokens for which {self.name} is made",)
        return ()

    def encode_parts(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of parts of texts, without special tokens before or behind them."""
        with one_thread():
            found = self.inner([*texts], add_special_tokens=False, verbose=False) if texts else {"input_ids": []}
        return [*found["input_ids"]]

    @property
    def begin(self) -> list[int]:
        """The id that the tokenizer puts before every text, if it is the text's begin token."""
        first = self.inner("")["input_ids"][:1]
        return [*first] if first == [self.inner.bos_token_id] else []

    @property
    def end(self) -> list[int]:
        """The id of a text's end, behind an answer; empty if the tokenizer has none."""
        return [] if self.inner.eos_token_id is None else [int(self.inner.eos_token_id)]

    def encode(self, texts: Sequence[str], length: int) -> TextIds:
        """Return texts as ids with the tokenizer's special tokens, cut behind `length` tokens.

        Raises:
            ConfigError: there is no place for more than the special tokens, or the ids do not fit into memory.
        """
        special = self.inner.num_special_tokens_to_add(pair=False)
        if length <= special:
            more = f"{special + 1} or more, as {show(self.name)} adds {special} tokens to each text"
            raise ConfigError(f"dataset.length: found {length}, allowed: {more}")
        require_memory(3 * 8 * length * len(texts), "dataset.length", f"{length} for {len(texts)} texts")
        self.inner.truncation_side = "right"
        with one_thread():
            found = self.inner([*texts], truncation=True, max_length=length, verbose=False) if texts else None
        rows = [] if found is None else found.encodings
        ids, mask, types = (np.zeros((len(texts), length), np.int64) for _ in range(3))
        ids += self.padding
        for number, row in enumerate(rows):
            tokens = row.ids or [self.filler]
            ids[number, : len(tokens)], mask[number, : len(tokens)] = tokens, 1
            types[number, : len(row.type_ids)] = row.type_ids
        return TextIds(ids, mask, types, sum(bool(row.overflowing) for row in rows), sum(not row.ids for row in rows))


def next_tokens(ids: Ids, counted: Array) -> Ids:
    """Return the targets of next-token prediction, int64 [N, length]: at place t the id at t + 1, or IGNORED.

    Args:
        ids: the texts, [N, length].
        counted: whether a token is to be predicted, [N, length]; padding and prompts are not.
    """
    targets = np.full_like(ids, IGNORED)
    targets[:, :-1] = np.where(counted[:, 1:] > 0, ids[:, 1:], IGNORED)
    return targets


def describe_encoded(encoded: Sequence[TextIds], length: int, tokenizer: TextTokenizer) -> list[str]:
    """Return notes on texts that are cut, and on texts without a token."""
    count, cut = sum(len(one.ids) for one in encoded), sum(one.cut for one in encoded)
    notes = [f"cut {cut:,} of {count:,} texts to {length:,} tokens"] if cut else []
    if empty := sum(one.empty for one in encoded):
        token = show(tokenizer.inner.convert_ids_to_tokens(tokenizer.filler))
        notes.append(f"{empty:,} of {count:,} texts without a token are the token {token}")
    return notes
