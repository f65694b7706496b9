"""torchvision's classifiers, for images of any size. Their published files of weights fit."""

from difflib import get_close_matches
from typing import Annotated

import torch
from annotated_types import Ge, Le, doc
from torch import Tensor, nn
from torch.nn import functional

from raysim.config.error_text import either, show
from raysim.system.errors import ConfigError
from raysim.system.importing import import_torchvision

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's, for pixels from 0 to 1: torchvision's transforms
NOT_ONE_TENSOR = {"googlenet", "inception_v3"}  # in training they return the logits of three or two heads


class _Preparation:
    """A hook before a network's forward pass: gray images become RGB, all are resized, then normalized.

    It is not a module, so that the network's tensors keep their names in torchvision's files. Its tensors are not
    buffers, which would be sent.
    """

    def __init__(self, size: int | None, normalize: bool) -> None:
        self._size = size
        self._moments = torch.tensor([MEAN, STD])[..., None, None] if normalize else None

    def __call__(self, network: nn.Module, inputs: tuple[Tensor]) -> Tensor:
        return self.prepare(inputs[0])

    def prepare(self, x: Tensor) -> Tensor:
        """Return images [B, 3, H, W] for images [B, 1 or 3, H, W]."""
        x = x.expand(-1, 3, -1, -1) if x.shape[1] == 1 else x
        if self._size is not None and x.shape[2:] != (self._size, self._size):
            x = functional.interpolate(x, (self._size, self._size), mode="bilinear", antialias=True)
        if self._moments is not None:
            self._moments = self._moments.to(x)
            x = (x - self._moments[0]) / self._moments[1]
        return x


def torchvision_network(
    shape: tuple[int, ...],
    classes: int,
    *,
    architecture: Annotated[
        str, doc("one of torchvision's classifiers, such as resnet18, resnet50, mobilenet_v2 or vit_b_16")
    ],
    input_size: Annotated[
        Annotated[int, Ge(1), Le(4096)] | None, doc("height and width made of the images; null leaves them")
    ] = 224,
    normalize: Annotated[
        bool, doc("whether they are normalized with ImageNet's mean and deviation, not by dataset.normalize")
    ] = True,
) -> nn.Module:
    """Any classifier of torchvision by `architecture`, resized input; its files of weights fit (model.weights).

    The model converts images [B, 1 or 3, H, W] of pixels from 0 to 1 to RGB. It resizes them to `input_size` x
    `input_size` (bilinear, as in Pillow) and normalizes them, as torchvision's weights expect. It does not crop.

    Raises:
        ConfigError: torchvision cannot be imported, or has no such classifier.
    """
    models = import_torchvision("models", "model torchvision")
    architectures = sorted({*models.list_models(module=models)} - NOT_ONE_TENSOR)
    if architecture not in architectures:
        near = get_close_matches(architecture[:100].lower(), architectures, n=4) or ["resnet18", "vit_b_16"]
        problem = f"found {show(architecture)}, allowed: a classifier of torchvision's, such as {either(near)}"
        raise ConfigError(f"model.architecture: {problem}")
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise ConfigError(f"model torchvision: found samples of shape {shape}, allowed: images, grey or RGB")
    network: nn.Module = models.get_model(architecture, weights=None, num_classes=classes)
    preparation = _Preparation(input_size, normalize)
    network.register_forward_pre_hook(preparation)
    vars(network)["prepare"] = preparation.prepare  # for a pass that begins late (raysim.models.stages)
    return network
