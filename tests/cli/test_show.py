"""`raysim show`: it writes a picture and prints its path; what is wrong is one line."""

from pathlib import Path

import pytest

from raysim.cli import main

Captured = pytest.CaptureFixture[str]


def test_it_prints_the_path_of_the_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["show", "split_digits", "training.rounds_per_task=2"]) == 0
    assert main(["show", "quickstart", "--out", "mine.svg"]) == 0
    assert capsys.readouterr() == ("split-digits-stream.svg\nmine.svg\n", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.svg", "split-digits-stream.svg"]
    assert "5 clients over 10 rounds" in (tmp_path / "split-digits-stream.svg").read_text()


def test_what_the_picture_leaves_out_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setenv("RAYSIM_DATA", str(tmp_path))
    assert main(["show", "rotated_mnist", "--output", str(tmp_path / "a.svg")]) == 0
    assert capsys.readouterr().err.startswith(f"The files of mnist are not in {tmp_path}.")


WRONG = {
    "no config": (["nothing"], "raysim comes with no config of this name"),
    "a wrong value": (["quickstart", "clients.count=0"], "clients.count=0: found 0"),
    "another ending": (["quickstart", "--out", "a.png"], "a.png: found the ending '.png', allowed: a file that ends"),
    "no folder": (["quickstart", "--out", "none/a.svg"], "none/a.svg: there is no folder none"),
    "a folder": (["quickstart", "--out", "folder.svg"], "folder.svg: Is a directory"),
    "data of unknown size": (["text"], "dataset.path: there is no file"),
    "methods that need a task": (["asynchronous_mnist", "methods={ewc: {}}"], "methods.ewc"),
    "a sweep": (["sweeps/methods"], "found a sweep"),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_is_one_line(mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAYSIM_DATA", str(tmp_path))
    (tmp_path / "folder.svg").mkdir()
    argv, said = WRONG[mistake]
    assert main(["show", *argv]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert said in err
