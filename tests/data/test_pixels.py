import warnings

import numpy as np
import pytest
import torch

from raysim.config.component_blocks import ChannelStatistics
from raysim.data import pixels
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


@pytest.mark.parametrize("dtype", [np.uint8, np.float64])
def test_a_channel_of_one_value_has_the_deviation_1(dtype):
    """Rounding gives 25 equal pixels of 15/255 or 0.1 a deviation of about 1e-17, by which no value may be divided."""
    x = np.full((1, 1, 5, 5), 15 if dtype == np.uint8 else 0.1, dtype)
    split = Split(x, np.array([0]))
    found = normalization("standard", Dataset(split, split, classes=1))
    assert found is not None
    assert found.std == (1.0,)


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


def batch_by_batch(source: Source, rows, task, drawn, sizes) -> list:
    """The same with one fetch for each batch."""
    parts = [slice(end - size, end) for size, end in zip(sizes, np.cumsum(sizes).tolist(), strict=True)]
    tasks = [task[part] if isinstance(task, torch.Tensor) else task for part in parts]
    shown = [None if drawn is None else drawn[part] for part in parts]
    return [source.fetch(rows[part], *how) for part, *how in zip(parts, tasks, shown, strict=True)]


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("augment", [(), ("crop", "flip")])
def test_batches_fetched_together_are_those_fetched_alone(mixed, augment, colours, monkeypatch):
    """Two batches of 2 x 288 float32 at a time, and of nine with the last one smaller the last alone."""
    monkeypatch.setattr(pixels, "TOGETHER", 2 * 2 * 288 * 4)
    source = Source(colours.train, maps_of(colours), normalization=normalization("standard", colours), augment=augment)
    draws, rows, sizes = np.random.default_rng(1), torch.arange(17) + 2, [2] * 8 + [1]
    task = torch.arange(17) % 3 if mixed else 1
    drawn = torch.from_numpy(source.draw(draws, 17)) if augment else None
    expected = batch_by_batch(source, rows, task, drawn, sizes)
    fetched: list[int] = []
    monkeypatch.setattr(source, "shown", lambda x, *how: fetched.append(len(x)) or Source.shown(source, x, *how))
    found = list(source.fetch_each(rows, task, drawn, sizes))
    assert fetched == [4, 4, 4, 4, 1]
    assert [len(x) for x in found] == sizes
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)
        assert one.stride() == other.stride()
        assert one.data_ptr() % 64 == 0
    found[0].mul_(0)
    assert torch.equal(found[1], expected[1])
    assert found[1]._version == 0  # a graph that has saved it does not hear of the change to its neighbour
    assert list(source.fetch_each(rows, task, drawn, [])) == []


def test_batches_that_would_not_begin_where_torch_begins_a_tensor_are_fetched_alone(features, colours):
    """3 samples of 6 float32 are 72 bytes, no multiple of 64; 2 images of the user's own augmentation are one batch."""
    given: list[int] = []

    def own(images, numbers):
        given.append(len(images))
        return images

    odd = Source(features.train, [None])
    found = list(odd.fetch_each(torch.arange(7), 0, None, [3, 3, 1]))
    assert [x.untyped_storage().nbytes() for x in found] == [72, 72, 24]
    source = Source(colours.train, [None], augment=["own"], custom=[own])
    drawn = torch.from_numpy(source.draw(np.random.default_rng(1), 5))
    assert [len(x) for x in source.fetch_each(torch.arange(5), 0, drawn, [2, 2, 1])] == given == [2, 2, 1]


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


def test_a_scale_multiplies_what_is_normalized(colours):
    """scale (x - mean) / std is (x - mean) / (std / scale). Without statistics, pixels are multiplied alone."""
    given = ChannelStatistics(mean=(0.1, 0.2, 0.3), std=(1, 2, 3))
    assert normalization(given, colours, 2.0) == ChannelStatistics(mean=(0.1, 0.2, 0.3), std=(0.5, 1.0, 1.5))
    assert normalization("none", colours, 4.0) == ChannelStatistics(mean=(0, 0, 0), std=(0.25, 0.25, 0.25))
    standard, half = normalization("standard", colours), normalization("standard", colours, 0.5)
    assert half == ChannelStatistics(mean=standard.mean, std=tuple(2 * std for std in standard.std))
    ids = Split(np.array([[3, 7], [1, 2]]), np.zeros(2, np.int64))
    with pytest.raises(
        ConfigError, match=r"dataset\.input_scale: found 2 for samples that are whole numbers, .* allowed: 1"
    ):
        normalization("none", Dataset(ids, ids, 1), 2.0)
