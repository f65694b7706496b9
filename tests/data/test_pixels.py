import warnings

import numpy as np
import pytest
import torch

from raysim.config.component_blocks import ChannelStatistics
from raysim.data.dataset import Dataset, Split
from raysim.data.pixels import Source
from raysim.data.scenario import permutations, rotations
from raysim.data.transforms import normalization
from raysim.system.errors import ConfigError


def slowly(split: Split, row: int, pixels, mean=None, std=None) -> np.ndarray:
    """One sample the slow way, in float32 as torchvision's ToTensor and Normalize compute."""
    flat = split.x[row].reshape(-1)
    if pixels is not None:
        flat = np.array([flat[p] if p >= 0 else 0 for p in pixels], flat.dtype)
    sample = flat.reshape(split.x.shape[1:]).astype(np.float32)
    if split.x.dtype == np.uint8:
        sample = sample / np.float32(255)
    if mean is not None:
        per_channel = (-1, 1, 1) if sample.ndim == 3 else (-1,)
        sample = (sample - np.float32(mean).reshape(per_channel)) / np.float32(std).reshape(per_channel)
    return sample


def maps_of(dataset: Dataset) -> list:
    """A turned, a permuted and an untouched task."""
    generator = np.random.default_rng(3)
    shifts = [permutations(dataset, 1, generator)[0].pixels, None]
    turned = rotations(dataset, 1, generator)[0].pixels if len(dataset.shape) == 3 else None
    return [turned, *shifts]


@pytest.mark.parametrize("name", ["colours", "features"])
@pytest.mark.parametrize("normalize", ["none", "standard"])
def test_fetch_is_the_slow_way_for_one_task_and_for_mixed_ones(name, normalize, request):
    dataset = request.getfixturevalue(name)
    maps = maps_of(dataset)
    figures = normalization(normalize, dataset)
    mean, std = (None, None) if figures is None else (figures.mean, figures.std)
    source = Source(dataset.train, maps, normalization=figures)
    rows = torch.tensor([3, 0, 15, 3, 7])
    for task in range(3):
        slow = np.stack([slowly(dataset.train, int(row), maps[task], mean, std) for row in rows])
        fast = source.fetch(rows, task)
        assert fast.dtype == torch.float32
        assert np.array_equal(fast.numpy(), slow)
    tasks = torch.tensor([2, 0, 1, 0, 2])
    slow = np.stack(
        [slowly(dataset.train, int(r), maps[t], mean, std) for r, t in zip(rows, tasks.tolist(), strict=True)]
    )
    assert np.array_equal(source.fetch(rows, tasks).numpy(), slow)
    assert source.labels(rows).tolist() == dataset.train.y[rows].tolist()
    assert source.labels(rows).dtype == torch.int64


def test_division_is_to_tensors_for_every_value():
    functional = pytest.importorskip("torchvision.transforms.functional")
    image = np.arange(256, dtype=np.uint8).reshape(1, 1, 16, 16)
    source = Source(Split(image, np.zeros(1, np.int64)), [None])
    assert torch.equal(source.fetch(torch.tensor([0]), 0)[0], functional.to_tensor(image[0, 0]))


@pytest.mark.parametrize("name", ["colours", "features"])
def test_read_only_arrays_are_shared_silently_and_never_written(name, request):
    split = request.getfixturevalue(name).train
    before = split.x.copy()
    split.x.flags.writeable = split.y.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        source = Source(split, [None], normalization=ChannelStatistics(mean=(0.5,), std=(0.5,)))
    assert source.x.data_ptr() == split.x.ctypes.data
    assert source.y.data_ptr() == split.y.ctypes.data
    source.fetch(torch.tensor([0, 1]), 0).mul_(0)
    assert np.array_equal(split.x, before)


def test_a_fetch_without_maps_may_name_any_task(colours):
    source = Source(colours.train, [None, None])
    rows = torch.tensor([1, 2])
    assert torch.equal(source.fetch(rows, torch.tensor([0, 1])), source.fetch(rows, 1))


def test_standard_is_the_training_splits_own_figure(colours):
    figures = normalization("standard", colours)
    scaled = colours.train.x.astype(np.float64) / 255
    assert np.allclose(figures.mean, scaled.mean((0, 2, 3)), rtol=1e-12)
    assert np.allclose(figures.std, scaled.std((0, 2, 3)), rtol=1e-12)
    batch = Source(colours.train, [None], normalization=figures).fetch(torch.arange(20), 0)
    assert torch.allclose(batch.mean((0, 2, 3)), torch.zeros(3), atol=1e-5)
    assert torch.allclose(batch.std((0, 2, 3), correction=0), torch.ones(3), atol=1e-5)


def test_standard_of_mnist_is_the_usual_pair(real_mnist):
    figures = normalization("standard", real_mnist)
    assert abs(figures.mean[0] - 0.1307) < 5e-5
    assert abs(figures.std[0] - 0.3081) < 5e-5


def test_features_share_one_figure_and_a_constant_has_std_one(features):
    figures = normalization("standard", features)
    assert len(figures.mean) == len(figures.std) == 1
    assert figures.mean[0] == pytest.approx(features.train.x.astype(np.float64).mean())
    constant = Split(np.full((4, 6), 2.5, np.float32), np.zeros(4, np.int64))
    assert normalization("standard", Dataset(constant, constant, 1)) == ChannelStatistics(mean=(2.5,), std=(1.0,))


@pytest.mark.parametrize("wanted", ["standard", ChannelStatistics(mean=(20.0,), std=(9.0,))])
def test_token_ids_are_not_normalised(wanted):
    """A model looks them up in a table; images of whole numbers, 0/1 features and fractions are no such numbers."""

    def normalised(x):
        split = Split(x.astype(np.float32), np.zeros(len(x), np.int64))
        return normalization(wanted, Dataset(split, split, 1))

    ids = np.arange(12).reshape(2, 6)
    with pytest.raises(
        ConfigError, match=r"dataset\.normalize: found .* whole numbers, such as token ids, allowed: none"
    ):
        normalised(ids)
    for x in (ids.reshape(2, 1, 2, 3), ids % 2, ids / 2):
        assert normalised(x) is not None
    split = Split(ids.astype(np.float32), np.zeros(2, np.int64))
    assert normalization("none", Dataset(split, split, 1)) is None


def test_given_figures_are_taken_and_checked(colours):
    assert normalization("none", colours) is None
    given = ChannelStatistics(mean=(0.1, 0.2, 0.3), std=(1, 2, 3))
    assert normalization(given, colours) == given
    with pytest.raises(ConfigError, match=r"dataset\.normalize: found 2 values, allowed: 3, one per channel"):
        normalization(ChannelStatistics(mean=(0.1, 0.2), std=(1, 2)), colours)
