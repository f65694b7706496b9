"""Downloads: whole or not at all, said how far they are, and `raysim download`."""

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from raysim.cli import main
from raysim.data import downloading
from raysim.data.downloading import staged_download
from raysim.data.mnist import mnist
from raysim.system.errors import ConfigError
from raysim.system.progress import progress_told

datasets = pytest.importorskip("torchvision.datasets")


def tree(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def test_files_take_their_places_when_all_are_there(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "set").mkdir(parents=True)
    (root / "set" / "a.gz").write_text("old")
    (root / "notes.txt").write_text("mine")
    with staged_download("x", root, "set/", 1) as folder:
        assert tree(folder) == ["set", "set/a.gz"]  # the archive that is there already
        (folder / "set" / "b").write_text("new")
        (folder / "deep" / "er").mkdir(parents=True)
        (folder / "deep" / "er" / "c").write_text("new")
        assert not (root / "set" / "b").exists()
    assert tree(root) == ["deep", "deep/er", "deep/er/c", "notes.txt", "set", "set/a.gz", "set/b"]
    assert (root / "set" / "a.gz").read_text() == "old"
    assert not (root / "set" / "a.gz").is_symlink()


def test_what_breaks_off_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(self: Any) -> None:
        Path(self.raw_folder).mkdir(parents=True)
        (Path(self.raw_folder) / "train-images-idx3-ubyte.gz").write_bytes(b"half of i")
        raise urllib.error.URLError("the network is gone")

    monkeypatch.setattr(datasets.MNIST, "download", download)
    with pytest.raises(ConfigError, match=r"downloading failed .*the network is gone"):
        mnist(tmp_path, True)
    assert tree(tmp_path) == []


def test_it_is_said_how_far_a_download_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1.5 of 6 MB have arrived when somebody looks; a link to what was there before does not count."""
    monkeypatch.setattr(downloading, "SECONDS", 0.01)
    (tmp_path / "old.gz").write_bytes(bytes(2**22))
    said: list[tuple[str, float | None]] = []

    def tell(text: str, share: float | None = None) -> None:
        said.append((text, share))

    with progress_told(tell), staged_download("x", tmp_path, "", 6) as folder:
        (folder / "file").write_bytes(bytes(1_500_000))
        while len(said) < 3:
            pass
        (folder / "unpacked").write_bytes(bytes(9_000_000))
        count = len(said)
        while len(said) < count + 3:
            pass
    assert said[0] == ("downloading x: 6 MB", 0.0)
    assert said[2] == ("downloading x: 2 of 6 MB", 0.25)
    assert said[-1] == ("downloading x: 6 of 6 MB", 1.0)  # what is unpacked counts for no more than all


CONFIG = {
    "name": "small",
    "dataset": {"name": "mnist"},
    "scenario": {"kind": "domain_incremental", "tasks": 2},
    "clients": {"count": 2},
    "model": {"name": "mlp"},
    "training": {"rounds_per_task": 1},
}


@pytest.fixture
def asked(tmp_path: Path) -> tuple[list[str], Path]:
    path, root = tmp_path / "small.yaml", tmp_path / "root"
    root.mkdir()
    path.write_text(json.dumps({**CONFIG, "dataset": {"name": "mnist", "root": str(root), "download": False}}))
    return ["download", str(path)], root


def test_the_command_downloads_what_is_missing(
    asked: tuple[list[str], Path], monkeypatch: pytest.MonkeyPatch, write_set: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    command, root = asked
    monkeypatch.setattr(datasets.MNIST, "download", lambda self: write_set(Path(self.raw_folder)))
    assert main(command) == 0
    assert capsys.readouterr().out == f"mnist: 6 training and 4 test samples in {root}\n"
    assert len(tree(root)) == 2 + 4  # two folders, four files
    monkeypatch.setattr(datasets.MNIST, "download", lambda self: pytest.fail("they are there"))
    assert main([*command, "dataset.unlabelled=mnist"]) == 0
    assert capsys.readouterr().out.count("mnist: 6 training") == 2


def test_without_a_network_it_is_one_line(
    asked: tuple[list[str], Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise urllib.error.URLError("no route to anywhere")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    command, root = asked
    assert main(command) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.count("\n") == 1
    assert errors.startswith(f"dataset mnist: no complete, sound files in {root} ")
    assert "downloading failed" in errors
    assert tree(root) == []
    assert main(["download", command[1] + ".gone"]) == 2
    assert "there is no such file" in capsys.readouterr().err
