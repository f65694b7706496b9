"""The natural partition: each sample has a client id, such as a writer's or a user's."""

from typing import Annotated, Literal

import numpy as np
from annotated_types import doc

from raysim.config.block import WholeNumber
from raysim.data.dataset import Array
from raysim.data.partition import Labels, Rows, split_by_owner
from raysim.system.errors import ConfigError


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
    random order. `grouped` then assigns them to the clients in groups whose sizes differ by at most one id. `left_out`
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
