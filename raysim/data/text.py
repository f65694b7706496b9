"""Texts as token ids, with a vocabulary from the training texts."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated

import numpy as np
from annotated_types import Ge, Gt, Lt, doc

from raysim.config.error_text import show
from raysim.data.dataset import Array, Dataset, Split, require_memory
from raysim.data.json_lines import read_texts
from raysim.system.errors import ConfigError
from raysim.system.home import expand

UNKNOWN, FIRST_WORD = 1, 2
"""The ids of an unknown token and of the most frequent word. Id 0 is padding (see models/inputs)."""


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
        str, doc("the key of the label: whole numbers, or names, which the classes are then called")
    ] = "label",
    split: Annotated[str, doc("the key that says train or test, where lines have it")] = "split",
    token: Annotated[
        str, doc("a regular expression: what it finds in the text, in lower case, are the tokens")
    ] = r"\w+(?:'\w+)*",
    length: Annotated[
        int, Ge(1), doc("tokens of a sample: longer texts are cut, shorter ones filled up with id 0")
    ] = 64,
    vocabulary: Annotated[
        int, Ge(3), doc("ids at most: padding is 0, an unknown token 1, then the most frequent")
    ] = 10_000,
    test_fraction: Annotated[
        float, Gt(0), Lt(1), doc("the part of each class for testing, where no line says so")
    ] = 0.2,
    seed: Annotated[int, Ge(0), doc("the seed of that part, independent of the run's seed")] = 0,
    columns: Annotated[
        tuple[str, ...], doc("keys of the lines with a time or another value, for scenario.kind=by_column")
    ] = (),
) -> Dataset:
    """Texts in JSON lines with a text and a label (`path`, below the root), as ids of words: int64 [N, length].

    Tokens are the first `length` matches of `token` in the lower-case text. The vocabulary has the most frequent tokens
    of the training texts, equally frequent ones in alphabetical order. A text without tokens is one unknown token. A
    label's number is its index among the sorted labels of the training texts.

    Without a `test` file, the key `split` (train or test) assigns the lines; other values (val) are left out. If the
    lines do not name both parts, `test_fraction` of each class's texts (rounded, at least one) is for testing. These
    are drawn from `seed` and the label, not from the run's seed. With a `test` file, lines of either file that name
    another part are left out. `columns` are numbers, dates in ISO 8601 or texts.

    Raises:
        MissingData: a file is missing.
        ConfigError: a file or a line cannot be read, no training text has a token, or a label is in the test texts
            only. Or the texts do not fit into memory.
    """
    try:
        pattern = re.compile(token)
    except (re.error, RecursionError, OverflowError) as error:
        raise ConfigError(f"dataset.token: found {show(token)}, allowed: a regular expression ({error})") from error
    file, test_file = root / expand("dataset.path", path), None if test is None else root / expand("dataset.test", test)
    parts, labels = read_texts(file, test_file, (text, label, split), test_fraction, seed, columns)
    count = sum(len(part.texts) for part in parts)
    require_memory(8 * length * count, "dataset.length", f"{length} for {count} texts")
    tokens = partial(_tokens, pattern, length)
    counts = Counter(token for line in parts[0].texts for token in tokens(line))
    if not counts:
        problem = f"found {show(token)}, which finds nothing in the training texts of {file}"
        raise ConfigError(f"dataset.token: {problem}, allowed: what finds a token in a text in lower case")
    words = tuple(sorted(counts, key=lambda word: (-counts[word], word))[: vocabulary - FIRST_WORD])
    ids = _number_words(words)
    train, testing = (
        Split(
            _stack([[ids.get(token, UNKNOWN) for token in tokens(line)] for line in part.texts], length),
            part.y,
            columns=part.columns,
        )
        for part in parts
    )
    names = tuple(map(str, labels)) if isinstance(labels[0], str) else None
    return Dataset(train, testing, len(labels), names, vocabulary=FIRST_WORD + len(words), words=words)


def reword(dataset: Dataset, words: tuple[str, ...]) -> Dataset:
    """Return a dataset of texts with the ids of another's `words`. Words that are not among them become unknown."""
    ids = _number_words(words)
    table = np.array([0, UNKNOWN, *(ids.get(word, UNKNOWN) for word in dataset.words or ())], np.int64)
    train, test = (replace(split, x=table[split.x]) for split in (dataset.train, dataset.test))
    return replace(dataset, train=train, test=test, vocabulary=FIRST_WORD + len(words), words=words)


def share_words(sets: Sequence[Dataset]) -> list[Dataset]:
    """Return datasets of texts with a common vocabulary, the first's words first. Other datasets are unchanged."""
    if any(dataset.words is None for dataset in sets):
        return [*sets]
    words = tuple(dict.fromkeys(word for dataset in sets for word in dataset.words or ()))
    return [reword(dataset, words) for dataset in sets]


def _number_words(words: Sequence[str]) -> dict[str, int]:
    return {word: number for number, word in enumerate(words, FIRST_WORD)}


def _tokens(pattern: re.Pattern[str], length: int, text: str) -> list[str]:
    """Return the first tokens of a text, at most `length`."""
    matches = (match[0] for match in pattern.finditer(text.lower()))
    return list(islice((token for token in matches if token), length))


def _stack(rows: Sequence[Sequence[int]], length: int) -> Array:
    """Return token ids as int64 [n, length]. A text without tokens becomes one unknown token."""
    x = np.zeros((len(rows), length), np.int64)
    for number, row in enumerate(rows):
        x[number, : max(len(row), 1)] = row or [UNKNOWN]
    return x
