import numpy as np
import pytest
import torch

from raysim.config.component_blocks import ChannelStatistics
from raysim.data.dataset import Split
from raysim.data.pixels import Source
from raysim.data.scenario import permutations
from raysim.data.transforms import apply_augmentation, check_augmentation, crop, draw_augmentation, flip
from raysim.system.errors import ConfigError


def slowly(image: np.ndarray, dy: int, dx: int, flip: int) -> np.ndarray:
    """torchvision's pad(4), crop at (4 + dy, 4 + dx), hflip, on one image C x H x W."""
    _, height, width = image.shape
    padded = np.pad(image, ((0, 0), (4, 4), (4, 4)))
    cropped = padded[:, 4 + dy : 4 + dy + height, 4 + dx : 4 + dx + width]
    return cropped[:, :, ::-1] if flip else cropped


def test_every_draw_is_the_slow_way(colours):
    draws = torch.tensor([[dy, dx, flip] for dy in (-4, -1, 0, 3, 4) for dx in (-4, 0, 2, 4) for flip in (0, 1)])
    images = torch.from_numpy(colours.train.x).repeat(2, 1, 1, 1)
    result = apply_augmentation(images, draws)
    assert result.dtype == torch.uint8
    for image, drawn, shown in zip(images.numpy(), draws.tolist(), result.numpy(), strict=True):
        assert np.array_equal(shown, slowly(image, *drawn))


def test_the_slow_way_is_torchvisions(colours):
    functional = pytest.importorskip("torchvision.transforms.functional")
    image = torch.from_numpy(colours.train.x[0])
    theirs = functional.hflip(functional.crop(functional.pad(image, [4]), 1, 6, 12, 8))
    assert np.array_equal(slowly(colours.train.x[0], -3, 2, 1), theirs.numpy())


def test_draws_are_uniform_and_only_what_is_asked_for():
    drawn = draw_augmentation(["crop", "flip"], np.random.default_rng(0), 9000)
    assert drawn.dtype == np.int64
    for column in (0, 1):
        values, counts = np.unique(drawn[:, column], return_counts=True)
        assert values.tolist() == list(range(-4, 5))
        assert abs(counts - 1000).max() < 5 * 30  # each a ninth of 9000: a standard deviation of 30
    assert abs(drawn[:, 2].mean() - 0.5) < 0.03
    assert set(drawn[:, 2]) == {0, 1}
    assert not draw_augmentation(["flip"], np.random.default_rng(0), 50)[:, :2].any()
    assert not draw_augmentation(["crop"], np.random.default_rng(0), 50)[:, 2].any()
    assert not draw_augmentation([], np.random.default_rng(0), 50).any()


def test_a_source_shows_the_task_then_the_draw_then_normalises_and_does_it_again(colours):
    pixels = permutations(colours, 1, np.random.default_rng(1))[0].pixels
    figures = ChannelStatistics(mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4))
    source = Source(colours.train, [pixels], normalization=figures, augment=["crop", "flip"])
    rows = torch.tensor([4, 9, 2, 2])
    drawn = torch.from_numpy(source.draw(np.random.default_rng(2), 4))
    first, again = (source.fetch(rows, 0, drawn) for _ in range(2))
    assert torch.equal(first, again)
    for row, one, shown in zip(rows.tolist(), drawn.tolist(), first.numpy(), strict=True):
        image = slowly(colours.train.x[row].reshape(-1)[pixels].reshape(3, 12, 8), *one)
        scaled = image.astype(np.float32) / np.float32(255)
        mean, std = (np.float32(values).reshape(3, 1, 1) for values in (figures.mean, figures.std))
        assert np.array_equal(shown, (scaled - mean) / std)
    assert torch.equal(source.fetch(rows, 0, torch.zeros_like(drawn)), source.fetch(rows, 0))


def test_float_images_can_be_augmented_too(colours):
    split = Split((colours.train.x / 255).astype(np.float32), colours.train.y)
    shown = Source(split, [None], augment=["crop"]).fetch(torch.tensor([5]), 0, torch.tensor([[2, -3, 0]]))
    assert np.array_equal(shown[0].numpy(), slowly(split.x[5], 2, -3, 0))


def test_augmentation_needs_images(features):
    with pytest.raises(ConfigError, match=r"dataset\.augment: flip needs images .* shape \(6,\)"):
        check_augmentation(["flip"], [], features.train)


def test_a_crop_of_a_crop_is_refused(colours):
    with pytest.raises(ConfigError, match=r"found \['crop', 'crop'\], allowed: crop and flip once each"):
        check_augmentation(["crop", "crop"], [], colours.train)


def test_each_is_a_component_of_its_own_too(colours):
    """By number: 31 = 3 * 9 + 4 moves the rows by 3 - 4 and the columns by 4 - 4; odd numbers flip."""
    images = torch.from_numpy(colours.train.x[:2])
    numbers = torch.tensor([31, 40 + 81 * 5])
    assert np.array_equal(crop(images, numbers)[0].numpy(), slowly(colours.train.x[0], -1, 0, 0))
    assert torch.equal(crop(images, numbers)[1], images[1])
    assert torch.equal(flip(images, numbers), images.flip(-1))
