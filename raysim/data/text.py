"""Texts in JSON lines as token ids, with a vocabulary from the training texts."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Gt, Lt, doc

from raysim.config.signature import takes_keys_of
from raysim.data.dataset import Dataset, read_all
from raysim.data.json_lines import LineKeys, read_texts
from raysim.data.text_targets import TextKeys, make_text_dataset
from raysim.data.tokens import FIRST_WORD, UNKNOWN, number_words
from raysim.system.home import expand


@takes_keys_of(TextKeys)
def text_jsonl(
    root: Path,
    download: bool,
    *,
    path: Annotated[
        str, doc("the file of all texts or those to train on, .jsonl or .jsonl.gz; relative, it starts at dataset.root")
    ],
    test: Annotated[str | None, doc("the file of the texts to test on; null takes them from path")] = None,
    text: Annotated[str, doc("the key of the text in a line")] = "text",
    label: Annotated[
        str | None,
        doc("the key of the label: whole numbers, or names, which the classes are then called; null reads no labels"),
    ] = "label",
    split: Annotated[str, doc("the key that says train or test, where lines have it")] = "split",
    client: Annotated[str | None, doc("the key of the client id, for partition=natural")] = None,
    columns: Annotated[
        tuple[str, ...], doc("keys of the lines with a time or another value, for scenario.kind=by_column")
    ] = (),
    test_fraction: Annotated[
        float, Gt(0), Lt(1), doc("the part of each class for testing, where no line says so")
    ] = 0.2,
    seed: Annotated[int, Ge(0), doc("the seed of that part, independent of the run's seed")] = 0,
    **keys: Any,
) -> Dataset:
    """Texts in JSON lines with a text and a label (`path`, below the root), as ids of words: int64 [N, length].

    Tokens are the first `length` matches of `token` in the text, in lower case and in Unicode's form NFC. The
    vocabulary has the most frequent tokens of the training texts, equally frequent ones in alphabetical order. A text
    without tokens is one unknown token. A label's number is its index among the training texts' labels: numbers are in
    order of their value, names in that of their text.

    Without a `test` file, the key `split` (train or test) assigns the lines. Where no line says test, those that say
    validation, val, valid or dev are for testing. Lines of other parts are left out. If the lines do not name both
    parts, `test_fraction` of each class's texts (rounded, at least one) is for testing. These are drawn from `seed` and
    the label, not from the run's seed. With a `test` file, lines of either file that name another part are left out.
    `columns` are numbers, dates in ISO 8601 or texts. `client` is a whole number or a text.

    Raises:
        MissingData: a file is missing.
        ConfigError: a file or a line cannot be read, no training text has a token, or a label is in the test texts
            only. Or the texts do not fit into memory.
    """
    text_keys = TextKeys(**keys)
    text_keys.check()
    file, test_file = root / expand("dataset.path", path), None if test is None else root / expand("dataset.test", test)
    found = read_texts(file, test_file, LineKeys(text, label, split, client, columns), test_fraction, seed)
    return make_text_dataset(found, text_keys, label, file)


def reword(dataset: Dataset, words: tuple[str, ...]) -> Dataset:
    """Return a dataset of texts with the ids of another's `words`. Words that are not among them become unknown."""
    ids = number_words(words)
    table = np.array([0, UNKNOWN, *(ids.get(word, UNKNOWN) for word in dataset.words or ())], np.int64)
    train, test = (replace(split, x=table[read_all(split.x)]) for split in (dataset.train, dataset.test))
    return replace(dataset, train=train, test=test, vocabulary=FIRST_WORD + len(words), words=words)


def share_words(sets: Sequence[Dataset]) -> list[Dataset]:
    """Return datasets of texts with a common vocabulary, the first's words first. Other datasets are unchanged."""
    if any(dataset.words is None for dataset in sets):
        return [*sets]
    words = tuple(dict.fromkeys(word for dataset in sets for word in dataset.words or ()))
    return [reword(dataset, words) for dataset in sets]
