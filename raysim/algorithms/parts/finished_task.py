"""The samples of the task that ends: what a client still knows of it when the server's `end_task` asks."""

from torch import Tensor

from raysim.api import Client


def finished_task(client: Client) -> Tensor:
    """Return the positions (int64 [n]) of all samples of the client's current task.

    They are those of the current window, and with `scenario.online` also those of the task's earlier windows. A replay
    memory that is filled at boundaries is offered the same samples.
    """
    stream = client.stream
    return stream.span(stream.stage(client.window), client.window + 1)
