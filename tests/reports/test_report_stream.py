"""A report has the picture of its runs' stream, where the data are here and nothing foreign is imported."""

from pathlib import Path

import pytest
from made_runs import make_run

from raysim.config.yaml_text import read_yaml, to_yaml
from raysim.reports.content import Report
from raysim.reports.stream import of_settings
from raysim.reports.write import write_report
from raysim.system.version import VERSION


def report_on(folder: Path) -> tuple[Report, str]:
    report = write_report(folder, folder / "out")
    return report, (folder / "out" / "report.html").read_text()


def streams(report: Report) -> list[str | None]:
    """The file of each setting's picture, or the line in its place."""
    notes = [next((note for note in section.notes if "stream" in note), None) for section in report.sections]
    return [one.stream.stem if one.stream else note for one, note in zip(report.sections, notes, strict=True)]


def change(run: Path, key: str, value: object) -> None:
    """Change a top-level key of a run's config.yaml without validating it."""
    values = {**read_yaml(run / "config.yaml").values, key: value}
    (run / "config.yaml").write_text(to_yaml(values))


def test_the_picture_is_next_to_what_was_run(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    report, page = report_on(tmp_path)
    assert streams(report) == ["1-stream"]
    caption = "The stream of 3 clients over 4 rounds: domain-incremental (permutation)"
    folded = page[page.index('id="setting-1-what"') : page.index('id="setting-1-commands"')]
    assert 0 < folded.index(caption) < folded.index("What was run</p>")
    markdown = (tmp_path / "out" / "report.md").read_text()
    assert 0 < markdown.index("| methods |") < markdown.index("What was run") < markdown.index("(plots/1-stream.svg)")


def test_settings_with_the_same_stream_share_its_picture(tmp_path: Path) -> None:
    """The learning rate does not change the stream; the number of rounds does."""
    make_run(tmp_path / "a")
    make_run(tmp_path / "b", {"training.optimizer.lr": 0.5})
    make_run(tmp_path / "c", {"training.rounds_per_task": 5})
    report, _ = report_on(tmp_path)
    assert sorted(map(str, streams(report))) == ["1-stream", "3-stream", "The stream is that of setting 1."]
    pages = [(tmp_path / "out" / path).read_text() for _, path in report.pages]
    line = 'The stream is that of <a href="made.html">setting 1</a>.'
    assert sorted(page.count(line) for page in pages) == [0, 0, 1]


def test_where_the_data_are_gone_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("RAYSIM_DATA", str(tmp_path / "data"))
    make_run(tmp_path / "run", {"dataset": {"name": "mnist"}, "model": {"name": "mlp"}})
    report, _ = report_on(tmp_path)
    assert streams(report) == [None]
    assert not [line for line in report.left_out if "its stream" in line]


def test_custom_components_of_a_runs_config_are_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "foreign.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w')\n")
    monkeypatch.syspath_prepend(tmp_path)
    change(make_run(tmp_path / "run"), "partition", {"kind": "foreign:partition"})
    report, _ = report_on(tmp_path)
    assert streams(report) == [None]
    assert not (tmp_path / "imported").exists()
    assert not any("its stream" in line for line in report.left_out)


def test_a_config_of_another_version_names_the_version(tmp_path: Path) -> None:
    """Runs of `make_run` are of 0.1.0."""
    change(make_run(tmp_path / "a"), "later_key", 3)
    (line,) = [line for line in report_on(tmp_path)[0].left_out if "its stream: " in line]
    assert "unknown key 'later_key'" in line
    assert line.endswith(f"raysim 0.1.0 wrote this run, and this is raysim {VERSION}: install that version")


def test_what_takes_long_is_left_to_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images that must be decoded, and more streams than a report has."""
    monkeypatch.setattr(of_settings, "MOST", 1)
    change(make_run(tmp_path / "a"), "dataset", {"name": "image_folder", "path": "nowhere", "size": 8})
    make_run(tmp_path / "b", {"clients.count": 4})
    report, _ = report_on(tmp_path)
    assert streams(report) == [None, None]
    said = sorted(line.partition("its stream: ")[2] for line in report.left_out if "its stream: " in line)
    draw = "`raysim show {}/config.yaml` draws it"
    assert said == [
        f"a report has at most 1; {draw.format(tmp_path / 'b')}",
        f"reading image_folder takes long; {draw.format(tmp_path / 'a')}",
    ]
