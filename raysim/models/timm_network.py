"""timm's classifiers, for images of any size. Their published files of weights fit."""

from difflib import get_close_matches
from functools import partial
from typing import Annotated

from annotated_types import Ge, Le, doc
from torch import nn

from raysim.config.error_text import either, show
from raysim.models.expected_images import expected_by_timm
from raysim.models.image_preparation import ImagePreparation, require_colors
from raysim.models.timm_stages import FAMILIES, TimmStages, family_of
from raysim.system.errors import ConfigError
from raysim.system.importing import import_extra


def timm_network(
    shape: tuple[int, ...],
    classes: int,
    *,
    architecture: Annotated[
        str,
        doc("one of timm's classifiers, such as tf_efficientnet_lite0 or vit_small_patch16_224, or with a tag (.dino)"),
    ],
    input_size: Annotated[
        Annotated[int, Ge(1), Le(4096)] | None, doc("height and width made of the images; null leaves them")
    ] = 224,
    normalize: Annotated[
        bool, doc("whether they are normalized with the architecture's mean and deviation, not by dataset.normalize")
    ] = True,
) -> nn.Module:
    """Any classifier of timm by `architecture`, resized input; weights: its files, or efficientnet-lite0.

    The model converts images [B, 1 or 3, H, W] of pixels from 0 to 1 to RGB. It resizes them to `input_size` x
    `input_size` (as in Pillow) and normalizes them, both as timm does for this architecture. A tag of timm's weights
    may follow its name, as in `vit_small_patch16_224.dino`, since weights of one architecture may expect images that
    are normalized otherwise. It does not crop. timm downloads nothing.

    Raises:
        ConfigError: timm cannot be imported, or has no such classifier.
    """
    timm = import_extra("timm", "timm")
    architectures = timm.list_models()
    name, dot, _ = architecture.partition(".")
    if name not in architectures or (dot and not timm.is_model_pretrained(architecture)):
        near = get_close_matches(architecture[:100].lower(), architectures, n=4)
        problem = f"found {show(architecture)}, allowed: a classifier of timm's, such as {either(near or EXAMPLES)}"
        raise ConfigError(f"model.architecture: {problem}")
    require_colors("timm", shape)
    network: nn.Module = timm.create_model(architecture, pretrained=False, num_classes=classes)
    expected = expected_by_timm(architecture)
    ImagePreparation(input_size, expected.moments if normalize else None, expected.mode).attach(network)
    if (family := family_of(network)) is not None:
        vars(network)["as_staged"] = partial(TimmStages, FAMILIES[family])
    return network


EXAMPLES = ["tf_efficientnet_lite0", "vit_small_patch16_224"]
