"""Generated images as pixels, for pictures."""

from torch import Tensor

from raysim.api import Server


def to_pixels(x: Tensor, server: Server) -> Tensor:
    """Return inputs of the model, images [n, channels, h, w], as pixels from 0 to 1: not normalized any more."""
    statistics = server.normalization
    if statistics is None:
        return x.clamp(0, 1)
    mean, std = (x.new_tensor(values).view(-1, 1, 1) for values in (statistics.mean, statistics.std))
    return (x * std + mean).clamp(0, 1)
