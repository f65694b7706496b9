"""A second data set, without labels, of which every client has an equal part."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from raysim.config import Config
from raysim.data.dataset import Split
from raysim.federation.stream import Rows
from raysim.system import seeding
from raysim.system.errors import ConfigError


@dataclass(frozen=True, eq=False)
class Unlabelled:
    """Samples whose labels nobody reads; `parts[k]` are client k's rows (int32)."""

    split: Split
    parts: Sequence[Rows]


def deal_unlabelled(split: Split, shape: tuple[int, ...], config: Config) -> Unlabelled:
    """Deal the samples to the clients at random, in parts that differ by one sample at most.

    Raises:
        ConfigError: the samples are not of `shape`, or fewer than the clients.
    """
    found, clients = tuple(split.x.shape[1:]), config.clients.count
    if found != shape:
        raise ConfigError(
            f"dataset.unlabelled: found samples of shape {found}, allowed: {shape}, as in dataset; choose another data "
            "set, or bring its samples to that shape"
        )
    if len(split) < clients:
        raise ConfigError(
            f"dataset.unlabelled: found {len(split)} samples, allowed: at least one for each of the {clients} clients"
        )
    order = seeding.generator(config.seed, "unlabelled").permutation(len(split)).astype(np.int32)
    return Unlabelled(split, np.array_split(order, clients))
