import gzip
import struct
import sys
import tracemalloc

import numpy as np
import pytest

from raysim.data.mnist import emnist, fashion_mnist, find_idx, kmnist, mnist, read_idx
from raysim.system.errors import ConfigError


def idx_bytes(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


@pytest.fixture
def no_torchvision(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torchvision", None)


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize(("load", "folder"), [(mnist, "MNIST"), (fashion_mnist, "FashionMNIST"), (kmnist, "KMNIST")])
@pytest.mark.usefixtures("no_torchvision")
def test_files_are_read_without_torchvision(tmp_path, load, folder, zipped, write_set):
    write_set(tmp_path / folder / "raw", zipped=zipped)
    dataset = load(tmp_path, True)
    assert dataset.train.x.shape == (6, 1, 5, 7)
    assert dataset.test.x.shape == (4, 1, 5, 7)
    assert dataset.train.x[3, 0, 2, 1] == 3 * 35 + 2 * 7 + 1
    assert dataset.train.y.tolist() == [0, 1, 2, 0, 1, 2]
    assert dataset.train.y.dtype == np.int64
    assert dataset.classes == 10


@pytest.mark.parametrize(("split", "classes", "first"), [("balanced", 47, 0), ("letters", 26, 1), ("byclass", 62, 0)])
@pytest.mark.usefixtures("no_torchvision")
def test_emnist_reads_the_split_asked_for(tmp_path, split, classes, first, write_set):
    stems = (f"emnist-{split}-train", f"emnist-{split}-test")
    write_set(tmp_path / "EMNIST" / "raw", stems, first_label=first)
    dataset = emnist(tmp_path, False, split=split)
    assert dataset.classes == classes
    assert dataset.test.y.tolist() == [0, 1, 2, 0]
    with pytest.raises(ConfigError, match="EMNIST/raw"):
        emnist(tmp_path, False, split="mnist")


@pytest.mark.usefixtures("no_torchvision")
def test_without_files_and_torchvision_one_line_says_what_to_do(tmp_path):
    with pytest.raises(ConfigError) as refused:
        mnist(tmp_path, False)
    for words in (str(tmp_path), "MNIST/raw/", "dataset.download", "https://", "RAYSIM_DATA"):
        assert words in str(refused.value)
    with pytest.raises(
        ConfigError, match=r"torchvision cannot be imported.*install the torchvision that fits"
    ) as broken:
        mnist(tmp_path, True)
    assert "\n" not in str(refused.value) + str(broken.value)


def test_one_file_missing_is_a_set_missing(tmp_path, write_set):
    write_set(tmp_path / "MNIST" / "raw")
    (tmp_path / "MNIST" / "raw" / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(ConfigError, match="no complete, sound files"):
        mnist(tmp_path, False)


def test_the_plain_file_goes_before_the_zipped(tmp_path):
    assert find_idx(tmp_path, "a") is None
    (tmp_path / "a.gz").touch()
    assert find_idx(tmp_path, "a") == tmp_path / "a.gz"
    (tmp_path / "a").touch()
    assert find_idx(tmp_path, "a") == tmp_path / "a"


WHOLE = idx_bytes(np.arange(12).reshape(3, 4))


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("cut", WHOLE[:-1], "holds 11 values where its header says 12"),
        ("long", WHOLE + b"x", "holds more than 12 values where its header says 12"),
        ("short", WHOLE[:7], "ends inside its header"),
        ("empty", b"", "not an idx file"),
        ("html", b"<html>not found</html>", "not an idx file"),
        ("floats", bytes([0, 0, 0x0D, 1]) + WHOLE[4:], "not an idx file of uint8"),
        ("cut.gz", gzip.compress(WHOLE, mtime=0)[:-9], "cannot be read"),
        ("plain.gz", WHOLE, "cannot be read"),
    ],
)
def test_damaged_files_are_named(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=words) as error:
        read_idx(tmp_path / name)
    assert str(tmp_path / name) in str(error.value)
    assert "\n" not in str(error.value)


def test_what_cannot_fit_is_not_unpacked(tmp_path):
    """A header that promises 4 TB, and one that promises 12 bytes where 64 MiB follow."""
    (tmp_path / "huge.gz").write_bytes(gzip.compress(struct.pack(">HBB2I", 0, 8, 2, 2**21, 2**21)))
    with pytest.raises(ConfigError, match=r"huge\.gz: found 4398046511104 values, which takes 4,096\.0 GiB, allowed"):
        read_idx(tmp_path / "huge.gz")
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(WHOLE + bytes(2**26)))
    tracemalloc.start()
    with pytest.raises(ConfigError, match="holds more than 12 values"):
        read_idx(tmp_path / "bomb.gz")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**22


def test_swapped_files_are_named(tmp_path, write_set):
    write_set(tmp_path / "MNIST" / "raw")
    raw = tmp_path / "MNIST" / "raw"
    (raw / "train-images-idx3-ubyte").write_bytes((raw / "train-labels-idx1-ubyte").read_bytes())
    with pytest.raises(ConfigError, match="1 dimensions, and 1 in train-labels"):
        mnist(tmp_path, False)


def test_real_mnist_is_the_published_one(real_mnist):
    assert real_mnist.train.x.shape == (60000, 1, 28, 28)
    assert real_mnist.test.x.shape == (10000, 1, 28, 28)
    train = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(real_mnist.train.y).tolist() == train
    assert np.bincount(real_mnist.test.y).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert real_mnist.train.y[:5].tolist() == [5, 0, 4, 1, 9]
    assert abs(real_mnist.train.x.mean() / 255 - 0.1307) < 5e-5  # the figure everybody normalises MNIST with
