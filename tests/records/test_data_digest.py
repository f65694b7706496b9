"""The digest of a run's data in its summary, and what a run says that resumes with other data."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

import raysim
from raysim.engine.events import RoundDone
from raysim.records import data_digest


class Power(Exception):
    """It fails."""


class Listener:
    """Keeps the messages, and ends a run after a round as if the power had failed."""

    def __init__(self, last: int | None = None) -> None:
        self.last = last
        self.said: list[str] = []

    def take(self, event: object) -> None:
        if isinstance(event, RoundDone) and event.round == self.last:
            raise Power

    def say(self, text: str) -> None:
        self.said.append(text)


def write(folder: Path, change: int = 0) -> dict[str, np.ndarray]:
    """Write 40 samples with 6 numbers, one of which is changed."""
    x = np.arange(240, dtype=np.float32).reshape(40, 6) / 240
    x[17, 3] += change
    arrays = {"x_train": x, "y_train": np.arange(40) % 4, "x_test": x[:20], "y_test": np.arange(20) % 4}
    np.savez(folder / "mine.npz", **arrays)
    return arrays


def config(folder: Path) -> dict[str, object]:
    return {
        "name": "tiny",
        "dataset": {"name": "npz", "path": str(folder / "mine.npz")},
        "scenario": {"kind": "class_incremental", "tasks": 2},
        "clients": {"count": 2},
        "model": {"name": "mlp", "hidden": [5]},
        "training": {"rounds_per_task": 2, "batch_size": 8, "optimizer": {"lr": 0.1}},
        "checkpoint": {"every_rounds": 2},
    }


def cut_off(folder: Path) -> Path:
    write(folder)
    with pytest.raises(Power):
        raysim.run(config(folder), out=folder / "run", local=True, display=Listener(3))
    (folder / "run" / "summary.json").unlink()
    return folder / "run"


def expected(arrays: dict[str, np.ndarray]) -> str:
    """Return the digest: of each array its dtype and shape as text, then its bytes in C order."""
    digest = hashlib.sha256()
    for name in ("x_train", "y_train", "x_test", "y_test"):
        digest.update(f"{arrays[name].dtype} {arrays[name].shape}".encode() + arrays[name].tobytes())
    return digest.hexdigest()


def test_the_summary_has_the_digest_of_all_arrays(tmp_path: Path) -> None:
    arrays = write(tmp_path)
    assert raysim.run(config(tmp_path), out=tmp_path / "run", local=True).versions["data"] == expected(arrays)


def test_of_a_large_array_equally_spaced_samples_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """40 x 6 float32 are 960 bytes, 3.75 times 256: every fourth row. The labels (320 bytes): every second."""
    arrays = write(tmp_path)
    monkeypatch.setattr(data_digest, "READ", 256)
    digest = hashlib.sha256()
    for name, step in (("x_train", 4), ("y_train", 2), ("x_test", 2), ("y_test", 1)):
        array = arrays[name]
        digest.update(f"{array.dtype} {array.shape}".encode() + array[::step].tobytes())
    found = raysim.run(config(tmp_path), out=tmp_path / "run", local=True).versions["data"]
    assert found == digest.hexdigest()


def test_a_run_that_resumes_with_other_data_says_so(tmp_path: Path) -> None:
    """One number of one sample is another."""
    out, display = cut_off(tmp_path), Listener()
    before = expected(write(tmp_path))
    after = expected(write(tmp_path, change=1))
    raysim.run(None, out=out, local=True, resume=True, display=display)
    said = "the data of the run changed since round 2, from which it resumes; its results are of both versions"
    assert [line for line in display.said if said in line]
    assert json.loads((out / "summary.json").read_text())["versions"]["data"] == f"{before}, then {after}"


def test_a_run_that_resumes_with_the_same_data_says_nothing(tmp_path: Path) -> None:
    out = cut_off(tmp_path)
    versions = raysim.run(None, out=out, local=True, resume=True).versions  # a warning would be an error
    assert versions["data"] == expected(write(tmp_path))


def test_client_ids_are_part_of_the_digest(tmp_path: Path) -> None:
    """They decide which client has which samples."""
    digests = []
    for first, second in (("north", "south"), ("south", "north")):
        np.savez(tmp_path / "mine.npz", **write(tmp_path), client_train=np.array([first, second] * 20))
        run = config(tmp_path) | {"partition": {"kind": "natural"}}
        digests.append(raysim.run(run, out=tmp_path / first, local=True).versions["data"])
    assert digests[0] != digests[1]
