"""Texts with labels as a dataset: ids by a vocabulary of their own or by a tokenizer, and what is to be learned."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Literal

import numpy as np
from annotated_types import doc

from raysim.config.error_text import show
from raysim.data.arrays import join_arrays
from raysim.data.class_order import describe_classes
from raysim.data.dataset import Array, Dataset, Split
from raysim.data.json_lines import LabeledTexts, Texts
from raysim.data.tokenizers import Encoded, TextTokenizer, next_tokens
from raysim.data.tokens import FIRST_WORD, TokenKeys, index_texts
from raysim.system.errors import ConfigError

OF_TOKENS = ("token", "lower", "vocabulary")  # keys of a vocabulary of one's own


@dataclass(frozen=True, kw_only=True)
class TextKeys(TokenKeys):
    """The keys of texts with labels: what their ids are, and what is learned of them."""

    tokenizer: Annotated[
        str | None,
        doc("a tokenizer's folder, hf://OWNER/NAME[@REVISION] or minilm-l6; null numbers the training texts' words"),
    ] = None
    token_types: Annotated[bool, doc("whether a sample also has the array token_type_ids, of a tokenizer")] = False
    target: Annotated[
        Literal["label", "next_token"],
        doc("what is learned: the label, or each next token of a tokenizer; then a column has the labels"),
    ] = "label"

    def check(self) -> None:
        """Refuse keys that mean nothing beside the others.

        Raises:
            ConfigError: a key of words is set with a tokenizer, or one that needs a tokenizer without.
        """
        defaults = {field.name: field.default for field in fields(self)}
        without = self.tokenizer is None
        for name in ("token_types", "target") if without else OF_TOKENS:
            if getattr(self, name) != defaults[name]:
                why = "without dataset.tokenizer" if without else "with dataset.tokenizer, which decides it"
                allowed = f"{show(defaults[name])} {why}"
                raise ConfigError(f"dataset.{name}: found {show(getattr(self, name))}, allowed: {allowed}")


def make_text_dataset(found: LabeledTexts, keys: TextKeys, label: str, where: object) -> Dataset:
    """Return a dataset of texts.

    Args:
        found: the texts and their labels.
        keys: what their ids and targets are.
        label: the name of the column with the labels, where the next token is learned.
        where: names the training texts in errors.

    Raises:
        ConfigError: the keys contradict each other, no training text has a token, the tokenizer cannot be read, or the
            texts do not fit into memory.
    """
    keys.check()
    if keys.tokenizer is not None:
        return _tokenized(found, keys, keys.tokenizer, label)
    parts = found.train, found.test
    ids, words, notes = index_texts([part.texts for part in parts], keys.splitter(), keys, where)
    train, test = (Split(x, part.y, part.clients, part.columns) for x, part in zip(ids, parts, strict=True))
    labels = tuple(map(str, found.labels))
    return Dataset(
        train,
        test,
        len(labels),
        labels if isinstance(found.labels[0], str) else None,
        vocabulary=FIRST_WORD + len(words),
        words=words,
        notes=(*found.notes, *notes, describe_classes(labels)),
    )


def _tokenized(found: LabeledTexts, keys: TextKeys, name: str, label: str) -> Dataset:
    """Return a dataset of texts as ids of a tokenizer."""
    tokenizer = TextTokenizer(name)
    encoded = [tokenizer.encode(part.texts, keys.length) for part in (found.train, found.test)]
    parts, targets, left_out = [found.train, found.test], [found.train.y, found.test.y], 0
    labels = tuple(map(str, found.labels))
    if keys.target == "next_token":
        kept = [np.flatnonzero(one.mask.sum(1) > 1) for one in encoded]
        left_out = sum(len(one.mask) - len(rows) for one, rows in zip(encoded, kept, strict=True))
        encoded = [one.take(rows) for one, rows in zip(encoded, kept, strict=True)]
        parts = [
            replace(
                _take(part, rows), columns={**_take(part, rows).columns, label: _values(part.y[rows], found.labels)}
            )
            for part, rows in zip(parts, kept, strict=True)
        ]
        targets = [next_tokens(one.ids, one.mask) for one in encoded]
    of_train, of_test = (_arrays(one, keys.token_types) for one in encoded)
    numbers = {"input_ids": tokenizer.size, "attention_mask": 2}
    x_train, x_test, arrays = join_arrays(of_train, of_test, numbers)
    train, test = (
        Split(x, y, part.clients, part.columns) for x, y, part in zip((x_train, x_test), targets, parts, strict=True)
    )
    names = labels if isinstance(found.labels[0], str) and keys.target == "label" else None
    notes = [*found.notes, *_describe(encoded, keys.length, tokenizer)]
    if left_out:
        notes.append(f"left out: {left_out:,} texts of one token, which none follows")
    return Dataset(
        train,
        test,
        len(labels) if keys.target == "label" else tokenizer.size,
        names,
        vocabulary=tokenizer.size,
        arrays=arrays,
        notes=(*notes, describe_classes(labels)),
        doubts=tokenizer.doubt(keys.length),
    )


def _take(part: Texts, rows: Array) -> Texts:
    """Return the texts of these rows."""
    clients = None if part.clients is None else part.clients[rows]
    texts = [part.texts[row] for row in rows]
    return Texts(texts, part.y[rows], clients, {name: values[rows] for name, values in part.columns.items()})


def _values(y: Array, labels: Sequence[int | str]) -> Array:
    """Return labels as a column: the names, or the whole numbers as float64."""
    return np.array(labels if isinstance(labels[0], str) else [float(label) for label in labels])[y]


def _arrays(encoded: Encoded, types: bool) -> dict[str, Array]:
    """Return the arrays that a model receives, by name."""
    arrays: dict[str, Array] = {"input_ids": encoded.ids, "attention_mask": encoded.mask}
    return arrays | ({"token_type_ids": encoded.types} if types else {})


def _describe(encoded: Sequence[Encoded], length: int, tokenizer: TextTokenizer) -> list[str]:
    """Return notes on texts that are cut, and on texts without a token."""
    count, cut, empty = (sum(getattr(one, name) for one in encoded) for name in ("count", "cut", "empty"))
    notes = [f"cut {cut:,} of {count:,} texts to {length:,} tokens"] if cut else []
    if empty:
        token = show(tokenizer.inner.convert_ids_to_tokens(tokenizer.filler))
        notes.append(f"{empty:,} of {count:,} texts without a token are the token {token}")
    return notes
