"""One step of local training, as the methods' hooks see it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from raysim.api.client import Client

NONE = torch.zeros(())  # what a step has of the forward pass before it


@dataclass(slots=True)
class Step:
    """One mini-batch of a client's local training.

    `positions` (int64 [n]) are those of the new data, `draws` (int64 [n, 3] or None) their augmentation, both on the
    CPU; a batch that is not of the stream has none. x [n, ...] and y [n] may have more rows, added by a method.
    The forward pass sets `logits`, `loss` and, where a half asks for them, `features` [n, d], what entered the head.
    `number` counts the steps of the phase from 0; `ends_epoch` marks the last step of an epoch.
    """

    client: Client
    number: int
    ends_epoch: bool
    positions: Tensor
    draws: Tensor | None
    x: Tensor
    y: Tensor
    logits: Tensor = NONE
    loss: Tensor = NONE
    features: Tensor = NONE
