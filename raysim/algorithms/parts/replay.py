"""Parts shared by replaying methods: entries of a memory as a batch, and gradients outside the training step."""

from torch import Tensor

from raysim.api import Client, Entries


def draw_entries(client: Client, count: int, purpose: str) -> Entries | None:
    """Draw up to `count` entries of the client's memory without replacement.

    Return None if the memory is empty, or has one entry and the model has BatchNorm: one sample has no statistics.
    """
    assert client.memory is not None
    available = min(count, len(client.memory))
    if not available or (client.model.normalises and available == 1):
        return None
    return client.memory.sample(count, client.generator(purpose))


def to_batch(client: Client, entries: Entries) -> tuple[Tensor, Tensor]:
    """Return the entries as x [n, ...] and y [n], augmented as in training."""
    return client.show(entries.positions, entries.draws)


def gradient_on(client: Client, entries: Entries, purpose: str) -> Tensor:
    """Return the gradient [P] of the mean loss on these entries at the current model.

    In train mode, as in the official code of Fed-A-GEM, over the classes that training admits. The statistics of
    BatchNorm do not change, and dropout draws from the stream of `purpose`.
    """
    x, y = to_batch(client, entries)
    with client.rng_scope(purpose):
        return client.model.gradient_on(x, y, client.loss)
