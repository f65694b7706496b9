"""Partitions of samples among clients: each function assigns every row of `labels` to exactly one client.

All functions take `labels` (int64 [N]), the number of clients and a generator. They return a sorted int32 array of rows
for each client: indices into `labels`. `labels` are the whole training split or one task's part of it. A function with
a fourth parameter `ids` also receives the samples' client ids [N], integers or strings, of the whole split.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from annotated_types import doc

from raysim.config.block import Count, Positive, WholeNumber
from raysim.config.experiment import Partition
from raysim.data.dataset import Array
from raysim.system.custom_code import place_of
from raysim.system.errors import ConfigError, RunError, locate_errors
from raysim.system.seeding import guard_globals

PARTITIONS: Mapping[str, str] = {
    "iid": "raysim.data.partition:iid",
    "shards": "raysim.data.partition:shards",
    "dirichlet": "raysim.data.partition:dirichlet",
    "pathological": "raysim.data.partition:pathological",
    "quantity": "raysim.data.partition:quantity",
    "natural": "raysim.data.partition:natural",
}
"""Name in YAML -> `module:function`. A custom one may omit rows, and return any order and integer dtype."""

Labels = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int32]

TRIES = 1000  # Dirichlet draws; if all fail, alpha hardly ever gives min_samples to all clients


def partition_rows(
    partition: Partition, labels: Labels, clients: int, generator: np.random.Generator, ids: Array | None = None
) -> list[Rows]:
    """Return the rows of each client under the config's partition.

    Raises:
        ConfigError: the partition is impossible for these rows.
        RunError: a custom partition returned something else than rows for each client.
    """
    if partition.by_ids and ids is None:
        raise ConfigError(
            f"partition.kind: {partition.named} deals by client ids, and the dataset has none, allowed: a dataset with "
            "the client of each training sample (csv, parquet, hugging_face: client; npz: an array client_train; "
            "image_list: client_ids; your own: Split(x, y, clients)), or another partition"
        )
    with locate_errors(f"partition {partition.named}"), guard_globals(f"partition {partition.named}", None):
        parts = partition.with_keys()(labels, clients, generator, **({"ids": ids} if partition.by_ids else {}))
    problem = _find_problem(parts, len(labels), clients)
    if problem is not None:
        raise RunError(f"partition.kind: {place_of(partition.function())} returned {problem}")
    return [_sorted(np.asarray(part)) for part in parts]


def _find_problem(parts: Any, rows: int, clients: int) -> str | None:
    if not isinstance(parts, Sequence) or len(parts) != clients:
        description = f"{len(parts)} parts" if isinstance(parts, Sequence) else type(parts).__name__
        return f"{description}, allowed: a list of {clients} arrays of rows, one for each client"
    try:
        arrays = [np.asarray(part) for part in parts]
    except ValueError as error:  # lists of unequal lengths
        return f"a part that is no array ({error}), allowed: arrays of rows, one for each client"
    for client, part in enumerate(arrays):
        if part.ndim != 1 or (part.size and part.dtype.kind not in "iu"):
            shape = f"{part.dtype} {list(part.shape)}"
            return f"{shape} for client {client}, allowed: whole numbers [n], rows of the samples dealt"
    assigned = np.concatenate(arrays).astype(np.int64)
    if assigned.size and not 0 <= assigned.min() <= assigned.max() < rows:
        return f"rows from {assigned.min()} to {assigned.max()}, allowed: 0 to {rows - 1}"
    if rows and not assigned.size:
        return f"no row for any client, allowed: at least one of the {rows} rows"
    uses = np.bincount(assigned, minlength=rows)
    if uses.size and uses.max() > 1:
        return f"row {uses.argmax()} {uses.max()} times, allowed: each row once, to one client"
    return None


def iid(labels: Labels, clients: int, generator: np.random.Generator) -> list[Rows]:
    """At random, in parts of sizes that differ by at most one.

    Raises:
        ConfigError: there are fewer rows than clients.
    """
    _check_enough(len(labels), clients, "clients.count", clients)
    return [_sorted(part) for part in np.array_split(generator.permutation(len(labels)), clients)]


def shards(
    labels: Labels,
    clients: int,
    generator: np.random.Generator,
    *,
    shards_per_client: Annotated[Count, doc("how many shards each client gets")] = 2,
) -> list[Rows]:
    """Sorted by class and cut into near-equal shards, which are assigned at random (McMahan et al., 2017).

    A shard may straddle classes: with two shards of MNIST a client holds 1 to 4 digits. The official code of Fed-A-GEM
    does the same.

    Raises:
        ConfigError: there are fewer rows than shards.
    """
    count = clients * shards_per_client
    _check_enough(len(labels), count, "partition.shards_per_client", shards_per_client)
    pieces = np.array_split(np.argsort(labels, kind="stable"), count)
    hands = generator.permutation(count).reshape(clients, shards_per_client)
    return [_sorted(np.concatenate([pieces[shard] for shard in hand])) for hand in hands]


def dirichlet(
    labels: Labels,
    clients: int,
    generator: np.random.Generator,
    *,
    alpha: Annotated[Positive, doc("the distribution's concentration: the smaller, the more uneven")] = 0.3,
    min_samples: Annotated[
        WholeNumber, doc("proportions are drawn again until every client has this many samples")
    ] = 10,
    balanced: Annotated[bool, doc("whether a client that has its fair share of samples gets no more")] = True,
) -> list[Rows]:
    """Each class in proportions drawn from Dir(alpha) over the clients, until all hold `min_samples` samples.

    With `balanced`, a client that holds its even share (rows / clients) gets nothing of the following classes.
    NIID-Bench (Li et al. 2022) and the official codes of TARGET and Fed-A-GEM do the same.

    Raises:
        ConfigError: `min_samples` is impossible, or was not reached in TRIES draws.
    """
    if len(labels) < clients * min_samples:
        raise ConfigError(
            f"partition.min_samples: {len(labels)} samples cannot give {clients} clients {min_samples} each; "
            f"lower it to at most {len(labels) // clients}, or have fewer clients"
        )
    most = 0
    for _ in range(TRIES):
        owners = _draw_owners(labels, clients, alpha, balanced, generator)
        sizes = np.bincount(owners, minlength=clients)
        if sizes.min() >= min_samples:
            return split_by_owner(owners, clients)
        most = max(most, int(sizes.min()))
    raise ConfigError(
        f"partition.min_samples: in {TRIES} deals of {len(labels)} samples with alpha {alpha} the smallest of "
        f"{clients} clients never held more than {most} of the {min_samples} asked for; lower min_samples, raise "
        "alpha, or have fewer clients"
    )


def _draw_owners(
    labels: Labels, clients: int, alpha: float, balanced: bool, generator: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Draw a client for every row once, int64 [N]."""
    owners = np.empty(len(labels), dtype=np.int64)
    sizes = np.zeros(clients, dtype=np.int64)
    for label in np.unique(labels):
        rows = generator.permutation(np.flatnonzero(labels == label))
        shares = generator.dirichlet(np.full(clients, alpha))
        if balanced:
            has_room = sizes < len(labels) / clients  # never all false: the remaining rows are missing somewhere
            shares = shares * has_room
            if shares.sum() == 0:  # tiny alpha: all the mass is on full clients
                shares = has_room.astype(np.float64)
        cumulative = np.cumsum(shares)
        # Dividing by the last partial sum makes the end exactly 1, so rounding assigns no row to a full client.
        counts = np.diff((cumulative / cumulative[-1] * len(rows)).astype(np.int64), prepend=0)
        owners[rows] = np.repeat(np.arange(clients), counts)
        sizes += counts
    return owners


def pathological(
    labels: Labels,
    clients: int,
    generator: np.random.Generator,
    *,
    classes_per_client: Annotated[Count, doc("how many classes each client has")] = 2,
) -> list[Rows]:
    """A fixed number of classes per client; a class's samples in equal parts for its clients (#C = k).

    The classes, in random order, are assigned in turn, so their numbers of clients differ by at most one. (In
    NIID-Bench, Li et al., ICDE 2022, #C = k draws them independently, so that a class may have no client.)

    Raises:
        ConfigError: there are fewer classes, or too few clients to cover all classes.
    """
    present = np.unique(labels)
    least = -(-len(present) // clients)
    if not least <= classes_per_client <= len(present):
        raise ConfigError(
            f"partition.classes_per_client: found {classes_per_client} for {clients} clients and {len(present)} "
            f"classes, allowed: {least} to {len(present)}"
        )
    order, turns = generator.permutation(present), generator.permutation(clients)
    owners = np.empty(len(labels), dtype=np.int64)
    for place, label in enumerate(order):
        holders = [
            client
            for turn, client in enumerate(turns)
            if (place - turn * classes_per_client) % len(order) < classes_per_client
        ]
        for client, rows in zip(
            holders, np.array_split(generator.permutation(np.flatnonzero(labels == label)), len(holders)), strict=True
        ):
            owners[rows] = client
    return split_by_owner(owners, clients)


def quantity(
    labels: Labels,
    clients: int,
    generator: np.random.Generator,
    *,
    alpha: Annotated[Positive, doc("the distribution's concentration: the smaller, the more uneven")] = 0.5,
    min_samples: Annotated[WholeNumber, doc("sizes are drawn again until every client has this many samples")] = 10,
) -> list[Rows]:
    """At random, in sizes drawn from Dir(alpha): quantity skew (NIID-Bench, Li et al., ICDE 2022).

    Raises:
        ConfigError: `min_samples` is impossible, or was not reached in TRIES draws.
    """
    most = len(labels) // clients
    for _ in range(TRIES if min_samples <= most else 0):
        cumulative = np.cumsum(generator.dirichlet(np.full(clients, alpha)))
        ends = (cumulative / cumulative[-1] * len(labels)).astype(np.int64)
        if np.diff(ends, prepend=0).min() >= min_samples:
            return [_sorted(part) for part in np.split(generator.permutation(len(labels)), ends[:-1])]
    raise ConfigError(
        f"partition.min_samples: found {min_samples}, which not all of {clients} clients got of {len(labels)} samples "
        f"with alpha {alpha}, allowed: at most {most}; lower it, or raise alpha"
    )


def natural(
    labels: Labels,
    clients: int,
    generator: np.random.Generator,
    ids: Array,
    *,
    min_samples: Annotated[WholeNumber, doc("samples of ids that have fewer in all are left out")] = 1,
    others: Annotated[
        Literal["grouped", "left_out"], doc("where there are more ids than clients: groups, or a draw")
    ] = "grouped",
) -> list[Rows]:
    """By the data's client ids: a client per id, or per group of ids (LEAF's users, Caldas et al., 2018).

    With as many clients as ids, client k has the k-th id in ascending order. With fewer clients, the ids are put in
    random order. `grouped` then assigns them to the clients in groups. Their sizes differ by at most one id. `left_out`
    assigns one id to each client and omits the samples of the other ids.

    Raises:
        ConfigError: there are fewer ids than clients.
    """
    names, id_of_sample, sizes = np.unique(ids, return_inverse=True, return_counts=True)
    kept = np.flatnonzero(sizes >= min_samples)
    if len(kept) < clients:
        few = f" with partition.min_samples={min_samples} of {len(names)}" if len(kept) < len(names) else ""
        limit = f"as many as the training samples have client ids{few}"
        raise ConfigError(f"clients.count: found {clients}, allowed with this partition: 1 to {len(kept)}, {limit}")
    order = kept if len(kept) == clients else generator.permutation(kept)
    if others == "left_out":
        order = order[:clients]
    client_of = np.full(len(names), -1)
    for client, group in enumerate(np.array_split(order, clients)):
        client_of[group] = client
    return split_by_owner(client_of[id_of_sample], clients)


def split_by_owner(owners: npt.NDArray[np.int64], clients: int) -> list[Rows]:
    """Return the rows of each client, given each row's client (int64 [N]) or -1 for none."""
    order = np.argsort(owners, kind="stable").astype(np.int32)
    ends = np.searchsorted(owners[order], np.arange(clients + 1))
    return [order[start:end] for start, end in itertools.pairwise(ends)]


def _sorted(rows: npt.NDArray[np.integer]) -> Rows:
    return np.sort(rows).astype(np.int32)


def _check_enough(rows: int, parts: int, key: str, value: int) -> None:
    if rows < parts:
        raise ConfigError(f"{key}: {value} asks for {parts} parts of {rows} samples; ask for at most {rows} parts")
