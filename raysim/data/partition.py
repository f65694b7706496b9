"""Partitions of samples among clients: each function deals every row of `labels` to exactly one client.

All take `labels` (int64 [N]), the number of clients and a generator, and return one sorted int32 array of rows per
client: indices into `labels`, which are those of the whole training split or of one task's part of it.
"""

import numpy as np
import numpy.typing as npt

from raysim.system.errors import ConfigError

Labels = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int32]

TRIES = 1000  # after so many Dirichlet draws, alpha hardly ever gives min_samples to all clients


def iid(labels: Labels, clients: int, generator: np.random.Generator) -> list[Rows]:
    """Deal the rows at random, in parts whose sizes differ by at most one.

    Raises:
        ConfigError: fewer rows than clients.
    """
    _check_enough(len(labels), clients, "clients.count", clients)
    return [_sorted(part) for part in np.array_split(generator.permutation(len(labels)), clients)]


def shards(labels: Labels, clients: int, shards_per_client: int, generator: np.random.Generator) -> list[Rows]:
    """Sort the rows by label, cut them into near-equal shards, deal `shards_per_client` to each client at random.

    Shards straddle classes where class sizes are no multiples of the shard's: with two shards of MNIST a client holds
    1 to 4 digits (McMahan et al. 2017; the official code of Fed-A-GEM).

    Raises:
        ConfigError: fewer rows than shards.
    """
    count = clients * shards_per_client
    _check_enough(len(labels), count, "partition.shards_per_client", shards_per_client)
    pieces = np.array_split(np.argsort(labels, kind="stable"), count)
    hands = generator.permutation(count).reshape(clients, shards_per_client)
    return [_sorted(np.concatenate([pieces[shard] for shard in hand])) for hand in hands]


def dirichlet(
    labels: Labels, clients: int, alpha: float, min_samples: int, balanced: bool, generator: np.random.Generator
) -> list[Rows]:
    """Deal each class in proportions drawn from Dir(alpha) over the clients, until all hold `min_samples` rows.

    balanced: a client that already holds its even share (rows / clients) gets nothing of the classes that follow
    (NIID-Bench, Li et al. 2022; the official codes of TARGET and Fed-A-GEM).

    Raises:
        ConfigError: `min_samples` cannot be had, or was not in TRIES deals.
    """
    if len(labels) < clients * min_samples:
        raise ConfigError(
            f"partition.min_samples: {len(labels)} samples cannot give {clients} clients {min_samples} each; "
            f"lower it to at most {len(labels) // clients}, or have fewer clients"
        )
    best = 0
    for _ in range(TRIES):
        owners = _deal(labels, clients, alpha, balanced, generator)
        sizes = np.bincount(owners, minlength=clients)
        if sizes.min() >= min_samples:
            order = np.argsort(owners, kind="stable").astype(np.int32)
            return np.split(order, np.cumsum(sizes)[:-1])
        best = max(best, int(sizes.min()))
    raise ConfigError(
        f"partition.min_samples: in {TRIES} deals of {len(labels)} samples with alpha {alpha} the smallest of "
        f"{clients} clients never held more than {best} of the {min_samples} asked for; lower min_samples, raise "
        "alpha, or have fewer clients"
    )


def _deal(
    labels: Labels, clients: int, alpha: float, balanced: bool, generator: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Deal all classes once and return the owner of each row, int64 [N]."""
    owners = np.empty(len(labels), dtype=np.int64)
    held = np.zeros(clients, dtype=np.int64)
    for label in np.unique(labels):
        rows = generator.permutation(np.flatnonzero(labels == label))
        share = generator.dirichlet(np.full(clients, alpha))
        if balanced:
            hungry = held < len(labels) / clients  # never all false: what is left to deal is missing somewhere
            share = share * hungry
            if share.sum() == 0:  # tiny alpha: all the mass was on clients that are full
                share = hungry.astype(np.float64)
        heaped = np.cumsum(share)
        # Dividing by the last sum, not by a separate one, makes the end exactly 1: no row falls to a full client.
        counts = np.diff((heaped / heaped[-1] * len(rows)).astype(np.int64), prepend=0)
        owners[rows] = np.repeat(np.arange(clients), counts)
        held += counts
    return owners


def _sorted(rows: npt.NDArray[np.int64]) -> Rows:
    return np.sort(rows).astype(np.int32)


def _check_enough(rows: int, parts: int, key: str, value: int) -> None:
    if rows < parts:
        raise ConfigError(f"{key}: {value} asks for {parts} parts of {rows} samples; ask for at most {rows} parts")
