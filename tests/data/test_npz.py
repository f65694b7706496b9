import re
import zipfile
from pathlib import Path

import numpy as np
import pytest

from raysim.data.custom_files import npz
from raysim.data.loading import load_dataset
from raysim.system import capacity
from raysim.system.capacity import Capacity
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
        (np.arange(60, dtype=np.int16).reshape(6, 10), (10,), np.int64),
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
        ({"x_train": FINE.astype(np.int64)}, "training samples are int64 .* must be alike"),
        ({"x_train": np.zeros((6, 2, 2), np.int64)}, "x_train is int64"),
        ({"x_train": FINE.astype(complex)}, "x_train is complex128"),
        ({"x_train": np.zeros(6, np.float32)}, r"x_train has shape \(6,\)"),
        (
            {"y_train": np.array(["a"] * 6)},
            r"y_train is <U1 of shape \(6,\); save integers of shape \[N\], or integers or",
        ),
        ({"y_train": np.zeros(6)}, r"training targets are float32 \(1,\), test targets are int64 \(\); they must be"),
        ({"y_test": np.zeros((2, 1), int)}, r"training targets are int64 \(\), test targets are int64 \(1,\)"),
        ({"y_train": np.full(6, np.nan)}, "y holds NaN or infinite values"),
        ({"y_train": np.array([None] * 6)}, "not a sound .npz of plain arrays"),
        ({"x_train": FINE + np.eye(6, 4, -2) * 1e300}, r"mine\.npz: x_train\[2, 0\]: found 1e\+300, allowed: -3"),
        ({"y_test": np.array([0, -1e308])}, r"mine\.npz: y_test\[1\]: found -1e\+308, allowed: -3"),
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


@pytest.mark.parametrize("channels", [1, 3])
def test_images_with_channels_first_are_refused(tmp_path, channels):
    """As [N, H, W, C] they would be 8 channels of 1 x 6 or 3 x 6 pixels."""
    save(tmp_path / "mine.npz", np.zeros((6, channels, 6, 8), np.uint8))
    with pytest.raises(ConfigError) as error:
        npz(tmp_path, False, path="mine.npz")
    assert str(error.value) == (
        f"{tmp_path}/mine.npz: x_train has shape (6, {channels}, 6, 8), which looks like [N, C, H, W], allowed: "
        "[N, H, W, C]; save x.transpose(0, 2, 3, 1); or x.swapaxes(1, 2) if these are 8 channels"
    )


@pytest.mark.parametrize("shape", [(3, 3, 8), (1, 1, 8), (3, 6, 4), (1, 4, 9), (6, 1, 8), (3, 3, 3), (1, 6, 3)])
def test_low_images_are_read_with_channels_last(tmp_path, shape):
    """Feature maps of a network, and signals: after the first axis, one has 4 places at most."""
    height, width, channels = shape
    save(tmp_path / "mine.npz", np.zeros((6, *shape), np.float32))
    assert npz(tmp_path, False, path="mine.npz").shape == (channels, height, width)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"dataset\.path: there is no file .*absent\.npz; .*RAYSIM_DATA or"):
        npz(tmp_path, False, path="absent.npz")


def test_what_cannot_fit_is_not_unpacked(tmp_path, monkeypatch):
    """On a machine of 1 MiB: 16 MB of zeros, of which the file has a thousandth."""
    monkeypatch.setattr(capacity, "this_machine", lambda: Capacity(1, 0, 2**20))
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, x_train=np.zeros((6, 700_000)), y_train=np.arange(6), x_test=FINE, y_test=np.arange(6))
    assert path.stat().st_size < 100_000
    with pytest.raises(ConfigError, match=r"bomb\.npz, which takes 0\.0 GiB, allowed: what fits into 0\.0 GiB"):
        npz(tmp_path, False, path="bomb.npz")


def test_an_array_that_is_declared_larger_than_its_file_is_named(tmp_path):
    path = save(tmp_path / "mine.npz", FINE, x_train=None)
    with zipfile.ZipFile(path, "a") as archive, archive.open("x_train.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, {"descr": "<f4", "fortran_order": False, "shape": (10**9, 10**6)})
    with pytest.raises(ConfigError, match=r"mine\.npz: not a sound \.npz"):
        npz(tmp_path, False, path="mine.npz")


def test_a_label_that_makes_a_head_too_large_is_named(tmp_path):
    save(tmp_path / "mine.npz", FINE, y_train=np.array([0, 1, 2, 0, 1, 10**12]))
    with pytest.raises(ConfigError, match=r"dataset npz: found 1000000000001 classes, which takes 931,322\.6 GiB"):
        load_dataset(npz, str(tmp_path), False, {"path": "mine.npz"})


def test_an_encrypted_file_is_named(tmp_path):
    """Bit 0 of the flags in every header, which is all that a reader without the password sees."""
    path = save(tmp_path / "mine.npz", FINE)
    content = bytearray(path.read_bytes())
    for mark, flags in ((b"PK\1\2", 8), (b"PK\3\4", 6)):
        for found in re.finditer(mark, bytes(content)):
            content[found.start() + flags] |= 1
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"mine\.npz: not a sound \.npz of plain arrays \(.* is encrypted"):
        npz(tmp_path, False, path="mine.npz")


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


def test_targets_are_floats_or_rows_of_integers_too(tmp_path):
    """Floats [N] become float32 [N, 1], of one class; of rows of integers the classes are 0 to the largest."""
    for given, wanted in (
        (np.array([0.5, 1.5, 2.0]), np.array([[0.5], [1.5], [2.0]], np.float32)),
        (np.array([[1, 0], [0, 1], [1, 1]], bool), np.array([[1, 0], [0, 1], [1, 1]])),
    ):
        save(tmp_path / "mine.npz", np.zeros((3, 4), np.float32), y_train=given, x_test=FINE[:3], y_test=given)
        found = load_dataset(npz, str(tmp_path), False, {"path": "mine.npz"})
        assert found.train.y.dtype == wanted.dtype
        assert found.train.y.tolist() == found.test.y.tolist() == wanted.tolist()
        assert found.classes == (1 if wanted.dtype == np.float32 else 2)
        assert not found.train.labelled
