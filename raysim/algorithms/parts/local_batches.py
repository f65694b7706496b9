"""The batches of a local training, for methods that override `train`."""

from collections.abc import Iterator

from torch import Tensor

from raysim.api import Client


def local_batches(client: Client) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the batches x, y of `training.local_epochs`, or as many as `training.local_steps`; each counts as a step.

    They are those of raysim's local loop. A client without samples has none.
    """
    steps = client.shared.training.local_steps
    if steps is None:
        for _ in range(client.local_epochs):
            for x, y, _ in client.epoch():
                yield x, y
        return
    before = -1
    while before < client.steps < steps:  # an epoch without a batch ends the loop
        before = client.steps
        for x, y, _ in client.epoch():
            yield x, y
            if client.steps == steps:
                return
