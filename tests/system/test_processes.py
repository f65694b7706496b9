"""Children, memory use and home folders where the system hides processes or does not list the user."""

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from small_configs import SMALL

import raysim
from raysim.actors import compat
from raysim.config import load
from raysim.data.loading import choose_root, load_dataset
from raysim.system.footprint import Footprint, own_peak
from raysim.system.home import expand, find_home
from raysim.system.hub_files import find_weights
from raysim.system.processes import find_children


@pytest.fixture
def hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system with hidepid: psutil's search among all processes is refused at that of process 1."""

    def refuse() -> dict[int, int]:
        raise psutil.AccessDenied(1)

    monkeypatch.setattr(psutil, "_ppid_map", refuse)


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without HOME and without an entry in passwd."""

    def refuse(uid: int) -> None:
        raise KeyError(uid)

    for name in ("HOME", "RAYSIM_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", refuse)


@pytest.mark.skipif(not Path(f"/proc/self/task/{os.getpid()}/children").exists(), reason="the kernel lists no children")
def test_children_are_found_where_other_processes_are_hidden(hidden: None) -> None:
    script = (
        "import subprocess, sys; child = subprocess.Popen(['sleep', '60']); print(child.pid, flush=True); child.wait()"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        grandchild = int(child.stdout.readline())
        with pytest.raises(psutil.AccessDenied):
            psutil.Process().children()
        assert child.pid in [process.pid for process in find_children()]
        assert [process.pid for process in find_children(child.pid)] == [grandchild]
        assert {child.pid, grandchild} <= {process.pid for process in find_children(recursive=True)}
        assert [process.pid for process in compat.children_of(Path("import subprocess"))] == [child.pid]
        psutil.Process(grandchild).kill()
    assert find_children(child.pid) == []


def test_a_run_ends_well_where_other_processes_are_hidden(hidden: None, tmp_path: Path) -> None:
    assert raysim.run(SMALL, out=tmp_path / "run", local=True).status == "done"
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["peak_memory_bytes"] > 2**20


def test_a_failed_measurement_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise psutil.AccessDenied(1)

    for name in ("children", "memory_info", "memory_full_info"):
        monkeypatch.setattr(psutil.Process, name, refuse)
    with Footprint() as footprint:
        footprint.sample()
    assert footprint.peak_bytes == 0
    assert own_peak().pid == os.getpid()


def test_without_room_for_a_thread_a_run_is_measured_at_its_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    footprint = Footprint()

    def refuse() -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(footprint._thread, "start", refuse)
    with footprint:
        pass
    assert footprint.peak_bytes > 2**20


def test_without_a_home_a_run_that_needs_no_files_works(homeless: None, tmp_path: Path) -> None:
    digits = {**SMALL, "dataset": {"name": "digits"}}
    assert raysim.run(digits, out=tmp_path / "run", local=True).status == "done"
    assert find_home() is None
    assert not compat._has_token()


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"root": "~/data"}, "dataset.root"),
        ({"name": "image_folder", "path": "~/p", "size": 8}, "dataset.path"),
        ({"name": "npz", "path": "~/p"}, "dataset.path"),
        ({"name": "csv", "path": "~/p", "target": "y"}, "dataset.path"),
        ({"name": "text_jsonl", "path": "~/p"}, "dataset.path"),
        ({"name": "image_list", "path": "x", "train": "~/p", "test": "x", "size": 8}, "dataset.train"),
    ],
)
def test_without_a_home_the_key_with_a_tilde_is_named(keys: dict[str, object], key: str, homeless: None) -> None:
    spec = load({**SMALL, "dataset": {"name": "digits"} | keys}).dataset
    found = keys.get(key.partition(".")[2])
    with pytest.raises(raysim.ConfigError, match=rf"^{key}: found {found}, but this user has no home folder: HOME is"):
        load_dataset(spec.function(), spec.root, False, spec.keys())


def test_without_a_home_a_dataset_that_needs_files_says_where_to_put_them(homeless: None) -> None:
    with pytest.raises(raysim.ConfigError, match=r"^this user has no home folder for datasets; set dataset.root or"):
        raysim.run({**SMALL, "dataset": {"name": "mnist"}}, local=True)
    assert choose_root("/data") == ("dataset.root", Path("/data"))


def test_weights_below_a_missing_home_are_named(homeless: None) -> None:
    with pytest.raises(raysim.ConfigError, match=r"^model.weights: found ~/w.pt, but this user has no home folder"):
        find_weights("~/w.pt")
    with pytest.raises(raysim.ConfigError, match=r"^x: found ~no-such-user/y, but"):
        expand("x", "~no-such-user/y")
    assert load(SMALL).name == "small"
