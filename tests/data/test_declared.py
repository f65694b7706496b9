"""What datasets declare to hold is known without their files, and takes no memory."""

import numpy as np
import pytest

from raysim.config import load
from raysim.config.lookup import resolve
from raysim.data.dataset import Declared, MissingData, stand_in
from raysim.data.loading import check_dataset, load_dataset
from raysim.data.mnist import emnist
from raysim.federation.federation import build_federation

GREY, RGB = (1, 28, 28), (3, 32, 32)
HELD = {  # as the datasets' own papers and pages say
    "mnist": (GREY, 60000, 10000, 10),
    "fashion_mnist": (GREY, 60000, 10000, 10),
    "kmnist": (GREY, 60000, 10000, 10),
    "emnist": (GREY, 112800, 18800, 47),
    "usps": ((1, 16, 16), 7291, 2007, 10),
    "svhn": (RGB, 73257, 26032, 10),
    "cifar10": (RGB, 50000, 10000, 10),
    "cifar100": (RGB, 50000, 10000, 100),
}


@pytest.mark.parametrize("name", HELD)
def test_what_is_downloaded_is_declared(name, tmp_path):
    with pytest.raises(MissingData, match=f"dataset {name}: no complete, sound files in ") as found:
        load_dataset(resolve("dataset", name), str(tmp_path), False, {})
    assert found.value.declared == Declared(*HELD[name])


def test_emnists_splits_differ(tmp_path):
    """814,255 images in 62 classes; 47 after merging; 145,600 letters; 280,000 digits (Cohen et al. 2017)."""
    sizes = {}
    for split in ("byclass", "bymerge", "letters", "digits", "mnist"):
        with pytest.raises(MissingData) as found:
            emnist(tmp_path, False, split=split)
        declared = found.value.declared
        sizes[split] = declared.train + declared.test, declared.classes
    assert sizes == {
        "byclass": (814255, 62),
        "bymerge": (814255, 47),
        "letters": (145600, 26),
        "digits": (280000, 10),
        "mnist": (70000, 10),
    }


def test_files_of_the_users_own_declare_nothing(tmp_path):
    for name in ("image_folder", "npz"):
        with pytest.raises(MissingData) as found:
            load_dataset(resolve("dataset", name), str(tmp_path), False, {"path": "nowhere"})
        assert found.value.declared is None


def test_a_stand_in_is_a_sound_data_set_without_values():
    """Seven samples of three classes: 0 1 2 0 1 2 0; a terabyte of samples is one byte."""
    made = stand_in(Declared((1, 2, 2), train=7, test=3, classes=3), "one")
    assert check_dataset(made, "one").missing == ("one",)
    assert made.train.y.tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert made.train.x.shape == (7, 1, 2, 2)
    large = stand_in(Declared((2**20,), train=2**20, test=1, classes=1), "large").train.x
    assert (large.nbytes, large.dtype, large.base.nbytes) == (2**40, np.uint8, 1)


def test_domains_of_which_some_are_missing_are_joined_without_values(tmp_path):
    """SVHN's size; digits (1,433 + 364 of 1 x 8 x 8), which are there, become RGB of 32 x 32 like the others."""
    config = load(
        {
            "name": "domains",
            "dataset": {"name": "svhn", "root": str(tmp_path)},
            "scenario": {"kind": "domain_incremental", "tasks": 3, "shift": {"domains": ["digits", "usps", "svhn"]}},
            "clients": {"count": 2},
            "model": {"name": "mlp"},
            "training": {"rounds_per_task": 1},
        }
    )
    with pytest.raises(MissingData, match=r"^scenario\.shift\.domains\.1: dataset usps: no complete"):
        build_federation(config, download=False)
    made = build_federation(config, download=False, pretend=True)
    assert made.dataset.missing == ("usps", "svhn")
    assert made.dataset.train.x.shape == (1433 + 7291 + 73257, 3, 32, 32)
    assert not any(made.dataset.train.x.strides)
    assert [len(task.test) for task in made.tasks] == [364, 2007, 26032]
    assert [stream.size(1) for stream in made.streams] == [3646, 3645]
