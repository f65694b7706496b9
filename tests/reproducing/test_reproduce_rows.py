"""The rows of papers that raysim can run: their configs, their names, their data, and what was measured of them."""

import gzip
import json
import math
import struct
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import pytest

from raysim.cli import main
from raysim.config import load
from raysim.data import DOWNLOADS
from raysim.reports.published import PublishedPaper, list_papers, load_paper
from raysim.reports.quantity_tables import ACCURACY
from raysim.reports.statistics import interval_of_mean
from raysim.reproducing.listing import describe_values
from raysim.reproducing.measured import read_packed_rows, read_rows_below
from raysim.reproducing.needs import DataSearch
from raysim.reproducing.rows import PaperRow, find_rows, list_rows, make_sweep
from raysim.sweeps.grid import expand_sweep

ROOT = Path(__file__).parents[2]
T_2 = 4.302652729911275  # Student's t with 2 degrees of freedom, which 5% exceed on both sides


def only(name: str, setting: str, *sweeps: str, methods: tuple[str, ...] = ()) -> PublishedPaper:
    """A paper with one of its settings, some of its methods and sweeps, so that its rows are quickly made."""
    paper = load_paper(name)
    kept = methods or tuple(paper.methods)
    tables = [
        column.model_copy(update={"cells": {method: cell for method, cell in column.cells.items() if method in kept}})
        for column in paper.tables
        if column.setting == setting
    ]
    changes = {"settings": {setting: paper.settings[setting]}, "tables": tables, "sweeps": [*sweeps]}
    return paper.model_copy(update=changes)


@pytest.fixture(scope="module")
def special() -> list[PaperRow]:
    return list_rows(load_paper("special"))


def test_rows_are_the_methods_that_raysim_has_in_each_setting(special: list[PaperRow]) -> None:
    """Table 1 has seven methods in four settings; SR-FDIL and pFedDIL are none of raysim's."""
    assert [row.number for row in special] == [*range(1, 21)]
    assert [row.name for row in special[10:15]] == [
        f"PACS/{method}" for method in ("FedCIL", "MFCL", "FLwF-2T", "SPECIAL-C", "SPECIAL")
    ]


def test_a_row_has_what_the_paper_states_and_the_config_what_it_leaves_open(special: list[PaperRow]) -> None:
    """The paper has lambda 0.05 and 30 rounds on PACS; the size 64 of the images is the config's alone."""
    row = special[14]
    assert row.config is not None
    wanted = {"lam": 0.05, "global_rate": "1/task"}
    assert dict(row.config.methods["special"]).items() >= wanted.items()
    assert row.config.training.rounds_per_task == 30
    assert [domain.keys()["size"] for domain in row.config.domains or ()] == [64] * 4
    assert row.departures(load_paper("special")) == []
    source, overrides = make_sweep(row, "special", 2)
    _, cells = expand_sweep(source, overrides)
    assert [cell.config.seed for cell in cells] == [25, 225]
    assert cells[0].config.methods == row.config.methods


def test_where_raysim_refuses_a_stated_key_all_rows_have_the_configs_value() -> None:
    """FedTrack needs plain SGD, the paper states Adam, and the config has SGD with 0.05. FedAvg alone takes Adam."""
    setting = "Split-CIFAR100 class-incremental IID"
    paper = only("c_flag", setting, methods=("Finetune-FL", "FedTrack"))
    rows = list_rows(paper)
    assert [row.method for row in rows] == ["Finetune-FL", "FedTrack"]
    for row in rows:
        assert row.config is not None
        assert (row.config.training.optimizer.name, row.config.training.optimizer.lr) == ("sgd", 0.05)
        assert row.departures(paper) == [
            "training.optimizer.name is 'sgd', in the paper 'adam'",
            "training.optimizer.lr is 0.05, in the paper 0.0001",
        ]
    (alone,) = list_rows(only("c_flag", setting, methods=("Finetune-FL",)))
    assert alone.departures(paper) == []


@pytest.mark.parametrize("text", ["15", "PACS/SPECIAL", "pacs / special", "Pacs/Special", "PACS/_special"])
def test_a_row_is_found_by_its_number_and_its_name(special: list[PaperRow], text: str) -> None:
    assert find_rows(special, text, "special") == [special[14]]


def test_a_setting_or_a_method_stands_for_all_of_its_rows(special: list[PaperRow]) -> None:
    assert [row.number for row in find_rows(special, "PACS", "special")] == [11, 12, 13, 14, 15]
    assert [row.number for row in find_rows(special, "SPECIAL-C", "special")] == [4, 9, 14, 19]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (
            ["specail"],
            "raysim reproduce specail: found no figures of such a paper, allowed: c_flag, fed_a_gem, re_fed, sp",
        ),
        (
            ["special", "21"],
            "special 21: found no such row; see raysim reproduce special; allowed: a number from 1 to 20, or SETTING",
        ),
        (["special", "PACS/SPECAIL"], "did you mean 'PACS/SPECIAL'?"),
        (
            ["special", "SPECIAL"],
            "SPECIAL: found 4 rows, allowed: one of 5 (Digit-10/SPECIAL), 10 (VLCS/SPECIAL), 15 (",
        ),
        (
            ["special", "15"],
            "15 (PACS/SPECIAL): the dataset image_folder PACS/photo is missing (dataset.path: there is no",
        ),
        (["special", "15", "--seeds", "99"], "--seeds: found 99, allowed: at most 3, the seeds of these rows"),
        (["special", "15", "--hours", "nan"], "--hours: found nan, allowed: a number > 0"),
        (
            ["special", "15", "--hours", "1"],
            "--hours 1: the hours of no row are known, for the reasons above",
        ),
    ],
)
def test_wrong_input_is_one_line_with_what_to_do(
    argv: list[str],
    words: str,
    special: list[PaperRow],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("RAYSIM_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("raysim.reproduce_command.list_rows", lambda paper: special)
    assert main(["reproduce", *argv]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
    assert not (tmp_path / "runs").exists()


def test_papers_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == list_papers() == ["c_flag", "fed_a_gem", "re_fed", "special"]


def test_the_interval_of_a_mean() -> None:
    """1, 2 and 3 have mean 2 and deviation 1: 2 -+ 4.3027 / sqrt 3."""
    assert interval_of_mean([1.0, 2.0, 3.0]) == pytest.approx((2 - T_2 / math.sqrt(3), 2 + T_2 / math.sqrt(3)))
    assert interval_of_mean([1.0]) is None


def test_packed_results_of_the_same_config_are_those_of_the_row_at_the_papers_size() -> None:
    """The values are computed here from the packed file's own lines."""
    paper = only("fed_a_gem", "rotated-MNIST", "sweeps/fed_a_gem_full", methods=("FL", "FL w/ Fed-A-GEM"))
    rows = list_rows(paper)
    assert [(row.name, row.source) for row in rows] == [
        ("rotated-MNIST/FL", "rotated_mnist"),
        ("rotated-MNIST/FL w/ Fed-A-GEM", "rotated_mnist"),
    ]
    with gzip.open(ROOT / "results/fed_a_gem_full.jsonl.gz") as file:
        runs = [json.loads(line) for line in file][1:]
    by_method = {
        name: [
            100 * run["summary"]["evaluation"]["domain_il"]["average_accuracy"] for run in runs if same(run, methods)
        ]
        for name, methods in (("FL", []), ("FL w/ Fed-A-GEM", ["fed_a_gem"]))
    }
    assert all(len(values) == 3 for values in by_method.values())
    measured, missing = read_packed_rows(rows)
    assert missing == []
    for row in rows:
        values = by_method[row.method]
        mean, half = fmean(values), T_2 * stdev(values) / math.sqrt(3)
        (line, *_) = describe_values(paper, row, measured[row], all_metrics=False)
        assert f", here {mean:.2f} ({mean - half:.2f} to {mean + half:.2f}), 3 seeds: agrees" in line
    assert len([*describe_values(paper, rows[0], measured[rows[0]], all_metrics=False)]) == 1  # FL claims no gain
    gain = fmean(a - b for a, b in zip(by_method["FL w/ Fed-A-GEM"], by_method["FL"], strict=True))
    (_, line) = describe_values(paper, rows[1], measured[rows[1]], all_metrics=False)
    assert f"paper +11.44, here +{gain:.2f} (" in line  # 79.46 - 68.02
    assert line.endswith(": supported")


def same(run: dict[str, dict[str, object]], methods: list[str]) -> bool:
    return run["summary"]["methods"] == methods


def test_results_that_are_not_here_are_named(
    special: list[PaperRow], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    paper = only("fed_a_gem", "rotated-MNIST", "sweeps/fed_a_gem_full", methods=("FL",))
    monkeypatch.setattr("raysim.reproducing.measured.RESULTS", tmp_path)
    assert read_packed_rows(list_rows(paper)) == ({}, ["sweeps/fed_a_gem_full"])


def copy_runs(name: str, folder: Path, begin: str, **ends: str) -> Path:
    """Copy the packed runs below a folder of a sweep, with the statuses of some of them."""
    with gzip.open(ROOT / f"results/{name}.jsonl.gz") as file:
        head, *runs = [json.loads(line) for line in file]
    kept = [run for run in runs if run["path"].startswith(begin)]
    for run in kept:
        run["summary"]["status"] = ends.get(run["path"].split("/")[-1].replace("-", "_"), "done")
    folder.mkdir(parents=True)
    (folder / "runs.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, [head, *kept])).encode()))
    return folder


def test_rows_of_the_same_config_have_the_runs_of_their_own_directories(tmp_path: Path) -> None:
    """A paper prints FedAvg under two names. Both were run; a run that failed is counted beside the seeds."""
    paper = only("fed_a_gem", "rotated-MNIST", methods=("FL",))
    cells = [column.model_copy(update={"cells": {**column.cells, "FL again": (68.0, 3.0)}}) for column in paper.tables]
    paper = paper.model_copy(update={"methods": {**paper.methods, "FL again": {}}, "tables": cells})
    one, other = list_rows(paper)
    directories = {
        one: copy_runs("fed_a_gem_full", tmp_path / "a", "FL/", seed_1="diverged"),
        other: copy_runs("fed_a_gem_full", tmp_path / "b", "FL/"),
    }
    found = read_rows_below({one: directories[one]}, [one])
    assert ", 2 seeds (1 diverged): " in next(describe_values(paper, one, found[one]))
    found = read_rows_below(directories, [one, other])
    assert [row.method for row in found] == ["FL", "FL again"]


@pytest.mark.parametrize(
    ("number", "sign", "text"), [(-0.001, False, "0.00"), (-0.001, True, "+0.00"), (-0.01, False, "-0.01")]
)
def test_what_rounds_to_zero_has_no_minus(number: float, sign: bool, text: str) -> None:
    assert ACCURACY.show(number, sign) == text


def test_trials_on_validation_samples_are_not_compared_with_a_paper(tmp_path: Path) -> None:
    (row,) = list_rows(only("fed_a_gem", "rotated-MNIST", methods=("FL",)))
    trials = copy_runs("c_flag_cifar100", tmp_path / "a", "validation/FedAvg")
    assert read_rows_below({row: trials}, [row]) == {}
    runs = copy_runs("c_flag_cifar100", tmp_path / "b", "FedAvg")
    assert [*read_rows_below({row: runs}, [row])] == [row]


def test_a_sweeps_row_is_of_the_setting_that_fits_best() -> None:
    """Memories of 500 are the setting `buffer of 500`; those of 2,000 are of none, and depart from that of 200."""
    paper = load_paper("fed_a_gem")
    names = ("sequential-CIFAR100", "sequential-CIFAR100, buffer of 500")
    settings = {name: paper.settings[name].model_copy(update={"base": None}) for name in names}
    tables = [column for column in paper.tables if column.setting in names]
    changes = {"settings": settings, "tables": tables, "sweeps": ["sweeps/fed_a_gem_cifar100_buffers"]}
    rows = list_rows(paper.model_copy(update=changes))
    assert [(row.setting, row.method, row.changes["memory.capacity"]) for row in rows] == [
        (names[0], "FL+DER", ["2000"]),
        (names[0], "FL+DER w/ Fed-A-GEM", ["2000"]),
        (names[1], "FL+DER", ["500"]),
        (names[1], "FL+DER w/ Fed-A-GEM", ["500"]),
    ]
    source, overrides = make_sweep(rows[3], "fed_a_gem", None)
    _, cells = expand_sweep(source, overrides)
    assert [(cell.config.seed, cell.config.memory.capacity, [*cell.config.methods]) for cell in cells] == [
        (seed, 500, ["der", "fed_a_gem"]) for seed in (0, 1, 2)
    ]


def test_data_are_found_or_not_and_a_file_of_the_name_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYSIM_DATA", str(tmp_path))
    config = load("rotated_mnist")
    found = DataSearch().find(config)
    assert [*found.missing] == ["mnist"]
    assert str(found) == f"mnist: not found in {tmp_path}; a run gets 12 MB, or before it: raysim download mnist"
    images, labels = np.zeros((4, 28, 28), np.uint8), np.arange(4)
    np.savez(tmp_path / "mnist.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    found = DataSearch().find(config)
    assert found.changes == {"dataset.name": "npz", "dataset.path": "mnist.npz"}
    write_mnist(tmp_path, 4)
    found = DataSearch().find(config)
    assert (str(found), found.changes) == ("mnist: found", {})


def test_missing_data_say_how_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is downloaded has a command each, and the size of all: as the table of downloads has them."""
    monkeypatch.setenv("RAYSIM_DATA", str(tmp_path))
    domains = {"kind": "domain_incremental", "tasks": 2, "shift": {"domains": ["mnist", "usps"]}}
    config = load("rotated_mnist", [{"dataset": {"name": "mnist"}, "scenario": domains}])
    size = DOWNLOADS["mnist"][1] + DOWNLOADS["usps"][1]
    ways = f"; a run gets {size} MB, or before it: raysim download mnist; raysim download usps"
    assert str(DataSearch().find(config)) == f"mnist, usps: not found in {tmp_path}{ways}"
    own = load("rotated_mnist", [{"dataset": {"name": "npz", "path": "own.npz"}}])
    assert str(DataSearch().find(own)).endswith(
        f": not found in {tmp_path}; the head of its config says where it is from"
    )


def write_mnist(root: Path, count: int) -> None:
    """Write images that show their label as a bar, in MNIST's files."""
    raw = root / "MNIST" / "raw"
    raw.mkdir(parents=True)
    labels = (np.arange(count) % 10).astype(np.uint8)
    images = np.zeros((count, 28, 28), np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[2 * label : 2 * label + 6, 4:24] = 200
    for part in ("train", "t10k"):
        for name, array in (("images-idx3", images), ("labels-idx1", labels)):
            head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
            (raw / f"{part}-{name}-ubyte").write_bytes(head + array.tobytes())


@pytest.mark.soak
def test_a_row_is_run_and_stands_beside_the_paper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two rows, one seed each, on 200 images: the accuracies printed are those of the runs' own summaries."""
    write_mnist(tmp_path / "data", 200)
    monkeypatch.setenv("RAYSIM_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    paper = only("fed_a_gem", "rotated-MNIST", "sweeps/fed_a_gem_full", methods=("FL", "FL w/ Fed-A-GEM"))
    monkeypatch.setattr("raysim.reproduce_command.load_paper", lambda name, where: paper)
    given = ["reproduce", "fed_a_gem", "--local", "--quiet", "--seeds", "1", "training.rounds_per_task=1"]
    assert main([*given, "--hours", "5"]) == 0
    out = capsys.readouterr().out
    summaries = [json.loads(file.read_text()) for file in tmp_path.glob("runs/**/summary.json")]
    means = {len(one["methods"]): 100 * one["evaluation"]["domain_il"]["average_accuracy"] for one in summaries}
    assert len(summaries) == len(means) == 2
    assert f"paper 79.46 ± 4.10, here {means[1]:.2f}, 1 seed: not judged" in out
    assert f"paper 68.02 ± 3.10, here {means[0]:.2f}, 1 seed: not judged" in out
    assert f"paper +11.44, here {means[1] - means[0]:+.2f}" in out
    assert "in raysim's packed results: Table 1, domain-IL average accuracy: paper 68.02 ± 3.10, here 61.95" in out
    assert out.count("departs: training.rounds_per_task is 1, in the paper 20") == 2
    assert main([*given[:2], "1", *given[2:]]) == 0  # done already: nothing runs, and the comparison is the same
    assert f"here {means[0]:.2f}, 1 seed: not judged" in capsys.readouterr().out


@pytest.mark.soak
@pytest.mark.parametrize("name", ["c_flag", "fed_a_gem", "re_fed"])
def test_rows_have_names_of_their_own_and_few_are_refused(name: str) -> None:
    """iCaRL's memory is per client and C-FLAG's paper states one per task; CFeD needs samples without labels."""
    paper = load_paper(name)
    rows = list_rows(paper)
    refused = {row.method.removesuffix(" w/ Fed-A-GEM") for row in rows if row.problem}
    assert refused == {"c_flag": {"iCARL-FL"}, "fed_a_gem": {"CFeD"}, "re_fed": set()}[name]
    assert len({row.folder for row in rows}) == len(rows)
    assert all(find_rows(rows, row.name, name) == [row] for row in rows)
    assert {sweep for row in rows for sweep in row.measured_in} == set(paper.sweeps)
    measured, _ = read_packed_rows(rows)
    assert {row.name for row in rows if row.measured_in} == {row.name for row in measured}
