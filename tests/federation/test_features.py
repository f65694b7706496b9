"""Features in place of samples: runs with them and without, their files, and what needs the samples."""

import importlib
import os
import pickle
import sys
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import raysim
from raysim import check as check_run
from raysim.config import Config, load
from raysim.data.mapped import MappedSplit, write_rows
from raysim.engine.events import RoundDone
from raysim.engine.simulation import load_parts
from raysim.estimate.memory import estimate_memory
from raysim.evaluation.finished_run import evaluate
from raysim.federation import features
from raysim.federation.features import CHUNK, FeaturePass
from raysim.federation.federation import build_federation
from raysim.system.capacity import Capacity
from raysim.system.checksums import checksum_path
from raysim.system.errors import ConfigError, RunError

pytestmark = pytest.mark.usefixtures("quiet_torch", "folder")

VIT = {"name": "vit", "width": 8, "depth": 2, "heads": 2, "patch": 3, "input_size": None}
SAMPLES, TESTS = 2 * CHUNK + 5, 9
RUN = {
    "name": "features",
    "dataset": {"name": "synthetic", "classes": 4, "shape": [1, 6, 6], "train": SAMPLES, "test": TESTS},
    "scenario": {"kind": "class_incremental", "tasks": 2},
    "clients": {"count": 3},
    "model": {**VIT, "adapters": {"rank": 2, "where": ["blocks.1.*"]}, "cache": True},
    "training": {"rounds_per_task": 2, "batch_size": 4, "optimizer": {"lr": 0.1}},
    "logging": {"tensorboard": False},
}
BY_COLOUR = {"dataset.normalize": {"mean": [0.5], "std": [0.25]}}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the features."""
    monkeypatch.setenv("RAYSIM_DATA", str(tmp_path))
    return tmp_path / "features"


def made(**overrides: object) -> Config:
    return load(RUN, {key.replace("__", "."): value for key, value in overrides.items()})


def features_of(config: Config) -> list[np.ndarray]:
    dataset = FeaturePass(config, build_federation(config)).carry_out().dataset
    return [dataset.train.x.copy(), dataset.test.x.copy()]


@pytest.mark.parametrize(
    "more",
    [
        {"methods": {"er": {}}, **BY_COLOUR},
        {"model": {**VIT, "prompts": {"kind": "l2p", "pool": 3, "top": 2, "length": 1}}, "evaluation.model": "local"},
        {"model": {"name": "mlp", "hidden": [5, 4], "freeze": ["1.*"]}, "methods": {"cfed": {}}}
        | {"dataset.unlabelled": {"name": "synthetic", "classes": 4, "shape": [1, 6, 6], "train": 7, "test": 2}},
    ],
    ids=["adapters", "prompts", "unlabelled"],
)
def test_a_run_with_features_is_the_run_without(more: dict[str, Any], tmp_path: Path) -> None:
    """Up to the last bits: the same operations, but in chunks of another size."""
    done = [
        raysim.run(RUN, {**more, "model.cache": cache}, out=tmp_path / str(cache), local=True)
        for cache in (False, True)
    ]
    plain, cached = (torch.load(run.directory / "model.pt", weights_only=True) for run in done)
    assert [*plain] == [*cached]
    assert all(torch.allclose(plain[name], cached[name], rtol=1e-5, atol=1e-5) for name in plain)
    assert done[0].evaluation == done[1].evaluation
    assert (done[0].bytes_up, done[0].updates) == (done[1].bytes_up, done[1].updates)
    if "model" in more:  # model.pt is the whole model, for images
        evaluated = evaluate(done[1].directory, {"evaluation.model": "global"}).evaluation["class_il"]["accuracy"]
        assert more.get("evaluation.model") or evaluated == done[1].evaluation["class_il"]["accuracy"][-1]


def test_bits_depend_on_no_place(simulate: Callable[..., Any]) -> None:
    config = made(methods={"er": {}})
    federation, _ = load_parts(config)
    one = simulate(config, federation)
    assert simulate(config, federation, [[0, 2], [1]]).sha256 == one.sha256
    assert simulate(config, pickle.loads(pickle.dumps(federation))).sha256 == one.sha256


def test_features_depend_neither_on_neighbours_nor_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples in reverse order are at other places of other chunks, next to others."""
    config = made()
    whole = build_federation(config)
    expected, _ = features_of(config)
    assert expected.shape == (SAMPLES, 5, 8)  # 4 patches and the class token
    reverse = replace(whole, dataset=replace(whole.dataset, train=whole.dataset.train.take(np.arange(SAMPLES)[::-1])))
    monkeypatch.setattr(features, "this_machine", lambda: Capacity(3, 0, None))
    assert np.array_equal(FeaturePass(config, reverse).carry_out().dataset.train.x, expected[::-1])


def test_a_file_is_computed_once_and_named_by_what_it_depends_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = features_of(made())
    files = {*folder.glob("*.npy")}
    assert {*folder.iterdir()} == files | {checksum_path(path) for path in files}
    assert len(files) == 2
    with monkeypatch.context() as patch:
        patch.setattr(features, "write_rows", lambda *_: pytest.fail("it is there"))
        again = features_of(made(methods={"er": {}}, model__adapters__rank=1))  # the same up to the adapted block
        assert all(map(np.array_equal, first, again))
    for more in ({"seed": 1}, {"dataset__normalize": BY_COLOUR["dataset.normalize"]}, {"model__heads": 1}):
        features_of(made(**more))
        assert len({*folder.glob("*.npy")} - files) == 2
        files = {*folder.glob("*.npy")}
    features_of(made(dataset__train=SAMPLES + 1))  # the tests are others, too: they are drawn after
    assert len(files) == 8


def test_features_of_a_gpu_are_named_by_the_precision_of_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without determinism a GPU multiplies in TF32, so that features differ by far more than their last bits."""
    monkeypatch.setattr(features, "describe_machine", str)
    names = []
    for deterministic in (True, False):
        config = made(resources__deterministic=deterministic)
        by_pass = FeaturePass(config, build_federation(config))
        by_pass._device = torch.device("cuda")
        names.append([*by_pass._name_files()])
    assert not {*names[0]} & {*names[1]}


def test_a_custom_model_with_other_code_has_other_features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer without weights is replaced: ReLU has no negative features, and Tanh has."""
    source = """
from torch import nn

def net(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.ReLU(), nn.Linear(8, classes))
"""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    found = []
    for code in (source, source.replace("ReLU", "Tanh")):
        (tmp_path / "features_net.py").write_text(code)
        sys.modules.pop("features_net", None)
        importlib.invalidate_caches()
        config = made(model={"name": "features_net:net", "freeze": ["1.*"], "cache": True})
        found.append(min(part.min() for part in features_of(config)))
    assert found[0] >= 0 > found[1]


def test_a_pass_that_is_cut_off_leaves_no_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is not whole is replaced."""

    def cut_off(rows: Any) -> Any:
        yield next(rows)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(features, "write_rows", lambda path, shape, rows: write_rows(path, shape, cut_off(rows)))
        with pytest.raises(KeyboardInterrupt):
            features_of(made())
    assert [*folder.iterdir()] == []
    expected = features_of(made())
    short, other = folder.glob("*.npy")
    short.write_bytes(short.read_bytes()[:-4])
    np.save(other, np.zeros(3, np.float32))
    assert all(map(np.array_equal, features_of(made()), expected))


def damage(path: Path, kind: str) -> None:
    """Make a file of features one that must not be used."""
    if kind == "one bit":
        content = bytearray(path.read_bytes())
        content[-3] ^= 1
        path.write_bytes(content)
    elif kind == "no checksum":
        checksum_path(path).unlink()
    elif kind == "the file of another run":  # of the same shape, with its own checksum
        values = np.load(path) + 1
        path.unlink()
        checksum_path(path).unlink()
        write_rows(path.with_name("other.npy"), values.shape, iter([values]))
        path.with_name("other.npy").rename(path)
        checksum_path(path.with_name("other.npy")).rename(checksum_path(path))
    else:
        path.unlink()
        os.mkfifo(path) if kind == "a pipe" else path.symlink_to("/dev/zero")


@pytest.mark.parametrize("kind", ["one bit", "no checksum", "the file of another run", "a pipe", "a device"])
def test_damaged_features_are_computed_again_and_that_is_said(kind: str, folder: Path) -> None:
    expected = features_of(made())
    (path,) = (path for path in folder.glob("*.npy") if len(np.load(path)) == TESTS)
    damage(path, kind)
    federation, _ = load_parts(made())
    said = f"model.cache: {path} was not as it was written, so its features were computed again"
    old = f"{path} had no checksum, so its features were computed again"
    found = federation.dataset
    assert (found.doubts, found.notes) == (((), (old,)) if kind == "no checksum" else ((said,), ()))
    assert np.array_equal(federation.dataset.test.x, expected[1])
    again, _ = load_parts(made())
    assert (again.dataset.doubts, again.dataset.notes) == ((), ())


def test_a_run_with_features_has_the_identity_of_its_data_too(tmp_path: Path) -> None:
    """Of the samples, as without `cache`, and of the features."""
    plain, cached = (
        raysim.run(RUN, {"model.cache": cache}, out=tmp_path / str(cache), local=True).versions
        for cache in (False, True)
    )
    assert cached["data"] == plain["data"]
    assert "features" not in plain
    federation, _ = load_parts(made())
    named = " ".join(f"{file.path.stem} {file.sha256}" for file in federation.files)
    assert cached["features"] == sha256(named.encode()).hexdigest()
    away, _ = load_parts(made(resources__address="auto"))
    assert (away.cached, away.files) == (federation.cached, [])  # its nodes have no such files


def test_features_that_change_during_a_run_end_it(tmp_path: Path, folder: Path) -> None:
    class Changes:
        def take(self, event: object) -> None:
            if isinstance(event, RoundDone) and event.round == 2:
                for path in folder.glob("*.npy"):
                    damage(path, "one bit")

        def say(self, text: str) -> None:
            """Say nothing."""

    words = r"^model\.cache: .*npy is not the file that the run began with: found SHA-256 .*; put that file back, then"
    with pytest.raises(RunError, match=words):
        raysim.run(RUN, out=tmp_path / "run", local=True, display=Changes())


def test_processes_of_this_machine_map_the_file_and_other_nodes_get_its_content() -> None:
    here, _ = load_parts(made())
    away, _ = load_parts(made(resources__address="auto"))
    assert isinstance(here.dataset.train, MappedSplit)
    assert not isinstance(away.dataset.train, MappedSplit)
    numbers = here.dataset.train.x.nbytes + here.dataset.test.x.nbytes
    assert len(pickle.dumps(here)) < len(pickle.dumps(away)) - numbers + 1000  # the files' names and digests
    assert np.array_equal(pickle.loads(pickle.dumps(here)).dataset.train.x, away.dataset.train.x)


def test_the_check_says_their_size_and_computes_none(folder: Path) -> None:
    """5 x 8 float32 for each of 46 samples are 7,360 bytes; they are mapped, so the node has them once."""
    lines = check_run(made())
    cache = "7.2 KiB of features of 5 x 8 take the samples' place"
    assert lines["cache"] == f"{cache}; those of {SAMPLES + TESTS} samples are computed first"
    assert "1 x 6 x 6" in lines["data"]
    assert "the features take" in lines["time"]
    assert not folder.exists()
    federation, model = load_parts(made())
    assert check_run(made())["cache"] == f"{cache}, from files"
    assert "features" not in check_run(made())["time"]
    need = estimate_memory(made(), federation, model)
    assert (need.mapped, need.data) == (7360, 8 * 46)  # and labels


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"dataset.augment": ["flip"]}, "false with dataset.augment, whose samples change each time"),
        ({"scenario": {"kind": "domain_incremental", "tasks": 2}}, "false with rotations or permutations, "),
        (
            {"methods": {"mfcl": {}}},
            r"methods.mfcl: generates images, but .* shape \(5, 8\), .*; or model.cache=false$",
        ),
        ({"model": {**VIT, "cache": True}}, "model.cache: found true for vit, which trains its first layer, allowed: "),
    ],
)
def test_what_needs_the_samples_is_refused(more: dict[str, Any], words: str, folder: Path) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        load_parts(load(RUN, more))
    assert "\n" not in str(caught.value)
    assert not folder.exists()


def test_a_folder_without_room_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raysim.data.mapped.shutil.disk_usage", lambda path: type("", (), {"free": 2**20}))
    monkeypatch.setattr(features, "fits", lambda path, shape: False)
    with pytest.raises(
        ConfigError, match=r"^model.cache: .*npy cannot be written: it would have 2 MiB, but there is r"
    ):
        load_parts(made(dataset__train=13_200))
