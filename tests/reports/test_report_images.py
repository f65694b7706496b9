"""What methods drew: which pictures of which runs a report shows, where, and what it says of the others."""

import base64
import re
from pathlib import Path
from typing import Any

import pytest
from made_runs import make_run

from raysim.reports.drawn import show_images
from raysim.reports.grouping import ExperimentSetting, group_runs
from raysim.reports.reading import find_runs
from raysim.reports.write import write_report

ROUNDS = [{"round": number, "tasks": [1 + (number > 3)], "so_far": 1 + (number > 3)} for number in range(1, 7)]


def draw(run: Path, **rounds: list[int]) -> Path:
    """Give a run pictures by name and round; what a file has in it says where it is from."""
    for name, numbers in rounds.items():
        for number in numbers:
            file = run / "images" / f"round_{number:05d}" / f"{name}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(f"{run.name} {file.parent.name} {name}".encode())
    return run


def made(folder: Path, name: str, method: str, **more: Any) -> Path:
    return make_run(folder / name, {"methods": {method: {}}, "seed": more.pop("seed", 0)}, rounds=ROUNDS, **more)


def one_setting(folder: Path) -> ExperimentSetting:
    (setting,) = group_runs(find_runs([folder], []), [])
    return setting


@pytest.fixture
def shown(tmp_path: Path) -> Any:
    """A function: the captions and contents of what is shown of the runs, the note, and what was left out."""

    def show() -> tuple[list[tuple[str, str]], str, list[str]]:
        (tmp_path / "plots").mkdir()
        left_out: list[str] = []
        images, note = show_images(one_setting(tmp_path / "runs"), tmp_path / "plots", left_out)
        assert [image.file.name for image in images] == [f"1-drawn-{n}.png" for n in range(1, len(images) + 1)]
        return [(image.caption, image.file.read_text()) for image in images], note, left_out

    return show


def test_it_is_the_last_of_each_task_of_the_first_seed_of_each_method(tmp_path: Path, shown: Any) -> None:
    """Task 1 has rounds 1 to 3 and task 2 has rounds 4 to 6."""
    runs = tmp_path / "runs"
    draw(made(runs, "one", "ewc"), noise=[1, 2, 3, 4, 6], late=[1, 5])
    draw(made(runs, "two", "ewc", seed=1), noise=[3, 6])
    made(runs, "three", "scaffold")
    draw(made(runs, "four", "fedprox"), noise=[3])
    assert shown() == (
        [
            ("EWC, after round 1, in task 1: late", "one round_00001 late"),
            ("EWC, after round 5, in task 2: late", "one round_00005 late"),
            ("EWC, after task 1: noise", "one round_00003 noise"),
            ("EWC, after task 2: noise", "one round_00006 noise"),
            ("FedProx, after task 1: noise", "four round_00003 noise"),
        ],
        "",
        [],
    )


def test_clients_that_are_not_in_step_have_the_last_of_all_rounds(tmp_path: Path, shown: Any) -> None:
    run = draw(made(tmp_path / "runs", "one", "ewc"), noise=[1, 5])
    text = (run / "summary.json").read_text()
    (run / "summary.json").write_text(re.sub(r'"forgetting": [\d.]+', '"forgetting": null', text))
    assert shown()[0] == [("EWC, after round 5: noise", "one round_00005 noise")]


def test_of_too_many_some_are_shown_of_each_task_evenly(tmp_path: Path, shown: Any) -> None:
    """Fourteen names with two tasks each are 28 pictures; at most 24 / 14, that is one, of each name: the last."""
    draw(made(tmp_path / "runs", "one", "ewc"), **{f"noise_{n:02d}": [3, 6] for n in range(14)})
    images, note, _ = shown()
    assert [caption for caption, _ in images] == [f"EWC, after task 2: noise_{n:02d}" for n in range(14)]
    assert note == "14 of 28 pictures are shown. All are in the runs' directories."


def test_what_cannot_be_read_is_left_out_with_a_line(tmp_path: Path, shown: Any) -> None:
    first, second = (draw(made(tmp_path / "runs", name, name), noise=[3, 6]) for name in ("ewc", "scaffold"))
    (first / "rounds.jsonl").unlink()
    (second / "images" / "round_00003" / "noise.png").unlink()
    (second / "images" / "round_00003" / "noise.png").mkdir()
    images, _, left_out = shown()
    assert [content for _, content in images] == ["scaffold round_00006 noise"]
    assert [line.partition(str(tmp_path))[0] for line in left_out] == ["setting 1: what methods drew: "] * 2
    assert left_out[0].endswith("rounds.jsonl: No such file or directory")
    assert left_out[1].endswith("noise.png: Is a directory")


def test_they_are_inside_the_page_and_beside_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raysim.reports.write.draw_plots", lambda *given: ([], []))
    draw(made(tmp_path / "runs", "one", "ewc"), noise=[6])
    out = write_report(tmp_path / "runs", tmp_path / "out").out
    page, text = (out / "report.html").read_text(), (out / "report.md").read_text()
    (address,) = re.findall(r'<img src="data:image/png;base64,([^"]*)" alt="EWC, after task 2: noise">', page)
    assert base64.b64decode(address) == b"one round_00006 noise"
    assert '<details class="part" id="setting-1-drawn">\n<summary><h2>What methods drew</h2>' in page
    assert "### What methods drew\n\n![EWC, after task 2: noise](plots/1-drawn-1.png)\n" in text


def test_without_pictures_there_is_no_such_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raysim.reports.write.draw_plots", lambda *given: ([], []))
    made(tmp_path / "runs", "one", "ewc")
    out = write_report(tmp_path / "runs", tmp_path / "out").out
    assert "methods drew" not in (out / "report.html").read_text() + (out / "report.md").read_text()
