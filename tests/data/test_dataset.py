import importlib
import inspect
from pathlib import Path

import numpy as np
import pytest

from raysim.data import DATASETS
from raysim.data.builtin import digits, synthetic
from raysim.data.dataset import Dataset, Split, channels_first, subsample
from raysim.data.loading import check_dataset, load_dataset, resolve_root
from raysim.system.errors import ConfigError


def split(x, y) -> Split:
    return Split(np.asarray(x), np.asarray(y))


GOOD = split(np.zeros((3, 2), np.float32), np.array([0, 1, 1]))

BROKEN = {
    "one label per sample": split(np.zeros((4, 2), np.float32), np.array([0, 1, 1])),
    "no samples": split(np.zeros((0, 2), np.float32), np.zeros(0, np.int64)),
    "labels run from 0 to 2; allowed are 0..1": split(np.zeros((3, 2), np.float32), np.array([0, 1, 2])),
    "labels run from -1 to 1": split(np.zeros((3, 2), np.float32), np.array([0, 1, -1])),
    "x is float64": split(np.zeros((3, 2)), np.array([0, 1, 1])),
    "y is int32": split(np.zeros((3, 2), np.float32), np.array([0, 1, 1], np.int32)),
    "NaN or infinite": split(np.array([[0, 1], [0, np.nan], [1, 1]], np.float32), np.array([0, 1, 1])),
    "x has shape": split(np.zeros(3, np.float32), np.array([0, 1, 1])),
}


def test_a_sound_data_set_passes_unchanged():
    dataset = Dataset(GOOD, GOOD, classes=2)
    assert check_dataset(dataset, "mine") is dataset
    assert dataset.shape == (2,)


@pytest.mark.parametrize("words", BROKEN)
@pytest.mark.parametrize("part", ["train", "test"])
def test_each_broken_rule_is_named(words, part):
    dataset = Dataset(**{"train": GOOD, "test": GOOD, part: BROKEN[words]}, classes=2)
    with pytest.raises(ConfigError) as error:
        check_dataset(dataset, "mine")
    assert words in str(error.value)
    assert f"dataset mine, {part} split" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("x", [np.zeros((3, 4), np.float32), np.zeros((3, 2), np.uint8)])
def test_the_splits_must_be_alike(x):
    with pytest.raises(ConfigError, match="must be alike"):
        check_dataset(Dataset(GOOD, split(x, np.array([0, 1, 1])), classes=2), "mine")


def test_there_is_a_name_for_each_class():
    with pytest.raises(ConfigError, match="dataset mine: 1 names for 2 classes; name each once"):
        check_dataset(Dataset(GOOD, GOOD, classes=2, names=("a",)), "mine")
    check_dataset(Dataset(GOOD, GOOD, classes=2, names=("a", "b")), "mine")


@pytest.mark.parametrize(
    ("names", "found"),
    [((1, 2), r"\[1, 2\]"), (tuple(np.arange(2)), r"\[a Python int64, a Python int64\]"),
     (np.array(["a", "b"]), "a Python ndarray"), ("ab", "'ab'")],
)  # fmt: skip
def test_names_are_texts(names, found):
    with pytest.raises(ConfigError, match=f"dataset mine: names is {found}; it must be None or a tuple of str"):
        check_dataset(Dataset(GOOD, GOOD, classes=2, names=names), "mine")


def test_what_is_no_data_set_is_named():
    with pytest.raises(ConfigError, match="got tuple"):
        check_dataset((1, 2), "mine")


def test_channels_come_first():
    image = np.arange(24, dtype=np.uint8).reshape(1, 2, 4, 3)  # H 2, W 4, C 3
    moved = channels_first(image)
    assert moved.shape == (1, 3, 2, 4)
    assert moved[0, 2, 1, 3] == image[0, 1, 3, 2]
    assert moved.flags["C_CONTIGUOUS"]
    assert channels_first(image[..., 0]).shape == (1, 1, 2, 4)
    assert channels_first(np.zeros((5, 7))).shape == (5, 7)


@pytest.mark.parametrize("name", DATASETS)
def test_every_named_data_set_exists_and_describes_itself(name):
    module, _, attribute = DATASETS[name].partition(":")
    function = getattr(importlib.import_module(module), attribute)
    root, download, *keys = inspect.signature(function).parameters.values()
    assert (root.name, download.name) == ("root", "download")
    assert all(key.kind is key.KEYWORD_ONLY and key.annotation is not key.empty for key in keys)
    assert len((function.__doc__ or "").splitlines()[0]) > 30


def test_a_given_root_must_exist_and_is_never_made(tmp_path, monkeypatch):
    monkeypatch.delenv("RAYSIM_DATA", raising=False)
    absent = tmp_path / "absent"
    with pytest.raises(ConfigError, match=r"dataset\.root: there is no folder .*absent"):
        resolve_root(str(absent))
    monkeypatch.setenv("RAYSIM_DATA", str(absent))
    with pytest.raises(ConfigError, match="RAYSIM_DATA: there is no folder"):
        resolve_root(None)
    assert not absent.exists()


def test_the_root_is_the_given_one_then_the_variable_then_the_default(tmp_path, monkeypatch):
    given, variable, home = tmp_path / "given", tmp_path / "variable", tmp_path / "home"
    for folder in (given, variable, home):
        folder.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("RAYSIM_DATA", str(variable))
    assert resolve_root(str(given)) == given
    assert resolve_root(None) == variable
    monkeypatch.delenv("RAYSIM_DATA")
    assert resolve_root(None) == home / ".cache" / "raysim"
    assert (home / ".cache" / "raysim").is_dir()


def test_digits_are_scikit_learns_and_the_split_is_fixed():
    dataset = load_dataset(digits, None, False, {})
    assert dataset.shape == (1, 8, 8)
    assert (len(dataset.train), len(dataset.test)) == (1433, 364)
    assert dataset.train.x.dtype == np.uint8
    # scikit-learn's documentation shows the first image, a zero: 0 0 5 13 9 1 0 0; it is the first of its class.
    assert dataset.test.y[0] == 0
    assert dataset.test.x[0, 0, 0].tolist() == [0, 0, 80, 207, 143, 16, 0, 0]
    assert max(dataset.train.x.max(), dataset.test.x.max()) == 255
    # the published class counts of the set
    both = np.concatenate([dataset.train.y, dataset.test.y])
    assert np.bincount(both).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert all(35 <= count <= 37 for count in np.bincount(dataset.test.y))


def test_synthetic_depends_on_its_keys_alone():
    keys = {"classes": 3, "shape": (2, 5), "train": 600, "test": 30, "noise": 0.5, "seed": 7}
    first, second = (load_dataset(synthetic, None, False, keys) for _ in range(2))
    assert np.array_equal(first.train.x, second.train.x)
    assert np.array_equal(first.test.y, second.test.y)
    other = load_dataset(synthetic, None, False, keys | {"seed": 8})
    assert not np.array_equal(first.train.x, other.train.x)
    assert first.train.x.shape == (600, 2, 5)
    assert np.bincount(first.train.y).tolist() == [200, 200, 200]


def test_synthetic_samples_lie_around_their_class_mean_by_noise():
    dataset = synthetic(Path(), False, classes=3, shape=(40,), train=6000, test=3000, noise=0.5, seed=1)
    for label in range(3):
        train, test = (half.x[half.y == label] for half in (dataset.train, dataset.test))
        assert np.allclose(train.mean(0), test.mean(0), atol=0.1)  # one mean for both splits
        assert abs(train.std(0).mean() - 0.5) < 0.02


def test_a_users_data_set_is_called_with_its_keys_and_checked(tmp_path):
    asked = {}

    def mine(root: Path, download: bool, *, size: int) -> Dataset:
        asked.update(root=root, download=download, size=size)
        return Dataset(GOOD, GOOD, classes=1)

    with pytest.raises(
        ConfigError,
        match=r"dataset .*mine \(.*test_dataset.py:\d+\), train split: labels run from 0 to 1; allowed are 0\.\.0",
    ):
        load_dataset(mine, str(tmp_path), True, {"size": 3})
    assert asked == {"root": tmp_path, "download": True, "size": 3}


def test_a_part_of_the_training_samples_is_drawn_without_replacement_and_in_order():
    numbered = split(np.arange(40, dtype=np.float32).reshape(20, 2), np.arange(20) % 2)
    whole = Dataset(numbered, GOOD, classes=2)
    part = subsample(whole, 5, np.random.default_rng(3))
    rows = part.train.x[:, 0] / 2  # a sample's first feature is twice its row
    assert len(part.train) == 5
    assert (np.diff(rows) > 0).all()
    assert part.train.y.tolist() == (rows % 2).tolist()
    assert part.test is whole.test
    assert not np.array_equal(subsample(whole, 5, np.random.default_rng(4)).train.x, part.train.x)
    assert np.array_equal(subsample(whole, 20, np.random.default_rng(3)).train.x, numbered.x)
    with pytest.raises(ConfigError, match=r"dataset\.train_samples: found 21, allowed: 1 to 20"):
        subsample(whole, 21, np.random.default_rng(3))
