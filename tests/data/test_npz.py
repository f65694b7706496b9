from pathlib import Path

import numpy as np
import pytest

from raysim.data.dataset import load_dataset
from raysim.data.own_files import npz
from raysim.system.errors import ConfigError


def save(path: Path, x: np.ndarray, **changes) -> Path:
    y = np.arange(len(x)) % 3
    arrays = {"x_train": x, "y_train": y, "x_test": x[:2], "y_test": y[:2]} | changes
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


@pytest.mark.parametrize(
    ("x", "shape", "dtype"),
    [
        (np.arange(6 * 4 * 5, dtype=np.uint8).reshape(6, 4, 5), (1, 4, 5), np.uint8),
        (np.arange(6 * 4 * 5 * 3, dtype=np.uint16).astype(np.uint8).reshape(6, 4, 5, 3), (3, 4, 5), np.uint8),
        (np.linspace(0, 1, 60).reshape(6, 10), (10,), np.float32),
        (np.linspace(0, 1, 60, dtype=np.float32).reshape(6, 2, 5), (1, 2, 5), np.float32),
    ],
)
def test_arrays_of_every_kind(tmp_path, x, shape, dtype):
    save(tmp_path / "mine.npz", x)
    dataset = load_dataset(npz, str(tmp_path), False, {"path": "mine.npz"})
    assert dataset.shape == shape
    assert dataset.train.x.dtype == dtype
    assert dataset.classes == 3
    assert dataset.train.y.tolist() == [0, 1, 2, 0, 1, 2]
    if x.ndim == 4:
        assert dataset.train.x[4, 2, 1, 3] == x[4, 1, 3, 2]
    else:
        assert np.array_equal(dataset.train.x.reshape(x.shape), x.astype(dtype))


def test_an_absolute_path_needs_no_root(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    path = save(elsewhere / "mine.npz", np.zeros((6, 4), np.float32))
    assert len(npz(tmp_path / "root", False, path=str(path)).train) == 6


FINE = np.zeros((6, 4), np.float32)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"y_test": None, "x_test": None}, "no array x_test, y_test .it has x_train, y_train."),
        ({"x_train": FINE.astype(np.int64)}, "x_train is int64"),
        ({"x_train": np.zeros(6, np.float32)}, r"x_train has shape \(6,\)"),
        ({"y_train": np.zeros(6)}, "y_train is float64"),
        ({"y_test": np.zeros((2, 1), int)}, r"y_test is int64 of shape \(2, 1\)"),
        ({"y_train": np.array([None] * 6)}, "not a sound .npz of plain arrays"),
        ({"x_test": np.zeros((2, 5), np.float32)}, "must be alike"),
        ({"y_train": np.array([0, 1, -1, 0, 1, 2])}, "labels run from -1 to 2"),
        ({"y_train": np.zeros(0, int)}, "6 samples but 0 labels"),
    ],
)
def test_wrong_arrays_are_named(tmp_path, changes, words):
    save(tmp_path / "mine.npz", FINE, **changes)
    with pytest.raises(ConfigError, match=words) as error:
        load_dataset(npz, str(tmp_path), False, {"path": "mine.npz"})
    assert "\n" not in str(error.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"dataset\.path: there is no file .*absent\.npz"):
        npz(tmp_path, False, path="absent.npz")


@pytest.mark.parametrize("size", [0, 100, 700])
def test_a_cut_file_is_named(tmp_path, size):
    path = save(tmp_path / "mine.npz", FINE)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ConfigError, match=r"mine\.npz: not a sound \.npz"):
        npz(tmp_path, False, path="mine.npz")


def test_a_file_with_a_flipped_byte_is_named(tmp_path):
    path = save(tmp_path / "mine.npz", np.ones((60, 40), np.float32))
    content = bytearray(path.read_bytes())
    content[2000] ^= 255
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="not a sound"):
        npz(tmp_path, False, path="mine.npz")


def test_a_bare_array_is_named(tmp_path):
    np.save(tmp_path / "bare.npy", FINE)
    with pytest.raises(ConfigError, match="one bare array"):
        npz(tmp_path, False, path="bare.npy")
