import numpy as np
import pytest
import torch
from PIL import Image

from raysim.data.builtin import digits
from raysim.data.pixels import Source
from raysim.data.scenario import permutations, rotation_map, rotations
from raysim.system.errors import ConfigError

ANGLES = [0.0, 0.4, 17.3, 45.0, 89.9, 90.0, 123.456, 179.99, 180.0]


def shown(sample: np.ndarray, pixels: np.ndarray) -> np.ndarray:
    """A sample through a map, feature by feature, as scenario.Task describes it."""
    flat = sample.reshape(-1)
    return np.array([flat[p] if p >= 0 else 0 for p in pixels], sample.dtype).reshape(sample.shape)


@pytest.mark.parametrize("angle", ANGLES)
def test_rotation_is_pils_on_grey_and_colour(angle, colours):
    """PIL rotates the images themselves; RGB of 12 x 8 is not square, so that the centre matters."""
    grey = digits(None, False).train.x[:5]
    for image in grey:
        turned = np.asarray(Image.fromarray(image[0]).rotate(angle))
        assert np.array_equal(shown(image, rotation_map((1, 8, 8), angle))[0], turned)
    for image in colours.train.x[:5]:
        turned = np.asarray(Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0))).rotate(angle))
        assert np.array_equal(shown(image, rotation_map((3, 12, 8), angle)), turned.transpose(2, 0, 1))


def test_rotation_of_mnist_is_torchvisions_on_the_pil_image(real_mnist):
    functional = pytest.importorskip("torchvision.transforms.functional")
    tasks = rotations(real_mnist, 6, np.random.default_rng(0))
    angles = np.random.default_rng(0).uniform(0, 180, 6)
    source = Source(real_mnist.test, [task.pixels for task in tasks])
    rows = torch.arange(0, 10000, 250)
    for number, angle in enumerate(angles):
        turned = [
            functional.to_tensor(functional.rotate(Image.fromarray(real_mnist.test.x[row, 0]), angle)) for row in rows
        ]
        assert torch.equal(source.fetch(rows, number), torch.stack(turned))


def test_rotation_is_counter_clockwise():
    image = np.zeros((1, 3, 3), np.uint8)
    image[0, 0, 2] = 9  # top right goes to top left
    assert shown(image, rotation_map((1, 3, 3), 90))[0, 0, 0] == 9


def test_every_task_is_turned_by_its_own_angle_and_shows_every_sample(colours):
    tasks = rotations(colours, 400, np.random.default_rng(1))
    angles = np.array([float(task.name.removeprefix("rotation ")) for task in tasks])
    # U(0, 180): mean 90 with a standard deviation of 52 / 20
    assert abs(angles.mean() - 90) < 10
    assert angles.min() < 5
    assert angles.max() > 175
    assert not np.array_equal(tasks[0].pixels, np.arange(288))  # the first task is turned too
    assert tasks[3].pixels.dtype == np.int32
    for task in tasks[:3]:
        assert task.classes == (0, 1, 2, 3)
        assert task.train.tolist() == list(range(20))
        assert task.test.tolist() == list(range(10))
        assert task.train.dtype == np.int32


def test_rotation_needs_images(features):
    with pytest.raises(ConfigError, match=r"rotation needs images .* shape \(6,\); use permutation"):
        rotations(features, 2, np.random.default_rng(0))


def test_permutations_are_bijections_shared_by_the_channels(colours):
    tasks = permutations(colours, 3, np.random.default_rng(2))
    for task in tasks:
        by_channel = task.pixels.reshape(3, 96)
        assert np.sort(task.pixels).tolist() == list(range(288))
        assert np.array_equal(by_channel[1] - 96, by_channel[0])
        assert np.array_equal(by_channel[2] - 192, by_channel[0])
        assert not np.array_equal(by_channel[0], np.arange(96))
    assert not np.array_equal(tasks[0].pixels, tasks[1].pixels)


def test_permutations_of_features_run_over_all_of_them(features):
    task = permutations(features, 1, np.random.default_rng(0))[0]
    assert sorted(task.pixels.tolist()) == [0, 1, 2, 3, 4, 5]
    assert (len(task.train), len(task.test)) == (16, 8)
