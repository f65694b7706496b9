"""Incrementally aggregated gradients: a client's loss in fixed components, and the table of their gradients."""

import numpy as np
import psutil
import torch
from torch import Tensor

from raysim.api import Client
from raysim.system.capacity import GIB, MOST_OF_MEMORY
from raysim.system.errors import RunError


class Components:
    """The components g_j of a client's loss g = sum_j w_j g_j: mini-batches, w_j being their shares of the samples.

    A gradient is kept and compared with a later one of its component. So it must depend on the model alone:
    - a component's samples are drawn once for each task, their augmentation once for each local training;
    - dropout draws the same mask for a component during a local training, and another one in the next. Without dropout,
      another model than FedAvg's would be trained;
    - BatchNorm uses the component's own statistics, in train mode, as in every local training.

    Args:
        client: the client. Its current model is evaluated.
        phase: the number of the local training that they are for: the current one, or the one after an exchange.
    """

    def __init__(self, client: Client, phase: int) -> None:
        self._client = client
        self._phase = phase
        samples = len(client.arrived)
        members = client.fixed_generator("components of window", client.window)
        positions = client.arrived[torch.from_numpy(members.permutation(samples))]
        draws = None
        if client.data.augment:
            draws = torch.from_numpy(client.data.draw(client.fixed_generator(phase, 0, "augment"), samples))
        parts = client.batches(samples)
        if parts:  # BatchNorm cannot take a single last sample: it joins the part before it, or is never used
            parts[-1] = slice(parts[-1].start, samples)
        self._shown = [client.samples(positions[part], None if draws is None else draws[part]) for part in parts]
        self.weights = [(part.stop - part.start) / samples for part in parts]

    def __len__(self) -> int:
        return len(self.weights)

    def gradient(self, component: int) -> tuple[Tensor, Tensor]:
        """Return a component's mean loss at the current model, and its gradient [P]."""
        model = self._client.model
        x, y = self._shown[component]
        with self._client.fixed_rng_scope(self._phase, 0, "component", component):
            loss = self._client.loss(model(x), y)
            return loss.detach(), model.gradient_of(loss)

    def full_gradient(self, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return g and its gradient [P], exact means over the samples; fill rows [components, P] if given."""
        parameters = self._client.model.parameters
        loss, total = parameters.new_zeros(()), torch.zeros_like(parameters)
        for component, weight in enumerate(self.weights):
            of_component, gradient = self.gradient(component)
            loss.add_(of_component, alpha=weight)
            total.add_(gradient, alpha=weight)
            if rows is not None:
                rows[component] = gradient
        return loss, total


def empty_table(client: Client, components: Components) -> Tensor:
    """Return a table of zeros [components, P]."""
    return client.model.parameters.new_zeros(len(components), len(client.model.parameters))


def check_table_fits(client: Client, rows: int, what: str) -> None:
    """Refuse a table of that many rows, stating its size, if it does not fit into the free memory.

    A run that does not fit into the memory of its machine never starts. This check covers what is not known then: the
    memory of a GPU or of a joined cluster, and what other programs use.

    Raises:
        RunError: the table does not fit.
    """
    parameters = client.model.parameters
    wanted = rows * parameters.nbytes
    on_gpu = parameters.device.type == "cuda"
    free = torch.cuda.mem_get_info()[0] if on_gpu else psutil.virtual_memory().available
    if wanted > MOST_OF_MEMORY * free:
        raise RunError(
            f"{what} would take {wanted / GIB:.1f} GiB for client {client.id}, allowed: {MOST_OF_MEMORY:.0%} of the "
            f"{free / GIB:.1f} GiB that are free; set it to rebuild, or give each host fewer clients"
        )


def refresh(rows: Tensor, total: Tensor, components: Components, component: int) -> None:
    """Recompute one component's gradient at the current model, one row [P] of the table, and update the sum."""
    _, gradient = components.gradient(component)
    total.add_(gradient - rows[component], alpha=components.weights[component])
    rows[component] = gradient


def choose_components(order: str, steps: int, components: int, draws: np.random.Generator) -> list[int]:
    """Return the component of each step: random (with replacement), cyclic, or reshuffled after each pass over all."""
    if order == "random":
        return [int(c) for c in draws.integers(components, size=steps)] if components else []
    turns = range(-(-steps // components) if components else 0)
    chosen = [draws.permutation(components) if order == "reshuffled" else np.arange(components) for _ in turns]
    return [int(c) for turn in chosen for c in turn][:steps]
