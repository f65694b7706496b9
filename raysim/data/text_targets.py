"""Texts with labels as a dataset: ids by a vocabulary of the texts or by a tokenizer, and what is to be learned."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Literal

import numpy as np
from annotated_types import doc

from raysim.config.error_text import show
from raysim.data.arrays import join_arrays
from raysim.data.class_order import describe_classes
from raysim.data.dataset import Array, Dataset, Split
from raysim.data.json_lines import LabeledTexts
from raysim.data.tokenizers import TextIds, TextTokenizer, describe_encoded, next_tokens
from raysim.data.tokens import FIRST_WORD, TokenKeys, index_texts
from raysim.objectives import IGNORED
from raysim.system.errors import ConfigError

OF_TOKENS = ("token", "lower", "vocabulary")  # keys of a vocabulary of the texts


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
        """Refuse keys that mean nothing with the others.

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


def make_text_dataset(found: LabeledTexts, keys: TextKeys, label: str | None, where: object) -> Dataset:
    """Return a dataset of texts.

    Args:
        found: the texts and their labels.
        keys: what their ids and targets are.
        label: the name of the column with the labels, where the next token is learned; None without labels.
        where: names the training texts in errors.

    Raises:
        ConfigError: the keys contradict each other, no training text has a token, the tokenizer cannot be read, or the
            texts do not fit into memory.
    """
    keys.check()
    if label is None and keys.target == "label":
        raise ConfigError(
            "dataset.label: found null, allowed: a key, or dataset.target=next_token, which needs no labels"
        )
    if keys.tokenizer is not None:
        return _tokenized(found, keys, keys.tokenizer, label, where)
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


def _tokenized(found: LabeledTexts, keys: TextKeys, name: str, label: str | None, where: object) -> Dataset:
    """Return a dataset of texts as ids of a tokenizer."""
    tokenizer, parts = TextTokenizer(name), (found.train, found.test)
    encoded = [tokenizer.encode(part.texts, keys.length) for part in parts]
    if encoded[0].empty == len(encoded[0].ids):
        allowed = "a tokenizer that finds a token in a training text"
        raise ConfigError(f"dataset.tokenizer: found {show(name)}, which finds none in {where}, allowed: {allowed}")
    of_train, of_test = (_arrays(one, keys.token_types) for one in encoded)
    *rows, arrays = join_arrays(of_train, of_test, {"input_ids": tokenizer.size, "attention_mask": 2})
    train, test = (Split(x, part.y, part.clients, part.columns) for x, part in zip(rows, parts, strict=True))
    labels, notes = tuple(map(str, found.labels)), [*found.notes, *describe_encoded(encoded, keys.length, tokenizer)]
    classes, names = len(labels), labels if isinstance(found.labels[0], str) else None
    if keys.target == "next_token":
        notes += _describe_short(encoded)
        train, test = (
            _predict_tokens(split, one, {} if label is None else {label: _values(split.y, found.labels)})
            for split, one in zip((train, test), encoded, strict=True)
        )
        classes, names = tokenizer.size, None
    return Dataset(
        train,
        test,
        classes,
        names,
        vocabulary=tokenizer.size,
        arrays=arrays,
        tokenizer=tokenizer.digest,
        notes=tuple(notes if label is None else [*notes, describe_classes(labels)]),
        doubts=tokenizer.doubt(keys.length),
    )


def _predict_tokens(split: Split, encoded: TextIds, columns: Mapping[str, Array]) -> Split:
    """Return a split with the next tokens as targets, and without texts of one token, which none follows."""
    targets = next_tokens(encoded.ids, encoded.mask)
    split = replace(split, y=targets, columns={**split.columns, **columns})
    return split.take((targets != IGNORED).any(1))


def _describe_short(encoded: Sequence[TextIds]) -> list[str]:
    """Return a note on texts that are left out."""
    short = sum(int((one.mask.sum(1) < 2).sum()) for one in encoded)
    return [f"left out: {short:,} texts of one token, which none follows"] if short else []


def _values(y: Array, labels: Sequence[int | str]) -> Array:
    """Return labels as a column: the names, or the whole numbers as float64. Raises ConfigError for -1 and the like."""
    if y.min(initial=0) < 0:  # texts without a label, such as the tests of GLUE on the hub
        allowed = f"0 to {len(labels) - 1}; or null, with which no labels are read"
        raise ConfigError(f"dataset.label: found the label {y.min()}, allowed: {allowed}")
    return np.array(labels if isinstance(labels[0], str) else [float(label) for label in labels])[y]


def _arrays(encoded: TextIds, types: bool) -> dict[str, Array]:
    """Return the arrays that a model receives, by name."""
    arrays: dict[str, Array] = {"input_ids": encoded.ids, "attention_mask": encoded.mask}
    return arrays | ({"token_type_ids": encoded.types} if types else {})
