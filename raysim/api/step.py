"""One step of local training, as the methods' hooks see it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from raysim.api.client import Client

NOT_COMPUTED = torch.zeros(())


@dataclass(slots=True)
class Step:
    """One mini-batch of a client's local training.

    >>> step.x.shape, step.y.shape, step.logits.shape, step.number
    (torch.Size([4, 6]), torch.Size([4]), torch.Size([4, 4]), 0)
    """

    client: Client
    number: int
    """The index of the step in its phase, from 0."""
    ends_epoch: bool
    """Whether this is the last step of an epoch, or of a phase that training.local_steps ends."""
    positions: Tensor
    """The positions (int64 [m], on the CPU) of the samples from the stream; empty if `batches` supplied the batch."""
    draws: Tensor | None
    """The random numbers (int64 [m, k], on the CPU) that select the samples' augmentation, or None."""
    x: Tensor
    """Inputs [n, ...]: the samples from the stream or from `batches`, then the rows that methods added."""
    y: Tensor
    """Targets [n, ...]."""
    logits: Tensor = NOT_COMPUTED
    """The model's outputs [n, ...], after the forward pass."""
    loss: Tensor = NOT_COMPUTED
    """The mean loss, without penalties, after the forward pass."""
    features: Tensor = NOT_COMPUTED
    """The inputs [n, d] of the head, after the forward pass, if a side sets `ClientHalf.features`."""
