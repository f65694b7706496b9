"""Where a model's file of weights is: `model.weights` is a path, or a name of the hub, a package or torchvision."""

from pathlib import Path

from raysim.config.component_blocks import Model
from raysim.models.expected_images import check_expected_images
from raysim.models.torchvision_weights import NAME, find_torchvision_weights
from raysim.system.hub_files import find_weights


def find_model_weights(model: Model) -> Path | None:
    """Return the file that `model.weights` names, or None if the model has none. It may be downloaded first.

    Raises:
        ConfigError: it is neither here nor can be downloaded. Or weights of this name expect other images.
    """
    if model.weights is None:
        return None
    check_expected_images(model)
    if model.name == "torchvision" and NAME.fullmatch(model.weights):
        return find_torchvision_weights(str(model.keys()["architecture"]).partition(".")[0], model.weights)
    return find_weights(model.weights)
