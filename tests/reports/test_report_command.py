"""`raysim report` as a user types it: what it prints, what it writes, and what it refuses in one line."""

import json
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path
from statistics import fmean, stdev

import pytest
from made_runs import hold, make_run
from matplotlib.figure import Figure
from rich.console import Console
from written_report import Written

import raysim
from raysim.cli import main
from raysim.config import load
from raysim.config.yaml_text import to_yaml
from raysim.reports.content import Report, Section
from raysim.reports.formats import FORMATS
from raysim.reports.grouping import group_runs
from raysim.reports.plots.style import ShownFigure
from raysim.reports.quantity_tables import ReportTable, tabulate_results
from raysim.reports.reading import find_runs
from raysim.reports.terminal import show_report, summarize_settings
from raysim.reports.write import PLOTS, write_report
from raysim.system.progress import progress_told

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # what is written is looked at elsewhere
    monkeypatch.setattr("raysim.reports.write.draw_plots", lambda *given: ([], []))


def test_a_real_run_is_reported_with_the_numbers_of_its_summary(written: Written) -> None:
    summaries = [json.loads((written.runs / name / "summary.json").read_text()) for name in ("real", "real-1")]
    accuracies = [100 * one["evaluation"]["domain_il"]["average_accuracy"] for one in summaries]
    (row,) = [line for line in written.elsewhere.splitlines() if line.split()[:2] == ["FedAvg", "2"]]
    assert f" {fmean(accuracies):.2f} ± {stdev(accuracies):.2f} " in row
    assert f" {summaries[0]['bytes_up'] / 2**20:.2f} ± 0.00 " in row


def test_the_config_in_a_command_is_the_run_s(written: Written) -> None:
    run = next(run for run in written.report.sections[0].setting.runs if run.directory.name == "real")
    assert run.command == "raysim run runs/real/config.yaml"
    again = load(written.out.parent / "runs/real/config.yaml")
    assert (again.seed, again.evaluation.every_rounds) == (0, 1)
    assert raysim.load(written.runs / "real").status == "done"


def test_bold_and_underlines_are_for_terminals(written: Written) -> None:
    cells = [cell for row in written.report.sections[0].tables[0].rows for cell in row]
    for style, marked in (("1", [c.text for c in cells if c.best]), ("4", [c.text for c in cells if c.second])):
        assert marked != []
        assert re.findall(rf"\x1b\[{style}m *(-?\d[^\x1b]*)\x1b\[0m", written.on_a_terminal) == marked
    assert "\x1b" not in written.elsewhere
    assert (
        "left out: runs/<b>failed</b>: found the status failed, counted: done (FedAvg, seed 0)\n" in written.elsewhere
    )
    assert written.elsewhere.endswith(
        "report: out/report.html (and .md, .tex, .csv, means.csv, plots/, figures/, tables/)\n"
    )
    assert "\nFedProx, compared with FedAvg, raises the average accuracy by " in written.elsewhere


def test_on_a_narrow_terminal_no_number_is_broken(written: Written) -> None:
    """The columns of numbers that do not fit are only in the page."""
    file = StringIO()
    show_report(written.report, Console(file=file, width=80))
    shown = file.getvalue().splitlines()
    begin, end = (next(k for k, line in enumerate(shown) if line.startswith(text)) for text in ("domain-IL", "Bold"))
    assert max(map(len, shown[begin:end])) <= 80
    (part,) = [" ".join(line.split()) for line in shown[begin:end] if line.startswith(" FedAvg ")]
    (whole,) = (line for line in written.elsewhere.splitlines() if line.split()[:2] == ["FedAvg", "2"])
    columns = 2 + len(part.removeprefix("FedAvg 2 ").split(" ± ")) - 1
    assert " ".join(whole.split()).startswith(part)
    headings = len(written.report.sections[0].tables[0].headings)
    assert f"and {headings - columns} more columns in report.html" in shown
    assert "…" not in file.getvalue()


def describe(directory: Path) -> Report:
    """A report without plots."""
    settings = group_runs(find_runs([directory], []), [])
    facts = ReportTable("What was run", ("", ""), [], texts=2)
    return Report(
        [Section(one, facts, [tabulate_results(one, "domain_il")], [], []) for one in settings], [], directory
    )


def test_of_many_settings_the_first_are_shown_each_with_its_best_method(tmp_path: Path) -> None:
    """In setting k, FedProx has (0.5 + k/100) on both tasks, and FedAvg 0.4: its best is 51.0 % in the first."""
    for number in range(1, 31):
        best, changed = 0.5 + number / 100, {"training.batch_size": number}
        make_run(tmp_path / f"{number:02}/FL", changed, {"domain_il": [[0.4, 0.4]] * 2})
        prox = {**changed, "methods": {"fedprox": {"mu": 0.1}}}
        make_run(tmp_path / f"{number:02}/prox", prox, {"domain_il": [[best, best]] * 2})
    report = replace(describe(tmp_path), left_out=[f"line {number}" for number in range(100)])
    file = StringIO()
    show_report(report, Console(file=file, width=80))
    shown = file.getvalue().splitlines()
    assert len(shown) < 40
    table = shown[: shown.index("and 10 more rows in report.html")]
    assert max(map(len, table)) <= 80
    assert shown[0] == "60 runs, 2 methods, 30 settings"
    rows = [line.split()[-3:] for line in shown if re.match(r" \d+: ", line)]
    assert rows == [["FedProx", "2", f"{50 + number}.0"] for number in range(1, 21)]
    assert "left out: 95 more in report.html" in shown
    assert shown[-1].startswith(f"report: {tmp_path / 'report.html'} ")


def test_equally_good_methods_are_counted(tmp_path: Path) -> None:
    for number, methods in enumerate(({}, {"fedprox": {"mu": 0.1}}, {"ewc": {}})):
        for size in (1, 2):
            make_run(tmp_path / f"{size}-{number}", {"training.batch_size": size, "methods": methods})
    (first, second) = summarize_settings(describe(tmp_path).sections).rows
    assert [cell.text for cell in first[1:]] == ["FedAvg and 2 more", "3", "65.0"]
    # settings of one name are told by the key in which they differ
    assert [row[0].text.partition(": ")[2] for row in (first, second)] == [
        f"{first[0].text.split()[1]} (batch_size={size})" for size in (1, 2)
    ]


def test_a_long_word_has_several_lines(tmp_path: Path) -> None:
    for count in (3, 4):
        make_run(tmp_path / f"{count}", {"name": "x" * 90, "clients.count": count})
    file = StringIO()
    show_report(describe(tmp_path), Console(file=file, width=80))
    table = file.getvalue().splitlines()[:-1]
    assert max(map(len, table)) <= 80
    assert "".join(table).count("x") == 2 * 90


def test_a_report_is_a_line_in_a_notebook(written: Written) -> None:
    counts = "4 runs, 2 methods, 1 setting; 1 more did not finish"
    assert repr(written.report) == f"<report of made: {counts}; out/report.html>"


def test_all_files_are_there(written: Written) -> None:
    assert sorted(path.name for path in written.out.iterdir()) == [
        "figures",
        "means.csv",
        "plots",
        "report.csv",
        "report.html",
        "report.md",
        "report.tex",
        "tables",
    ]
    drawn = {plot.stem for plot in written.report.sections[0].plots}
    for ending in ("pdf", "svg"):
        assert {path.stem for path in (written.out / "figures").glob(f"*.{ending}")} == drawn


@pytest.mark.usefixtures("_here")
def test_the_first_directory_is_where_the_report_goes(capsys: Captured) -> None:
    make_run(Path("a/run"))
    make_run(Path("b/run"), {"seed": 1})
    assert main(["report", "b", "a"]) == 0
    output, errors = capsys.readouterr()
    assert errors == ""
    assert "Setting 1: made\n" in output
    assert "domain-IL: mean ± standard deviation over seeds\n" in output
    assert Path("b/report.csv").read_text().count("\n") == 3
    assert main(["report", "b", "a", "--out", "new/one"]) == 0
    assert Path("new/one/report.csv").read_text() == Path("b/report.csv").read_text()


@pytest.mark.usefixtures("_here")
def test_a_report_may_be_made_again_in_its_place(capsys: Captured) -> None:
    make_run(Path("run"))
    for _ in range(2):
        assert main(["report", "run"]) == 0
    assert Path("run/report.md").exists()


@pytest.mark.usefixtures("_here")
def test_figures_of_an_earlier_report_are_deleted_and_no_others(capsys: Captured) -> None:
    make_run(Path("run"))
    for folder, name in (("plots", "4-a.svg"), ("figures", "ranks.pdf"), ("figures", "loss-000001.png")):
        Path("run", folder).mkdir(exist_ok=True)
        Path("run", folder, name).write_text("")
    Path("run/plots/mine.svg").write_text("")
    assert main(["report", "run"]) == 0
    left = [path for path in ("plots/4-a.svg", "figures/ranks.pdf") if Path("run", path).exists()]
    assert left == []
    assert Path("run/plots/mine.svg").exists()
    assert Path("run/figures/loss-000001.png").exists()  # a callback's


@pytest.mark.usefixtures("_here")
def test_a_remark_is_told_in_a_report_of_one_setting(capsys: Captured) -> None:
    make_run(Path("runs/FL"))
    remarks = {"FL": {"text": "of another paper", "ranked": False}}
    Path("runs/sweep.yaml").write_text(to_yaml({"name": "made", "runs": {"FL": {"methods": "FL"}}, "remarks": remarks}))
    assert main(["report", "runs"]) == 0
    words = "FL is not ranked: of another paper."
    assert words in capsys.readouterr().out
    assert words in Path("runs/report.md").read_text()


@pytest.mark.usefixtures("_here")
def test_what_is_wrong_is_told_in_one_line(capsys: Captured) -> None:
    make_run(Path("good"))
    make_run(Path("bad"), status="failed")
    Path("file").write_text("")
    Path("empty").mkdir()
    Path("taken/report.md").mkdir(parents=True)
    for argv, fragment in [
        ([], "required: DIR"),
        (["gone"], "gone: there is no such directory"),
        (["file"], "file: this is a file"),
        (["empty"], "empty: found no finished run"),
        (["bad"], "bad: found no finished run (1 left out; bad: found the status failed"),
        (["good", "--out", "file"], "--out file: file/plots: "),
        (["good", "--out", "file/below"], "--out file/below: "),
        (["good", "--out", "taken"], "--out taken: taken/report.md: Is a directory; allowed: a directory that can be"),
        (["good", "--against", "special_c"], "did you mean 'special'?"),
        (["good", "--against", "../published/special"], "allowed: c_flag, fed_a_gem, re_fed, special"),
        (["good", "--ou", "x"], "--ou"),
        (["good", "--compare", "FedAvg", "FedAvg"], "found 'FedAvg' and 'FedAvg', allowed: two different rows"),
    ]:
        assert main(["report", *argv]) == 2, argv
        output, errors = capsys.readouterr()
        assert (output, errors.count("\n")) == ("", 1)
        assert fragment in errors


@pytest.mark.usefixtures("_here")
def test_pairs_of_rows_are_compared_in_one_setting_and_in_several(capsys: Captured) -> None:
    """In each setting ER - EWC is 4 and 6 points: mean 5."""
    for size in (1, 2):
        for name, averages in (("er", (0.64, 0.66)), ("ewc", (0.60, 0.60))):
            for seed, average in enumerate(averages):
                changed = {"seed": seed, "methods": {name: {}}, "training.batch_size": size}
                make_run(Path(f"{size}/{name}/{seed}"), changed, {"domain_il": [[average, average]] * 2})
    for folders in (["1"], ["1", "2"]):
        assert main(["report", *folders, "--out", f"out{len(folders)}", "--compare", "ER", "EWC"]) == 0
        shown = capsys.readouterr().out
        assert shown.count("ER") >= 2
        assert shown.count("5.00 points") == len(folders)


class Terminal(StringIO):
    """A screen that keeps everything that was written to it."""

    def isatty(self) -> bool:
        return True


@pytest.mark.usefixtures("_here")
def test_a_terminal_is_told_how_far_it_is_and_a_pipe_is_not(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in (0, 1):
        make_run(Path(f"run/{seed}"), {"seed": seed})
    assert main(["report", "run"]) == 0
    assert "writing" not in capsys.readouterr().out
    screen = Terminal()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setenv("TERM", "xterm")
    assert main(["report", "run"]) == 0
    assert "writing report.html" in screen.getvalue()
    assert "domain-IL: mean ± standard deviation over seeds" in screen.getvalue()


def test_every_step_is_told(tmp_path: Path) -> None:
    """Two runs read; four plots of one setting: matrices, by task, forgetting, who holds what."""
    kinds = [*enumerate(PLOTS, 1)]
    for seed in (0, 1):
        hold(make_run(tmp_path / "runs" / str(seed), {"seed": seed}))
    told: list[tuple[str, float | None]] = []

    def tell(text: str, share: float | None = None) -> None:
        told.append((text, share))

    with progress_told(tell):
        report = write_report(tmp_path / "runs", tmp_path / "out", tell=tell)
    assert told == [
        ("reading runs: 1", None),
        ("reading runs: 2", None),
        ("setting 1 of 1: its stream", 0.0),
        *((f"setting 1 of 1: plots {k} of {len(PLOTS)}: {kind}", (k - 1) / len(PLOTS)) for k, kind in kinds),
        *((f"writing {name}", 1.0) for name in FORMATS),
    ]
    assert len(report.sections[0].plots) == 4


def test_a_figure_that_is_another_setting_s_is_there_once(tmp_path: Path) -> None:
    """Both settings deal the same samples to the same clients, and train on them at different rates."""
    for rate in (0.1, 0.2):
        matrix = [[rate, 0.0], [0.0, rate]]
        rounds = [{"tasks": [t], "evaluation": {"domain_il": row}} for t, row in enumerate(matrix, 1)]
        hold(make_run(tmp_path / f"runs/{rate}", {"training.optimizer.lr": rate}, {"domain_il": matrix}, rounds))
    first, second = write_report(tmp_path / "runs", tmp_path / "out").sections
    stems = [f"accuracy-{axis}" for axis in ("matrix", "after-task", "by-task", "bytes", "seconds")]
    stems.insert(2, "forgetting")
    assert [plot.stem for plot in second.plots] == [f"2-domain_il-{stem}" for stem in stems]
    assert [plot.stem for plot in first.plots][-1] == "1-who-holds-what"
    assert not (tmp_path / "out" / "plots" / "2-who-holds-what.svg").exists()
    line = second.notes[-1]
    assert line.endswith("seed 0. It is the same as setting 1's.")
    assert (tmp_path / "out" / "report.md").read_text().count("It is the same as setting 1") == 1
    page = (tmp_path / "out" / "settings" / "made-2.html").read_text()
    assert page.count('It is the same as <a href="made.html">setting 1</a>') == 1


def test_a_directory_without_finished_runs_leaves_the_report_that_is_there(tmp_path: Path) -> None:
    make_run(tmp_path / "bad", status="failed")
    out = tmp_path / "out"
    (out / "plots").mkdir(parents=True)
    (out / "report.html").write_text("an earlier one")
    with pytest.raises(raysim.ConfigError, match="found no finished run"):
        write_report(tmp_path / "bad", out)
    assert [path.name for path in sorted(out.iterdir())] == ["plots", "report.html"]
    assert (out / "report.html").read_text() == "an earlier one"


@pytest.mark.usefixtures("_here")
def test_from_python_the_package_is_called(tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "one")
    report = raysim.report("runs", tmp_path / "paper")
    assert [section.setting.tasks for section in report.sections] == [2]
    assert (tmp_path / "paper" / "report.html").is_file()
    drawn = raysim.figures(raysim.load("runs/one"))
    assert [name for name in drawn if name.endswith("accuracy-matrix")] == list(drawn)[:1]
    assert all(isinstance(figure, Figure) for figure in drawn.values())
    shown = drawn["1-domain_il-accuracy-matrix"]
    assert isinstance(shown, ShownFigure)
    assert shown._repr_png_().startswith(b"\x89PNG")
    with pytest.raises(raysim.ConfigError, match="found no finished run"):
        raysim.figures(tmp_path / "paper")


@pytest.mark.usefixtures("_here")
def test_a_pipe_stays_plain_where_colors_are_forced(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """Notebooks set FORCE_COLOR for the commands of their cells."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    for seed in (0, 1):
        make_run(Path(f"run/{seed}"), {"seed": seed})
    assert main(["report", "run"]) == 0
    output = capsys.readouterr().out
    assert "average" in output
    assert "\x1b" not in output
