"""Texts as ids of their tokens, with a vocabulary that the training texts make."""

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

UNKNOWN, FIRST_WORD = 1, 2
"""Ids: a token that is not in the vocabulary, and the most frequent one that is. 0 is padding, which models know."""


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
    seed: Annotated[int, Ge(0), doc("what that part is drawn from, apart from the run's seed")] = 0,
) -> Dataset:
    """Texts in JSON lines with a text and a label (`path`, below the root), as ids of words: int64 [N, length].

    Tokens are what `token` finds in the text in lower case, the first `length` of them. The vocabulary is of the
    training texts alone: the most frequent tokens, equally frequent ones in the order of their text. A text without
    tokens is one unknown token. Labels are the places among the sorted ones of the training texts.

    Without a `test` file, lines whose `split` is train or test make the split, and others (val) are left out; where the
    lines do not say both, of every class `test_fraction` of the texts (rounded, at least one) are for testing, drawn
    from `seed` and the label, so not from the run's seed.

    Raises:
        MissingData: a file is not there.
        ConfigError: a file or a line cannot be read, a label is in the test texts only, or they do not fit into memory.
    """
    try:
        pattern = re.compile(token)
    except (re.error, RecursionError, OverflowError) as error:
        raise ConfigError(f"dataset.token: found {show(token)}, allowed: a regular expression ({error})") from error
    file, held_file = root / Path(path).expanduser(), None if test is None else root / Path(test).expanduser()
    parts, labels = read_texts(file, held_file, (text, label, split), test_fraction, seed)
    count = sum(len(part.texts) for part in parts)
    require_memory(8 * length * count, "dataset.length", f"{length} for {count} texts")
    tokens = partial(_tokens, pattern, length)
    counts = Counter(token for one in parts[0].texts for token in tokens(one))
    words = tuple(sorted(counts, key=lambda word: (-counts[word], word))[: vocabulary - FIRST_WORD])
    ids = _number_words(words)
    train, held = (
        Split(_stack([[ids.get(token, UNKNOWN) for token in tokens(one)] for one in part.texts], length), part.y)
        for part in parts
    )
    names = tuple(map(str, labels)) if isinstance(labels[0], str) else None
    return Dataset(train, held, len(labels), names, vocabulary=FIRST_WORD + len(words), words=words)


def reword(dataset: Dataset, words: tuple[str, ...]) -> Dataset:
    """Return a data set of texts with the ids that another's `words` have; a word that is not among them is unknown."""
    ids = _number_words(words)
    table = np.array([0, UNKNOWN, *(ids.get(word, UNKNOWN) for word in dataset.words or ())], np.int64)
    train, test = (Split(table[split.x], split.y) for split in (dataset.train, dataset.test))
    return replace(dataset, train=train, test=test, vocabulary=FIRST_WORD + len(words), words=words)


def share_words(sets: Sequence[Dataset]) -> list[Dataset]:
    """Return data sets with the ids of one vocabulary, where they are of texts: the first's words, then the others'."""
    if any(found.words is None for found in sets):
        return [*sets]
    words = tuple(dict.fromkeys(word for found in sets for word in found.words or ()))
    return [reword(found, words) for found in sets]


def _number_words(words: Sequence[str]) -> dict[str, int]:
    return {word: number for number, word in enumerate(words, FIRST_WORD)}


def _tokens(pattern: re.Pattern[str], length: int, text: str) -> list[str]:
    """Return the first tokens of a text, `length` of them at most."""
    found = (match[0] for match in pattern.finditer(text.lower()))
    return list(islice((token for token in found if token), length))


def _stack(rows: Sequence[Sequence[int]], length: int) -> Array:
    """Return ids of texts as int64 [n, length]; a text without any is one unknown token."""
    x = np.zeros((len(rows), length), np.int64)
    for number, row in enumerate(rows):
        x[number, : max(len(row), 1)] = row or [UNKNOWN]
    return x
