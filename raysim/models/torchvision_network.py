"""torchvision's classifiers, for images of any size. Their published files of weights fit."""

from difflib import get_close_matches
from typing import Annotated

from annotated_types import Ge, Le, doc
from torch import nn

from raysim.config.error_text import either, show
from raysim.models.expected_images import expected_by_torchvision
from raysim.models.image_preparation import ImagePreparation, require_colors
from raysim.system.errors import ConfigError
from raysim.system.importing import import_torchvision

NOT_ONE_TENSOR = {"googlenet", "inception_v3"}  # in training they return the logits of three or two heads


def torchvision_network(
    shape: tuple[int, ...],
    classes: int,
    *,
    architecture: Annotated[
        str,
        doc("one of torchvision's classifiers, such as resnet18, or with weights (vit_b_16.IMAGENET1K_SWAG_E2E_V1)"),
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
    `input_size` (as in Pillow) and normalizes them, both as the architecture's weights DEFAULT expect. The name of
    other weights may follow, as in `vit_b_16.IMAGENET1K_SWAG_E2E_V1`, since these may expect other images. The model
    does not crop.

    Raises:
        ConfigError: torchvision cannot be imported, or has no such classifier.
    """
    models = import_torchvision("models", "model torchvision")
    architectures = sorted({*models.list_models(module=models)} - NOT_ONE_TENSOR)
    name, dot, tag = architecture.partition(".")
    if name in architectures and dot and tag not in (published := models.get_model_weights(name)).__members__:
        allowed = either([name, *(f"{name}.{one.name}" for one in published)])
        raise ConfigError(f"model.architecture: found {show(architecture)}, allowed: {allowed}")
    if name not in architectures:
        near = get_close_matches(architecture[:100].lower(), architectures, n=4) or ["resnet18", "vit_b_16"]
        problem = f"found {show(architecture)}, allowed: a classifier of torchvision's, such as {either(near)}"
        raise ConfigError(f"model.architecture: {problem}")
    require_colors("torchvision", shape)
    network: nn.Module = models.get_model(name, weights=None, num_classes=classes)
    expected = expected_by_torchvision(architecture)
    ImagePreparation(input_size, expected.moments if normalize else None, expected.mode).attach(network)
    return network
