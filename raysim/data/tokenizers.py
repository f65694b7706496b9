"""Texts as ids of a pretrained model's tokenizer: its folder, and texts as ids and a mask, padded on the right."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from raysim.config.error_text import shorten, show
from raysim.data.dataset import Array
from raysim.system.capacity import require_memory
from raysim.system.errors import ConfigError, first_line
from raysim.system.hub_files import find_folder
from raysim.system.importing import import_extra

Ids = npt.NDArray[np.int64]

KEY = "dataset.tokenizer"
IGNORED = -100
"""The target of a position that no loss and no metric counts: of padding, and of a prompt."""
UNLIMITED = 2**30  # a larger model_max_length says that the tokenizer knows no limit


@dataclass(frozen=True, eq=False)
class Encoded:
    """Texts as ids. `ids`, `mask` and `types` are int64 [N, length]; the mask is 1 at tokens and 0 at padding."""

    ids: Ids
    mask: Ids
    types: Ids
    cut: int
    """The number of texts with more than `length` tokens."""
    empty: int
    """The number of texts without a token. Each is one token, see `TextTokenizer.filler`."""

    @property
    def count(self) -> int:
        """The number of texts."""
        return len(self.ids)

    def take(self, rows: Array) -> "Encoded":
        """Return only these rows. The counts stay those of all texts."""
        return replace(self, ids=self.ids[rows], mask=self.mask[rows], types=self.types[rows])


class TextTokenizer:
    """The fast tokenizer of a folder of Hugging Face's `transformers`."""

    def __init__(self, name: str) -> None:
        """Load the tokenizer of a folder, hf://OWNER/NAME[@REVISION] or a packaged name.

        Raises:
            ConfigError: there is no such folder, or it has no fast tokenizer.
        """
        self.name = name
        folder = find_folder(KEY, name)
        if not folder.is_dir():
            raise ConfigError(
                f"{KEY}: found {show(name)}, which has no tokenizer, allowed: a folder with tokenizer.json"
            )
        transformers = import_extra("transformers", "transformers")
        allowed = "a folder with tokenizer.json and tokenizer_config.json, as save_pretrained writes it"
        try:
            with _quiet():
                self.inner: Any = transformers.AutoTokenizer.from_pretrained(
                    str(folder), local_files_only=True, trust_remote_code=False, use_fast=True
                )
        except Exception as error:  # of a missing, a damaged or an unknown file
            reason = shorten(first_line(error))
            raise ConfigError(
                f"{KEY}: no tokenizer can be read from {folder} ({reason}), allowed: {allowed}"
            ) from error
        if not getattr(self.inner, "is_fast", False):
            found = f"found {show(name)} with the slow tokenizer {type(self.inner).__name__}"
            raise ConfigError(f"{KEY}: {found}, allowed: {allowed}")

    @property
    def size(self) -> int:
        """The number of ids, from 0, with those of added tokens."""
        return max(len(self.inner), 1 + max(self.inner.get_vocab().values(), default=0))

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

    def encode(self, texts: Sequence[str], length: int) -> Encoded:
        """Return texts as ids with the tokenizer's special tokens, cut behind `length` tokens.

        Raises:
            ConfigError: there is no place beside the special tokens, or the ids do not fit into memory.
        """
        special = self.inner.num_special_tokens_to_add(pair=False)
        if length <= special:
            beside = f"{special + 1} or more, as {show(self.name)} adds {special} tokens to each text"
            raise ConfigError(f"dataset.length: found {length}, allowed: {beside}")
        require_memory(3 * 8 * length * len(texts), "dataset.length", f"{length} for {len(texts)} texts")
        self.inner.truncation_side = "right"
        with _one_thread():
            found = self.inner([*texts], truncation=True, max_length=length, verbose=False) if texts else None
        rows = [] if found is None else found.encodings
        ids, mask, types = (np.zeros((len(texts), length), np.int64) for _ in range(3))
        ids += self.padding
        for number, row in enumerate(rows):
            tokens = row.ids or [self.filler]
            ids[number, : len(tokens)], mask[number, : len(tokens)] = tokens, 1
            types[number, : len(row.type_ids)] = row.type_ids
        return Encoded(ids, mask, types, sum(bool(row.overflowing) for row in rows), sum(not row.ids for row in rows))


def next_tokens(ids: Ids, counted: Array) -> Ids:
    """Return the targets of next-token prediction, int64 [N, length]: at place t the id at t + 1, or IGNORED.

    Args:
        ids: the texts, [N, length].
        counted: whether a token is to be predicted, [N, length]; padding and prompts are not.
    """
    targets = np.full_like(ids, IGNORED)
    targets[:, :-1] = np.where(counted[:, 1:] > 0, ids[:, 1:], IGNORED)
    return targets


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let the tokenizer start no threads, after which a process must not be forked."""
    name = "TOKENIZERS_PARALLELISM"
    before = os.environ.get(name)
    os.environ[name] = "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


@contextmanager
def _quiet() -> Iterator[None]:
    """Let `transformers` print nothing while it loads."""
    logging = import_extra("transformers.utils.logging", "transformers")
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)
