"""The figures in the documentation's tables of results are those of the runs in results/, or the paper's.

A table of results stands below `<!-- results/NAME ... -->`, one or more packed sweeps, results/NAME.jsonl.gz. A row's
first cell is what the sweep calls it. Its figures are in %, or of another metric than accuracy with three decimals:
`mean ± standard deviation` over the sweep's seeds, of the metric that the column's heading names, or else of some
metric, or the one value of a single seed; what runs cost are means, or the median of their seconds. `paper:PAPER` in
the mark adds that paper's published figures.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean, median, stdev

import leaderboard_notes
import leaderboard_page
import pytest
from board import SWEEPS, read_board, rules_of
from leaderboard_notes import EARLIER
from pages import GUIDES, ROOT, names

from raysim.config.yaml_text import read_yaml
from raysim.reports.gains import gains_by_labels, show_change
from raysim.reports.grouping import group_runs
from raysim.reports.packed import SUFFIX, read_packed
from raysim.reports.published import load_paper
from raysim.reports.quantity_tables import ACCURACY
from raysim.reports.reading import find_runs

TABLE = re.compile(r"<!-- (?P<mark>results/[^\n]*) -->\n\n?(?P<rows>(?:\|[^\n]*\n)+)")
FIGURE = re.compile(r"-?\d+\.\d+(?: ± \d+\.\d+)?")
GAINS = re.compile(r"<!-- gains (?P<sweeps>results/[^\n]*) -->\n\n(?P<rows>(?:\|[^\n]*\n)+)")
GAIN = re.compile(r"-?\d+\.\d+ \(-?\d+\.\d+ to -?\d+\.\d+\)")
METRICS = ("average_accuracy", "forgetting", "backward_transfer")
NAMED = {"accuracy": ("average_accuracy", "mean"), "forgetting": ("forgetting",), "transfer": ("backward_transfer",)}
PROTOCOLS = {"class-IL": "class_il", "task-IL": "task_il"}
MEDIAN = "median of seconds"  # in columns that are headed "time", which have no means
OF_CLIENTS = ("mean", "worst", "std")
COSTS = [("bytes_up", 2**-20), ("bytes_down", 2**-20), ("bytes_up", 2**-10), ("seconds", 1.0)]  # MiB, KiB, seconds


def tables() -> Iterator[tuple[str, str, str]]:
    for page in GUIDES:
        for found in TABLE.finditer(page.read_text(encoding="utf-8")):
            yield names(page), found["mark"], found["rows"]


@cache
def measured(file: Path) -> dict[str, set[tuple[str, str, str]]]:
    """By every name that the sweep gives: figures, over the seeds, of the runs that have it; their metric, protocol."""
    values, costs = defaultdict(list), defaultdict(list)
    packed = read_packed(file)
    summaries = {run.path: run.summary for run in packed.runs}
    for folder, axes in packed.sweep.runs.items():
        # a run that diverged is kept, and counts in no mean
        if folder in summaries and (summary := summaries[folder]).status == "done":
            chosen = packed.sweep.chosen.get(folder)  # pages say "FedAvg, lr=0.1"
            tuned = {"methods": f"{axes['methods']}, {chosen}"} if chosen else {}
            others = tuple((axis, name) for axis, name in {**axes, **tuned}.items() if axis != "seed")
            for protocol, found in summary.evaluation.items():
                for metric in METRICS:
                    values[others, protocol, metric, "metric" in found].append(found[metric])
                values[others, protocol, "all rows", "metric" in found].append(all_rows(found["accuracy"]))
            for protocol, found in (summary.per_client or {}).items():
                for metric in OF_CLIENTS:
                    values[others, protocol, metric, False].append(found[metric])
            for cost, scale in COSTS:
                costs[others, cost, scale].append(scale * getattr(summary, cost))
            costs[others, "bytes", 2**-20].append((summary.bytes_up + summary.bytes_down) / 2**20)
    figures = defaultdict(set)
    for (others, protocol, metric, as_it_is), found in values.items():
        if None not in found:
            for _, name in others:
                scaled = found if as_it_is else [100 * value for value in found]  # as the tables scale
                figures[name].add((shown(scaled, 1, ".3f" if as_it_is else ".1f"), metric, protocol))
    for (others, cost, _), found in costs.items():
        for _, name in others:
            figures[name].add((format(fmean(found), ".1f"), cost, ""))
            if cost == "seconds":
                figures[name].add((format(median(found), ".1f"), MEDIAN, ""))
    return figures


def meant(heading: str, figures: set[tuple[str, str, str]]) -> set[str]:
    """The figures that a column may have: of the metric and the protocol that its heading names."""
    metrics = [metric for word, several in NAMED.items() if word in heading for metric in several]
    protocols = [protocol for word, protocol in PROTOCOLS.items() if word in heading]
    return {
        figure
        for figure, metric, protocol in figures
        if (not metrics or metric in metrics)
        and (not protocols or protocol in protocols)
        and metric != ("seconds" if "time" in heading else MEDIAN)
    }


def all_rows(accuracy: list[list[float]]) -> float | None:
    """The mean over the tasks of the average accuracy on the tasks so far, where there is a row for each task."""
    seen = [row[: task + 1] for task, row in enumerate(accuracy)]
    return None if any(None in row for row in seen) else fmean(map(fmean, seen))


def shown(values: list[float], scale: int, digits: str) -> str:
    """In %, say, with the sample standard deviation where there are several."""
    mean = format(scale * fmean(values), f"z{digits}")
    return mean if len(values) == 1 else f"{mean} ± {scale * stdev(values):{digits}}"


def of_the_paper(name: str) -> set[str]:
    cells = [cell for column in load_paper(name).tables for cell in column.cells.values()]
    return {f"{mean:.1f}" + ("" if std is None else f" ± {std:.1f}") for mean, std in cells}


@pytest.mark.parametrize(("page", "mark", "rows"), [*tables()])
def test_figures_are_those_of_the_runs(page: str, mark: str, rows: str) -> None:
    words = mark.split()
    papers = set().union(*(of_the_paper(word.removeprefix("paper:")) for word in words if word.startswith("paper:")))
    sweeps = [measured(ROOT / f"{word}{SUFFIX}") for word in words if word.startswith("results/")]
    head, _, *body = rows.splitlines()
    _, *headings = (cell.strip() for cell in head.strip("|").split("|"))
    checked = 0
    for row in body:
        label, *cells = (cell.strip() for cell in row.strip("|").split("|"))
        runs = set().union(*(figures.get(label, set()) for figures in sweeps))
        under = ""  # "class-IL: accuracy" is above the columns that follow, too
        for heading, cell in zip(headings, cells, strict=True):
            under = heading.rpartition(": ")[0] or under
            known = papers | meant(f"{under} {heading}", runs)
            for figure in FIGURE.findall(cell):
                assert figure in known, f"{page}, {label}, {heading}: {figure} is in no run of {mark}"
                checked += 1
    assert checked


def gains() -> Iterator[tuple[str, str, str]]:
    for page in GUIDES:
        for found in GAINS.finditer(page.read_text(encoding="utf-8")):
            yield names(page), found["sweeps"], found["rows"]


def reported(sweep: str) -> set[str]:
    """The gains in average accuracy, with their intervals, that the report of a sweep has."""
    accuracy = replace(ACCURACY, digits=1)
    settings = group_runs(find_runs([ROOT / sweep], []), [])
    tested = [gains_by_labels(one, accuracy, protocol) for one in settings for protocol in one.protocols]
    return {show_change(accuracy, one).partition(")")[0].replace("+", "") + ")" for by in tested for one in by.values()}


@pytest.mark.parametrize(("page", "sweeps", "rows"), [*gains()])
def test_gains_are_those_of_the_report(page: str, sweeps: str, rows: str) -> None:
    known = set().union(*map(reported, sweeps.split()))
    found = GAIN.findall(rows)
    assert found != []
    assert set(found) <= known, f"{page}: {set(found) - known} is in no report of {sweeps}"


def test_all_results_are_in_the_documentation() -> None:
    told = {word for _, mark, _ in tables() for word in mark.split()}
    told.add(f"results/{EARLIER}")  # tables of places, which are not figures of runs
    assert {f"results/{path.name.removesuffix(SUFFIX)}" for path in (ROOT / "results").iterdir()} <= told


def choices(sweep: str, setting: str | None = None) -> dict[str, object]:
    """By row: the hyperparameters of a packed sweep's test runs with seed 0."""
    packed = read_packed(ROOT / f"{sweep}{SUFFIX}")
    found = {}
    for run in packed.runs:
        names = packed.sweep.runs[run.path]
        if names["seed"] == "0" and "evaluation.split" not in names and names.get("setting") == setting:
            training = run.config["training"]
            found[names["methods"]] = (run.config["methods"], training["optimizer"], training["logits"])
    return found


def test_other_data_have_the_choices_of_their_source() -> None:
    moved = [setting for setting in read_board() if setting.source is not None]
    assert len(moved) == 5
    for setting in moved:
        found, wanted = (choices(f"results/{setting.sweep}", title) for title in (setting.title, setting.source))
        assert found.keys() == wanted.keys()
        assert found == wanted


def test_the_leaderboard_s_notes_have_the_choices_of_every_row() -> None:
    page = leaderboard_notes.PAGE.read_text(encoding="utf-8")
    tried = page.partition("## What was tried\n")[2].partition("\n## ")[0]
    rows = {line.split(" | ")[0].strip("| ") for line in tried.splitlines() if line.startswith("| ")}
    assert rows - {"method"} == {
        name for sweep in SWEEPS for name in read_yaml(rules_of(sweep)).values["tune"]["methods"]
    }
    assert "*" in tried


@pytest.mark.soak  # 12 s
def test_the_second_condition_costs_a_row_what_its_trials_say() -> None:
    """EWC on split digits: the best and the chosen of its trials on the held-out samples, by their paths."""
    packed = read_packed(ROOT / f"results/leaderboard_pixels{SUFFIX}")
    trials = {
        run.path.split("/")[2].removeprefix("EWC, "): 100 * run.summary.evaluation["class_il"]["average_accuracy"]
        for run in packed.runs
        if run.path.startswith("validation/digits-split/EWC, ") and "/scaled/" not in run.path
    }
    best, chosen = max(trials.values()), trials[packed.sweep.chosen["digits-split/EWC/seed-0"]]
    assert len(trials) == 12
    assert best - chosen > 3
    rankings = [one.ranking for one in read_board() if one.sweep == "leaderboard_pixels" and one.source is None]
    table = leaderboard_notes.render_costs(rankings, rules_of("leaderboard_pixels"))
    assert f"| digits-split | EWC | {best:.1f} | {chosen:.1f} | {chosen - best:.1f} |" in table.splitlines()


def test_the_leaderboard_is_the_report_s() -> None:
    assert leaderboard_page.PAGE.read_text(encoding="utf-8") == leaderboard_page.render_page(), "run `make docs`"


@pytest.mark.soak  # 18 s
def test_the_leaderboard_s_notes_are_those_of_now() -> None:
    assert leaderboard_notes.PAGE.read_text(encoding="utf-8") == leaderboard_notes.render_page(), "run `make docs`"
