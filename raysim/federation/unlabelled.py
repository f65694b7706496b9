"""Samples without labels: those of a second dataset, of which every client has an equal part, or of the stream."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from raysim.config import Config
from raysim.data.dataset import Dataset, Split
from raysim.data.text import reword
from raysim.federation.stream import Stream
from raysim.system import seeding
from raysim.system.errors import ConfigError


@dataclass(frozen=True, eq=False)
class Unlabelled:
    """Samples without labels; `streams[k]` is client k's."""

    streams: Sequence[Stream]
    """With the windows of the clients' streams; of a second dataset, all samples are in one window."""
    split: Split | None = None
    """The split that the streams' rows are of: a second dataset's, or None for the training split."""


def assign_unlabeled(second: Dataset, first: Dataset, config: Config) -> Unlabelled:
    """Assign a second dataset's samples to the clients at random, in parts that differ by at most one sample.

    Texts get the first dataset's ids.

    Raises:
        ConfigError: the samples are not like the first dataset's, or there are fewer samples than clients.
    """
    if first.words is not None and second.words is not None:
        second = reword(second, first.words)
    split, shape, clients = second.train, second.shape, config.clients.count
    if shape != first.shape:
        raise ConfigError(
            f"dataset.unlabelled: found samples of shape {shape}, allowed: {first.shape}, as in dataset; choose "
            "another dataset, or bring its samples to that shape"
        )
    if second.tokenizer != first.tokenizer:
        raise ConfigError(
            "dataset.unlabelled: found texts of another tokenizer, with other ids, allowed: the same dataset.tokenizer"
        )
    of_both = [", ".join(f"{name} {list(size)}" for name, size, _ in one.arrays) for one in (second, first)]
    if of_both[0] != of_both[1]:  # rows of another length and with other arrays may be equally long
        found = f"found samples of {of_both[0] or 'one array'}, allowed: {of_both[1] or 'one array'}, as in dataset"
        raise ConfigError(f"dataset.unlabelled: {found}")
    if first.categories or second.categories:
        raise ConfigError(
            "dataset.unlabelled: found a table with categories, whose ids differ between tables, allowed: tables "
            "without categories; or dataset.label_rate"
        )
    if (first.vocabulary is None) != (second.vocabulary is None) or (second.vocabulary or 0) > (first.vocabulary or 0):
        kinds = ["numbers" if s.vocabulary is None else f"ids up to {s.vocabulary - 1}" for s in (second, first)]
        raise ConfigError(f"dataset.unlabelled: found samples that are {kinds[0]}, allowed: {kinds[1]}, as in dataset")
    if len(split) < clients:
        raise ConfigError(
            f"dataset.unlabelled: found {len(split)} samples, allowed: at least one for each of the {clients} clients"
        )
    order = seeding.generator(config.seed, "unlabelled").permutation(len(split)).astype(np.int32)
    return Unlabelled([Stream([part]) for part in np.array_split(order, clients)], split)
