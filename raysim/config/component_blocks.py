"""The blocks that name a component, `dataset`, `model` and `methods`: their own keys come from its signature."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo, model_validator
from pydantic_core import InitErrorDetails

from raysim.config.block import Block, Count, Positive, explain_unknown_key
from raysim.config.document import Keys, explain, validation_error
from raysim.config.error_text import show
from raysim.config.key_schema import Allowed, keys_in
from raysim.config.lookup import resolve
from raysim.config.signature import keys_of, own_values
from raysim.system.errors import ConfigError

Values = dict[str, object]
Errors = list[InitErrorDetails]


def _validate_own_keys(kind: str, name: str, given: Values, at: Keys, beside: list[str]) -> tuple[Values, Errors]:
    """Return a component's own keys with every default spelled out; `at` is the key that named it."""
    try:
        keys = keys_of(resolve(kind, name))
    except ConfigError as error:
        return {}, [explain(at, str(error))]
    known = keys_in(keys)
    taken = [key for key in known if key in beside]
    if taken:
        words = f"{kind} {show(name)} has a keyword-only parameter '{taken[0]}', which is a key of every {kind}"
        return {}, [explain(at, words)]
    errors = [explain_unknown_key((key,), [*beside, *known], f" of {show(name)}") for key in given if key not in known]
    try:
        made = keys.model_validate({key: value for key, value in given.items() if key in known})
    except ValidationError as error:
        return {}, [*errors, *(explain(line["loc"], **line["ctx"]) for line in error.errors())]
    return own_values(made), errors


class Component(Block):
    """A block with a name and, beside the keys of every component of its kind, the named one's own keys."""

    model_config = ConfigDict(extra="allow")

    kind: ClassVar[str]
    name: Annotated[str, Allowed("a name that raysim knows, or your own as package.module:name")]
    """A name from the list that raysim prints, or your own as package.module:name."""

    def keys(self) -> Values:
        """Return the named component's own keys, every default spelled out: call the component with them."""
        return dict(self.__pydantic_extra__ or {})

    @property
    def title(self) -> str:
        """What reports call it: its name and what of its own keys is text, such as npz usps.npz."""
        return " ".join([self.name, *(value for value in self.keys().values() if isinstance(value, str))])

    def function(self) -> Callable[..., Any]:
        """Return what the name stands for."""
        return resolve(self.kind, self.name)

    @classmethod
    def complete(cls, values: Values) -> tuple[Values, Errors]:
        """Return the values with the component's own keys validated and completed."""
        fields = {key: value for key, value in values.items() if key in cls.model_fields}
        own = {key: value for key, value in values.items() if key not in cls.model_fields}
        name = fields.get("name")
        if not isinstance(name, str):
            return fields, []
        made, errors = _validate_own_keys(cls.kind, name, own, ("name",), list(cls.model_fields))
        return {**fields, **made}, errors


class ChannelStatistics(Block):
    """A mean and a standard deviation for each channel of the images, of pixel values from 0 to 1."""

    mean: Annotated[tuple[float, ...], Field(strict=False, min_length=1)]
    """What is subtracted, one number per channel, for pixel values from 0 to 1."""
    std: Annotated[tuple[Positive, ...], Field(strict=False, min_length=1)]
    """What is divided by, one number > 0 per channel."""

    @model_validator(mode="after")
    def _one_per_channel(self) -> ChannelStatistics:
        if len(self.mean) != len(self.std):
            words = f"found {len(self.std)} values, allowed: as many as in mean ({len(self.mean)})"
            raise validation_error(explain(("std",), words))
        return self


class Domain(Component):
    """A data set beside or in place of `dataset`, which has all other keys: its name and its own keys."""

    kind = "data set"

    def same_as(self, dataset: DatasetConfig) -> bool:
        """Return whether a data set has this name and these keys."""
        return (self.name, self.keys()) == (dataset.name, dataset.keys())


class DatasetConfig(Component):
    """The images that the clients hold."""

    kind = "data set"
    root: str | None = None
    """The folder of the files; null is $RAYSIM_DATA or ~/.cache/raysim. A given folder must exist."""
    download: bool = True
    """Whether files that are missing are downloaded."""
    train_samples: Count | None = None
    """How many of the training samples are used, drawn with the seed; null is all. Tests use all."""
    normalize: Annotated[
        Literal["none", "standard"] | ChannelStatistics,
        Allowed("none, standard or {mean: [...], std: [...]}"),
    ] = "none"
    """none leaves pixels from 0 to 1; standard uses the data set's own mean and standard deviation."""
    augment: Annotated[tuple[Literal["crop", "flip"], ...], Field(strict=False)] = ()
    """Random changes of the training images, in order: crop (after padding by 4), flip (sideways)."""
    unlabelled: Domain | None = None
    """A second data set, of samples of the same shape, for methods that learn without labels (cfed): its name and its
    own keys. Its training samples, not augmented, are dealt to the clients in equal parts at random."""


class Domains(Block):
    """Every task is a data set of its own, all with the same classes."""

    domains: Annotated[
        tuple[
            Annotated[Domain, BeforeValidator(lambda value: {"name": value} if isinstance(value, str) else value)], ...
        ],
        Field(strict=False, min_length=1),
        Allowed("a list of data sets, at least 1: names, or blocks with a name and its own keys"),
    ]
    """The data sets, task by task: names, or blocks with a name and its own keys. `dataset` is one of them: the others'
    images take its size (bilinear), and where some are RGB all are; its root, download, train_samples (of each),
    normalize and augment hold for all."""


class Model(Component):
    """The network that is trained."""

    kind = "model"
    weights: str | None = None
    """A state_dict to start from, as torch.save writes it."""


def _validate_methods(value: object, info: ValidationInfo) -> object:
    if value is None or info.context == Block.OWN_KEYS:
        return {}
    if not isinstance(value, Mapping):
        return value
    made: dict[str, Values] = {}
    errors: Errors = []
    for name, keys in value.items():
        if str(name).lower() == "fedavg":
            if keys:
                words = f"found {show(keys)}, allowed: {{}}, as FedAvg is what runs without methods"
                errors.append(explain((name,), words))
            continue
        if not isinstance(keys, Mapping | None):
            errors.append(explain((name,), f"found {show(keys)}, allowed: a block of the method's keys"))
            continue
        made[name], found = _validate_own_keys("method", str(name), dict(keys or {}), (), [])
        errors += [InitErrorDetails(**{**error, "loc": (name, *error.get("loc", ()))}) for error in found]
    if errors:
        raise validation_error(*errors)
    return made


Methods = Annotated[
    dict[str, dict[str, object]],
    BeforeValidator(_validate_methods),
    Allowed("a block of method names, each with its keys, such as {fedprox: {mu: 0.1}}"),
]
