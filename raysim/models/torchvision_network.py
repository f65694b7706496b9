"""torchvision's classifiers, for images of any size. Their published files of weights fit."""

from difflib import get_close_matches
from typing import Annotated

from annotated_types import Ge, Le, doc
from torch import nn

from raysim.config.error_text import either, show
from raysim.models.image_preparation import ImagePreparation, require_colors
from raysim.system.errors import ConfigError
from raysim.system.importing import import_torchvision

NOT_ONE_TENSOR = {"googlenet", "inception_v3"}  # in training they return the logits of three or two heads


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
        bool, doc("whether they are normalized with the architecture's mean and deviation, not by dataset.normalize")
    ] = True,
) -> nn.Module:
    """Any classifier of torchvision by `architecture`, resized input; weights: its files, or DEFAULT by name.

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
    require_colors("torchvision", shape)
    network: nn.Module = models.get_model(architecture, weights=None, num_classes=classes)
    expected = models.get_model_weights(architecture).DEFAULT.transforms()  # most have ImageNet's moments, not all
    ImagePreparation(input_size, (expected.mean, expected.std) if normalize else None).attach(network)
    return network
