"""Pictures that server sides record: images as bytes, which the run's recorder draws as one grid."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from raysim.config.schema import folder_name
from raysim.data.transforms import describe_tensor
from raysim.system.errors import WrongResult

MOST = 256  # images of a picture


class Picture(NamedTuple):
    """Images that belong together, and a text for each of them, if there are any texts."""

    images: npt.NDArray[np.uint8]  # [n, channels, height, width], with 1 or 3 channels
    captions: tuple[str, ...] | None


def make_picture(name: str, images: Tensor, captions: Sequence[str] | None) -> Picture:
    """Check the arguments of `server.record_image`, and return the picture. Floats become bytes."""

    def wrong(found: str, allowed: str) -> WrongResult:
        return WrongResult(f"server.record_image({name!r}): found {found}, allowed: {allowed}")

    try:
        folder_name(name)
    except (TypeError, ValueError):
        raise wrong("this name", "a file name of letters, digits, spaces and _ - . + = @ , between them") from None
    if not isinstance(images, Tensor) or not (images.is_floating_point() or images.dtype == torch.uint8):
        found = describe_tensor(images) if isinstance(images, Tensor) else type(images).__name__
        raise wrong(found, "a tensor of floats from 0 to 1, or of uint8")
    if images.dim() != 4 or images.shape[1] not in (1, 3) or not images.numel() or len(images) > MOST:
        raise wrong(f"shape {[*images.shape]}", f"[n, channels, height, width] with n up to {MOST} and 1 or 3 channels")
    if captions is not None and len(captions) != len(images):
        raise wrong(f"{len(captions)} captions", f"one for each of the {len(images)} images")
    pixels = images.detach().cpu()
    if pixels.is_floating_point():
        pixels = (255 * pixels.float()).round()
        if not ((pixels >= 0) & (pixels <= 255)).all():  # NaN is not in the range
            low, high = (f"{value.item():.3g}" for value in images.detach().float().aminmax())
            raise wrong(f"values from {low} to {high}", "0 to 1; undo the normalization, then images.clamp(0, 1)")
    return Picture(pixels.to(torch.uint8, copy=True).numpy(), None if captions is None else tuple(map(str, captions)))
