import bz2
import hashlib
import pickle
import socket
import sys
import urllib.error
import urllib.request
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from raysim.config import load
from raysim.data.mnist import mnist
from raysim.data.vision import cifar10, cifar100, svhn, usps
from raysim.federation.federation import build_federation
from raysim.system.errors import ConfigError

datasets = pytest.importorskip("torchvision.datasets")
CIFAR10 = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def md5(path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()


def write_cifar(folder, known, label_key, monkeypatch):
    """Two images per batch file; the sums that torchvision knows are replaced by those of the files made here.

    The file of names is as the original one: CIFAR-10's has label_names, CIFAR-100's fine_label_names, 0 to C - 1.
    """
    folder.mkdir()
    generator = np.random.default_rng(0)
    images = {}
    for name, _ in [*known.train_list, *known.test_list]:
        images[name] = generator.integers(0, 256, (2, 3072), dtype=np.uint8)
        (folder / name).write_bytes(pickle.dumps({"data": images[name], label_key: [1, 9]}))
    names = CIFAR10 if label_key == "labels" else [f"fine {number}" for number in range(100)]
    (folder / known.meta["filename"]).write_bytes(pickle.dumps({known.meta["key"]: names}))
    for lists in ("train_list", "test_list"):
        sums = [[name, md5(folder / name)] for name, _ in getattr(known, lists)]
        monkeypatch.setattr(known, lists, sums)
    monkeypatch.setattr(known, "meta", known.meta | {"md5": md5(folder / known.meta["filename"])})
    return images


def test_cifar10_is_read_from_its_pickles(tmp_path, monkeypatch):
    images = write_cifar(tmp_path / "cifar-10-batches-py", datasets.CIFAR10, "labels", monkeypatch)
    dataset = cifar10(tmp_path, False)
    assert dataset.train.x.shape == (10, 3, 32, 32)
    assert dataset.train.x.flags["C_CONTIGUOUS"]
    # In the file a row is 1024 red, 1024 green, 1024 blue values, each row by row.
    assert dataset.train.x[5, 2, 30, 7] == images["data_batch_3"][1, 2 * 1024 + 30 * 32 + 7]
    assert dataset.test.x[0, 1, 0, 31] == images["test_batch"][0, 1024 + 31]
    assert dataset.train.y.tolist() == [1, 9] * 5
    assert (dataset.classes, dataset.names) == (10, tuple(CIFAR10))


def test_cifars_classes_may_be_given_by_name(tmp_path, monkeypatch):
    """The images are of classes 1 and 9, automobile and truck."""
    write_cifar(tmp_path / "cifar-10-batches-py", datasets.CIFAR10, "labels", monkeypatch)

    def tasks(**scenario):
        given = {
            "name": "names",
            "dataset": {"name": "cifar10", "root": str(tmp_path), "download": False},
            "scenario": {"kind": "class_incremental", "tasks": 2, **scenario},
            "clients": {"count": 1},
            "model": {"name": "mlp"},
            "training": {"rounds_per_task": 1},
        }
        return [task.classes for task in build_federation(load(given)).tasks]

    others = [name for name in CIFAR10 if name != "truck"]
    assert tasks(classes=[["truck"], others]) == [(9,), tuple(range(9))]
    assert tasks(class_order=["truck", *others], first_task_classes=1) == [(9,), tuple(range(9))]
    with pytest.raises(ConfigError, match=r"found the class 'trcuk', allowed: 0 to 9 or .*; did you mean 'truck'\?"):
        tasks(class_order=["trcuk", *others])
    with pytest.raises(ConfigError, match=r"found class 0 \(airplane\) more than once"):
        tasks(class_order=[*range(9), "airplane", "truck"])


def test_cifar100_takes_the_fine_labels(tmp_path, monkeypatch):
    images = write_cifar(tmp_path / "cifar-100-python", datasets.CIFAR100, "fine_labels", monkeypatch)
    dataset = cifar100(tmp_path, False)
    assert dataset.train.x.shape == (2, 3, 32, 32)
    assert dataset.test.x[1, 0, 3, 4] == images["test"][1, 3 * 32 + 4]
    assert (dataset.classes, dataset.names[99]) == (100, "fine 99")


def test_a_damaged_cifar_counts_as_missing(tmp_path, monkeypatch):
    write_cifar(tmp_path / "cifar-10-batches-py", datasets.CIFAR10, "labels", monkeypatch)
    (tmp_path / "cifar-10-batches-py" / "data_batch_2").write_bytes(b"cut")
    with pytest.raises(ConfigError, match=r"dataset cifar10: no complete, sound files in .*cifar-10-batches-py"):
        cifar10(tmp_path, False)


def test_usps_is_read_from_its_text(tmp_path):
    for name, count in (("usps.bz2", 3), ("usps.t.bz2", 2)):
        lines = [f"{image + 1} " + " ".join(f"{i + 1}:{(i - 128) / 128}" for i in range(256)) for image in range(count)]
        (tmp_path / name).write_bytes(bz2.compress("\n".join(lines).encode()))
    dataset = usps(tmp_path, False)
    assert dataset.train.x.shape == (3, 1, 16, 16)
    assert dataset.train.y.tolist() == [0, 1, 2]
    assert dataset.test.y.tolist() == [0, 1]
    assert dataset.train.x[0, 0, 4, 0] == int((-0.5 + 1) / 2 * 255)  # place 64 is (64 - 128) / 128


def test_a_cut_usps_file_is_named(tmp_path):
    for name in ("usps.bz2", "usps.t.bz2"):
        (tmp_path / name).write_bytes(bz2.compress(b"1 1:0.5\n" * 500)[:-12])
    with pytest.raises(ConfigError, match="dataset usps: no complete, sound files"):
        usps(tmp_path, False)


def test_svhn_is_read_from_its_matrices(tmp_path, monkeypatch):
    generator = np.random.default_rng(1)
    sums, stored = {}, {}
    for part, count in (("train", 4), ("test", 3)):
        stored[part] = generator.integers(0, 256, (32, 32, 3, count), dtype=np.uint8)
        path = tmp_path / f"{part}_32x32.mat"
        scipy.io.savemat(path, {"X": stored[part], "y": np.array([10, 1, 9, 4][:count]).reshape(-1, 1)})
        sums[part] = [datasets.SVHN.split_list[part][0], path.name, md5(path)]
    monkeypatch.setattr(datasets.SVHN, "split_list", sums)
    dataset = svhn(tmp_path, False)
    assert dataset.train.x.shape == (4, 3, 32, 32)
    assert dataset.train.x[2, 1, 5, 6] == stored["train"][5, 6, 1, 2]
    assert dataset.train.y.tolist() == [0, 1, 9, 4]  # the files call the digit 0 "10"
    assert dataset.test.x.flags["C_CONTIGUOUS"]


@pytest.mark.parametrize("load", [usps, svhn, cifar10, cifar100, mnist])
def test_missing_files_say_where_and_how(tmp_path, load):
    with pytest.raises(ConfigError) as error:
        load(tmp_path, False)
    for words in (load.__name__, str(tmp_path), "dataset.download to true", "http", "RAYSIM_DATA"):
        assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("load", [usps, svhn, cifar10, cifar100, mnist])
def test_a_failed_download_is_one_quiet_line(tmp_path, load, monkeypatch, capfd):
    waited = []

    def refuse(*_, **__):
        waited.append(socket.getdefaulttimeout())
        print("torchvision says hello")
        print("progress", file=sys.stderr)
        raise urllib.error.URLError("no route to anywhere")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    with pytest.raises(ConfigError, match=r"downloading failed .*no route to anywhere") as error:
        load(tmp_path, True)
    assert "\n" not in str(error.value)
    assert waited[0] is not None  # a network that swallows packets must not hang the run
    assert socket.getdefaulttimeout() is None
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("load", [usps, cifar10])
def test_a_torchvision_that_cannot_be_imported_is_named(tmp_path, load, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(ConfigError, match=f"dataset {load.__name__}: torchvision cannot be imported"):
        load(tmp_path, False)


def test_what_a_download_brings_is_read_without_its_noise(tmp_path, monkeypatch, write_set, capfd):
    def download(self):
        warnings.warn("files older than this numpy", stacklevel=1)
        print("100%", file=sys.stderr)
        write_set(Path(self.raw_folder))

    monkeypatch.setattr(datasets.MNIST, "download", download)
    assert mnist(tmp_path, True).train.x[1, 0, 0, 1] == 36
    assert capfd.readouterr() == ("", "")
