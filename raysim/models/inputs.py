"""Model inputs: numbers in the model's dtype, or ids such as text tokens, which it looks up in a table."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from raysim.models.arrays import Arrays
from raysim.models.stages import StagedNetwork
from raysim.system.errors import ConfigError

Ids = int | tuple[int, ...] | Arrays | None
"""What samples are made of: the number of ids, if samples are ids; those of each category, if samples are rows of a
table; the arrays, if a sample is several; or None."""

PADDING_ID = 0
"""The id of padding tokens, which a model masks."""


def as_input(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return samples in the model's dtype; ids (int64) stay as they are."""
    return x.to(dtype) if x.is_floating_point() else x


def two_samples(module: nn.Module, shape: tuple[int, ...], vocabulary: Ids = None) -> Tensor:
    """Return samples [2, *shape] to try a model on: zeros of its dtype, or the first and the last id.

    For a network that begins late, these are features of its `feature_shape`.
    """
    if isinstance(module, StagedNetwork) and module.begin:
        shape, vocabulary = module.feature_shape, None
    dtype = next((p.dtype for p in module.parameters() if p.requires_grad), None)
    if isinstance(vocabulary, Arrays):
        return vocabulary.two_samples(dtype)
    if not isinstance(vocabulary, int):
        return torch.zeros(2, *shape, dtype=dtype)
    return torch.stack([torch.full(shape, number, dtype=torch.int64) for number in (0, vocabulary - 1)])


def first_shape(shape: tuple[int, ...], vocabulary: Ids) -> tuple[int, ...]:
    """Return the shape of a sample, or of its first array if it is several."""
    return vocabulary.parts[0].shape if isinstance(vocabulary, Arrays) else shape


def two_samples_of(module: nn.Module, shape: tuple[int, ...]) -> Tensor:
    """Return samples as `two_samples`: ids 0 and 1 for a network that looks ids up."""
    has_ids = any(isinstance(layer, nn.Embedding | nn.EmbeddingBag) for layer in module.modules())
    return two_samples(module, shape, 2 if has_ids else None)


def expect_ids(model: str, shape: tuple[int, ...], vocabulary: int | None) -> tuple[int, int]:
    """Return the length of a text and the number of ids. Raises ConfigError if samples are not ids."""
    if vocabulary is None or len(shape) != 1:
        kind = "ids" if vocabulary is not None else "numbers"
        raise ConfigError(f"model.name: found {kind} of shape {shape}, allowed for {model}: token ids (int64) [length]")
    return shape[0], vocabulary


def require_images(model: str, shape: Sequence[int], least: int = 1, only: int | None = None) -> None:
    """Check that samples are images [channels, height, width] with sides of `least` pixels or more, or of `only`.

    Raises:
        ConfigError: they are not.
    """
    if len(shape) == 3 and min(shape[1:]) >= least and (only is None or {*shape[1:]} == {only}):
        return
    size = f" of {only} x {only} pixels" if only else f" of at least {least} x {least} pixels" * (least > 1)
    allowed = f"images [channels, height, width]{size}"
    raise ConfigError(f"model.name: found samples of shape {tuple(shape)}, allowed for {model}: {allowed}")
