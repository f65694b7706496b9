"""Parts shared by replaying methods: entries of a memory as a batch, and gradients outside the training step."""

from torch import Tensor

from raysim.api import Client, Entries


def draw_entries(client: Client, count: int, purpose: str) -> Entries | None:
    """Draw up to `count` entries of the client's memory without replacement. None if there are none.

    If the model has BatchNorm, these are at least two, or None if the memory has one: one sample has no statistics.
    """
    assert client.memory is not None
    least = 2 if client.model.normalises else 1
    if not count or len(client.memory) < least:
        return None
    return client.memory.sample(max(count, least), client.generator(purpose))


def to_batch(client: Client, entries: Entries) -> tuple[Tensor, Tensor]:
    """Return the entries as x [n, ...] and y [n], augmented as in training."""
    return client.samples(entries.positions, entries.draws)


def gradient_on(client: Client, entries: Entries, purpose: str) -> Tensor:
    """Return the gradient [P] of the mean loss on these entries at the current model.

    In train mode, as in the official code of Fed-A-GEM, over the classes that training admits. The statistics of
    BatchNorm do not change, and dropout draws from the stream of `purpose`.
    """
    x, y = to_batch(client, entries)
    with client.rng_scope(purpose):
        return client.model.gradient_on(x, y, client.loss)
