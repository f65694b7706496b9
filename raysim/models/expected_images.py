"""How published weights of torchvision and timm expect images: their mean and deviation, and how they are resized."""

import re
from dataclasses import dataclass
from typing import Literal

from raysim.config.component_blocks import Model
from raysim.models.image_preparation import Moments
from raysim.models.torchvision_weights import NAME
from raysim.system.errors import ConfigError
from raysim.system.importing import import_extra, import_torchvision

Mode = Literal["bilinear", "bicubic"]
OF_TIMM = re.compile(r"hf://timm/(?P<tagged>\w+\.[\w-]+)(?:/.*)?(?:@.*)?")


@dataclass(frozen=True)
class ExpectedImages:
    """How weights expect images.

    Attributes:
        moments: what they are normalized with.
        mode: how they are resized.
    """

    moments: Moments
    mode: Mode


def expected_by_torchvision(architecture: str) -> ExpectedImages:
    """Return what torchvision states for NAME.WEIGHTS, or for the weights DEFAULT of NAME.

    Raises:
        ValueError: there is no such architecture.
        KeyError: there are no such weights.
    """
    name, _, weights = architecture.partition(".")
    models = import_torchvision("models", "model torchvision")
    stated = models.get_model_weights(name)[weights or "DEFAULT"].transforms()
    return ExpectedImages((tuple(stated.mean), tuple(stated.std)), _mode(stated.interpolation.value))


def expected_by_timm(architecture: str) -> ExpectedImages:
    """Return what timm states for NAME.TAG, or for the weights that it takes by default for NAME."""
    stated = import_extra("timm", "timm").get_pretrained_cfg(architecture).to_dict()
    return ExpectedImages((tuple(stated["mean"]), tuple(stated["std"])), _mode(stated["interpolation"]))


def _mode(interpolation: str) -> Mode:
    return "bilinear" if interpolation == "bilinear" else "bicubic"


def check_expected_images(model: Model) -> None:
    """Refuse weights by name that expect other images than the model's architecture prepares.

    The architecture names them, and not the key `weights`: a finished run's own file has no name.

    Raises:
        ConfigError: the architecture has to be written with the name of the weights.
    """
    weights, keys = model.weights or "", model.keys()
    architecture = str(keys.get("architecture"))
    tagged = OF_TIMM.fullmatch(weights) if model.name == "timm" else None
    if model.name == "torchvision" and NAME.fullmatch(weights):
        named, expected = f"{architecture.partition('.')[0]}.{weights}", expected_by_torchvision
    elif tagged is not None and import_extra("timm", "timm").is_model_pretrained(tagged["tagged"]):
        named, expected = tagged["tagged"], expected_by_timm
    else:
        return
    try:
        prepared, wanted = expected(architecture), expected(named)
    except (ValueError, KeyError):  # an unknown name, which is refused where it is looked up
        return
    moments = bool(keys["normalize"]) and prepared.moments != wanted.moments
    if moments or (keys["input_size"] is not None and prepared.mode != wanted.mode):
        problem = f"found {architecture}, with other images than {weights} expects"
        how = f"{wanted.mode}, mean {_join(wanted.moments[0])}, deviation {_join(wanted.moments[1])}"
        raise ConfigError(f"model.architecture: {problem} ({how}), allowed: {named}")


def _join(numbers: tuple[float, ...]) -> str:
    return " ".join(f"{number:g}" for number in numbers)
