"""What networks of other libraries do with images first: gray ones become RGB, all are resized, then normalized."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from raysim.system.errors import ConfigError

Moments = tuple[tuple[float, ...], tuple[float, ...]]
"""The mean and the deviation of each channel, for pixels from 0 to 1."""


class ImagePreparation:
    """A hook before a network's forward pass: gray images become RGB, all are resized, then normalized.

    It is not a module, so that the network's tensors keep their names in its library's files. Its tensors are not
    buffers, which would be sent.

    Args:
        size: height and width of the images, or None for their own.
        moments: what to normalize with, or None.
        mode: how images are resized, antialiased as in Pillow.
    """

    def __init__(
        self, size: int | None, moments: Moments | None, mode: Literal["bilinear", "bicubic"] = "bilinear"
    ) -> None:
        self._size, self._mode = size, mode
        self._moments = None if moments is None else torch.tensor(moments)[..., None, None]

    def __call__(self, network: nn.Module, inputs: tuple[Tensor]) -> Tensor:
        """Return the inputs of the pass."""
        return self.prepare(inputs[0])

    def attach(self, network: nn.Module) -> None:
        """Prepare the inputs of a network from now on."""
        network.register_forward_pre_hook(self)
        vars(network)["prepare"] = self.prepare  # for a pass that begins late (raysim.models.stages)

    def prepare(self, x: Tensor) -> Tensor:
        """Return images [B, 3, H, W] for images [B, 1 or 3, H, W]."""
        x = x.expand(-1, 3, -1, -1) if x.shape[1] == 1 else x
        if self._size is not None and x.shape[2:] != (self._size, self._size):
            x = functional.interpolate(x, (self._size, self._size), mode=self._mode, antialias=True)
        if self._moments is not None:
            self._moments = self._moments.to(x)
            x = (x - self._moments[0]) / self._moments[1]
        return x


def require_colors(model: str, shape: tuple[int, ...]) -> None:
    """Check that samples are images of one or three channels. Raises ConfigError if they are not."""
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise ConfigError(f"model {model}: found samples of shape {shape}, allowed: images, grey or RGB")
