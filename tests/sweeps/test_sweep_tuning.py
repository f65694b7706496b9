"""Values of an axis that are tuned: trials on validation samples first, then the best candidate with all seeds."""

import json
import math
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from carrying import BASE, carried_out, standings, statuses, tuned

from raysim.cli import main
from raysim.sweeps.cells import Cell, Remark
from raysim.sweeps.directory import plan_sweep, read_labels
from raysim.sweeps.grid import expand_sweep
from raysim.system.errors import ConfigError

Write = Callable[..., Path]

RATES = {"training.optimizer.lr": [1e30, 1e-9, 0.3]}  # the first diverges, the second learns nothing


def test_trials_have_one_seed_and_the_validation_split_and_runs_wait_for_them() -> None:
    rows = {"Prox": {"methods.fedprox.mu": [0.1, 1.0], "training.batch_size": 2}}
    _, cells = expand_sweep(tuned(rows), ())
    assert [(cell.folder, cell.decided) for cell in cells] == [
        ("validation/Prox, mu=0.1/seed-3", True),
        ("validation/Prox, mu=1.0/seed-3", True),
        ("ER/seed-3", True),
        ("ER/seed-4", True),
        ("Prox/seed-3", False),
        ("Prox/seed-4", False),
    ]
    trial, undecided = cells[1], cells[5]
    assert trial.labels == {"evaluation.split": "validation", "seed": "3", "methods": "Prox, mu=1.0"}
    assert (trial.config.seed, trial.config.evaluation.split, trial.config.training.batch_size) == (3, "validation", 2)
    assert trial.config.methods["fedprox"]["mu"] == 1.0
    assert undecided.labels == {"seed": "4", "methods": "Prox"}
    assert undecided.chosen == ""


def test_the_chosen_candidate_is_run_with_all_seeds_on_the_test_split() -> None:
    rows = {"Prox": {"methods.fedprox.mu": [0.1, 1.0]}}
    _, cells = expand_sweep(tuned(rows), (), lambda name, trial: float(str(trial.config.methods["fedprox"]["mu"])))
    first, second = cells[-2:]
    assert (first.folder, second.folder) == ("Prox/seed-3", "Prox/seed-4")
    assert second.labels == {"seed": "4", "methods": "Prox"}
    assert (second.decided, second.chosen, second.at_end) == (True, "mu=1.0", "mu=1.0")
    config = second.config
    assert (config.seed, config.evaluation.split, config.methods["fedprox"]["mu"]) == (4, "test", 1.0)


def test_lists_are_tried_in_all_combinations_and_every_axis_may_be_tuned() -> None:
    source = {
        "name": "try",
        "base": BASE,
        "grid": {"clients.count": [2, 3]},
        "tune": {"model": {"MLP": {"model.hidden": [[3], [4]], "training.batch_size": [2, 3]}}},
    }
    _, cells = expand_sweep(source, ())
    labels = [cell.labels["model"] for cell in cells if cell.config.clients.count == 3]
    assert labels == [f"MLP, hidden=[{h}], batch_size={b}" for h in (3, 4) for b in (2, 3)] + ["MLP"]


def test_keys_with_the_same_last_word_are_named_with_their_blocks() -> None:
    rows = {"Adam": {"training.optimizer.lr": [0.1, 0.2], "methods.fedadam.lr": [0.01, 0.02], "training.batch_size": 2}}
    _, cells = expand_sweep(tuned(rows), ["methods=Adam", "seed=3"])
    assert cells[1].labels["methods"] == "Adam, optimizer.lr=0.1, fedadam.lr=0.02"


def test_a_row_may_set_again_what_a_setting_sets_if_not_all_rows_do() -> None:
    source = tuned({"Wide": {"model.hidden": [[9], [8]]}})
    source["grid"] = {
        "seed": [3],
        "size": {"s": {"model": {"name": "mlp", "hidden": [2]}}},
        "methods": {"ER": {"er": {}}},
    }
    _, cells = expand_sweep(source, ())
    assert [cell.config.model.hidden for cell in cells if cell.decided] == [(9,), (8,), (2,)]
    with pytest.raises(ConfigError, match=r"methods: found the key model.hidden, which sets model.hidden of the axis"):
        expand_sweep({**source, "grid": {key: source["grid"][key] for key in ("seed", "size")}}, ())


def test_a_row_without_a_choice_has_no_trials() -> None:
    _, cells = expand_sweep(tuned({"Prox": {"methods.fedprox.mu": 0.1, "training.batch_size": [2]}}), ["methods=Prox"])
    assert [(cell.folder, cell.decided, cell.chosen) for cell in cells] == [
        ("Prox/seed-3", True, ""),
        ("Prox/seed-4", True, ""),
    ]


def test_narrowing_the_seeds_moves_no_trial() -> None:
    rows = {"Prox": {"methods.fedprox.mu": [0.1, 1.0]}}
    _, cells = expand_sweep(tuned(rows), ["seed=4", "methods=Prox"])
    assert [cell.folder for cell in cells] == [
        "validation/Prox, mu=0.1/seed-3",
        "validation/Prox, mu=1.0/seed-3",
        "Prox/seed-4",
    ]


def test_a_row_can_be_added_on_the_command_line() -> None:
    own = "tune.methods.Mine={methods.troubles:Pressing.round: [1, 2]}"
    _, cells = expand_sweep(tuned({}), ["methods=Mine", "seed=3", own])
    assert [cell.labels["methods"] for cell in cells] == ["Mine, round=1", "Mine, round=2", "Mine"]
    assert cells[1].config.methods["troubles:Pressing"]["round"] == 2


def test_remarks_are_about_the_runs_that_they_name(tmp_path: Path) -> None:
    remarks = [
        {"where": {"methods": "ER"}, "text": "one"},
        {"where": {"methods": ["ER", "Rate"], "training.local_epochs": 2}, "text": "two", "ranked": False},
    ]
    source = tuned({"Rate": {"training.optimizer.lr": [0.3]}}, remarks=remarks)
    source["grid"] = {**source["grid"], "seed": [3], "training.local_epochs": [1, 2]}
    ended = carried_out(source, tmp_path)
    found = {(*outcome.cell.labels.values(),)[-2:]: outcome.cell.remark for outcome in ended}
    assert found == {
        ("ER", "1"): Remark(text="one"),
        ("ER", "2"): Remark(text="one; two", ranked=False),
        ("Rate", "1"): None,
        ("Rate", "2"): Remark(text="two", ranked=False),
    }
    assert len(read_labels(tmp_path).remarks) == 3


def test_a_remark_about_one_seed_of_a_row_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"remarks.0.where: found seed, allowed: other axes; a remark is about a row"):
        expand_sweep(tuned({}, remarks=[{"where": {"methods": "ER", "seed": 4}, "text": "two"}]), ())


def test_combinations_that_are_skipped_are_no_runs() -> None:
    rows = {"Prox": {"methods.fedprox.mu": [0.1, 1.0]}}
    source = tuned(rows, skip=[{"methods": ["Prox"], "seed": 4}, {"methods": "ER", "seed": [3]}])
    _, cells = expand_sweep(source, ())
    assert [cell.folder for cell in cells if not cell.folder.startswith("validation")] == ["ER/seed-4", "Prox/seed-3"]
    assert len(cells) == 4


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a tuned sweep that was carried out; one of its trials diverged."""
    out = tmp_path_factory.mktemp("tuned") / "out"
    ended = carried_out(tuned({"Rate": RATES}), out)
    assert [outcome.cell.folder for outcome in ended if outcome.status != "done"] == [
        "validation/Rate, lr=1.0e+30/seed-3"
    ]
    return out


def accuracy(run: Path) -> float:
    return float(json.loads((run / "summary.json").read_text())["evaluation"]["class_il"]["average_accuracy"])


def test_the_best_on_validation_samples_is_run(swept: Path) -> None:
    idle, learns = (accuracy(swept / f"validation/Rate, lr={rate}/seed-3") for rate in ("1.0e-09", "0.3"))
    assert idle < learns  # else the choice below is no choice
    assert read_labels(swept).runs["Rate/seed-4"] == {"seed": "4", "methods": "Rate"}
    assert read_labels(swept).chosen == {"Rate/seed-3": "lr=0.3", "Rate/seed-4": "lr=0.3"}
    config = (swept / "Rate/seed-4/config.yaml").read_text()
    assert "lr: 0.3" in config
    assert "split: test" in config


def test_what_is_done_is_not_done_again_and_what_is_missing_is(swept: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(swept, tmp_path / "copy"))
    shutil.rmtree(out / "Rate/seed-4")
    before = (out / "Rate/seed-3/summary.json").stat().st_mtime_ns
    assert standings(tuned({"Rate": RATES}), out)["Rate/seed-4"] == "new"
    assert statuses(carried_out(tuned({"Rate": RATES}), out)).count("done") == 6
    assert (out / "Rate/seed-3/summary.json").stat().st_mtime_ns == before


def test_of_equal_candidates_the_first_is_chosen(tmp_path: Path) -> None:
    """Both rates are too small to change an answer."""
    carried_out(tuned({"Rate": {"training.optimizer.lr": [1e-9, 1e-10]}}), tmp_path, "methods=Rate", "seed=3")
    assert read_labels(tmp_path).chosen["Rate/seed-3"] == "lr=1.0e-09"


def test_of_many_combinations_as_many_are_tried_as_the_budget_has_with_every_item_as_often() -> None:
    """Of 6 x 4 combinations 12 are tried: each rate twice, and each mu three times."""
    lists = {"training.optimizer.lr": [2.0**-k for k in range(6)], "methods.fedprox.mu": [0.1, 1.0, 2.0, 3.0]}
    source = tuned({"Prox": lists}, search={"trials": 12})
    drawn = [cell for cell in expand_sweep(source, ["methods=Prox", "seed=3"])[1] if "evaluation.split" in cell.labels]
    assert set(Counter(cell.config.training.optimizer.lr for cell in drawn).values()) == {2}
    assert set(Counter(str(cell.config.methods["fedprox"]["mu"]) for cell in drawn).values()) == {3}
    again = expand_sweep(source, ["methods=Prox", "seed=4"])[1]
    assert {cell.folder for cell in drawn} <= {cell.folder for cell in again}
    whole = expand_sweep(tuned({"Prox": lists}, search={"trials": 24}), ["methods=Prox", "seed=3"])[1]
    assert len(whole) == 24 + 1


# by candidate and seed, as a trial's mu and its seed; of seed 3 alone "a" is the best, of both seeds it is "b"
RATINGS = {("a", "3"): 5.0, ("a", "4"): 1.0, ("b", "3"): 4.0, ("b", "4"): 4.0, ("c", "3"): 3.0, ("c", "4"): 9.0}
MU = {"a": 0.1, "b": 1.0, "c": 2.0}


def searched(ratings: dict[tuple[str, str], float], **search: int) -> tuple[list[str], str]:
    """The trials, as candidate and seed, and the chosen value, if trials have these ratings."""
    names = {mu: name for name, mu in MU.items()}

    def key(cell: Cell) -> tuple[str, str]:
        return names[float(str(cell.config.methods["fedprox"]["mu"]))], cell.labels["seed"]

    source = tuned({"Prox": {"methods.fedprox.mu": [*MU.values()]}}, search=search)
    _, cells = expand_sweep(source, ["methods=Prox"], lambda name, cell: ratings.get(key(cell)))
    return ["".join(key(cell)) for cell in cells if "evaluation.split" in cell.labels], cells[-1].chosen


def test_the_best_candidates_are_tried_again_with_further_seeds() -> None:
    assert searched(RATINGS) == (["a3", "b3", "c3"], "mu=0.1")
    # (5 + 1) / 2 < (4 + 4) / 2; c, which is third with the first seed, is no finalist of two and would win of three
    assert searched(RATINGS, finalists=2, seeds=2) == (["a3", "b3", "c3", "a4", "b4"], "mu=1.0")
    assert searched(RATINGS, finalists=3, seeds=2)[1] == "mu=2.0"
    # (5 + 3) / 2 = (4 + 4) / 2: the one that is ahead with the first seed, whatever the order of the list
    for first, second in (("a", "b"), ("b", "a")):
        equal = {(first, "3"): 4.0, (first, "4"): 4.0, (second, "3"): 5.0, (second, "4"): 3.0, ("c", "3"): 1.0}
        assert searched(equal, finalists=2, seeds=2)[1] == f"mu={MU[second]}"


def test_a_finalist_that_fails_with_another_seed_is_out_and_one_that_is_not_done_decides_nothing() -> None:
    failed = {**RATINGS, ("b", "4"): -math.inf}
    assert searched(failed, finalists=2, seeds=2)[1] == "mu=0.1"
    missing = {key: rating for key, rating in RATINGS.items() if key != ("b", "4")}
    assert searched(missing, finalists=2, seeds=2) == (["a3", "b3", "c3", "a4", "b4"], "")


def test_if_all_finalists_fail_the_next_candidates_are_finalists() -> None:
    failed = {**RATINGS, ("a", "4"): -math.inf, ("b", "4"): -math.inf}
    assert searched(failed, finalists=2, seeds=2) == (["a3", "b3", "c3", "a4", "b4", "c4"], "mu=2.0")
    missing = {key: rating for key, rating in failed.items() if key != ("c", "4")}
    assert searched(missing, finalists=2, seeds=2) == (["a3", "b3", "c3", "a4", "b4", "c4"], "")
    assert searched({**failed, ("c", "4"): -math.inf}, finalists=2, seeds=2)[1] == ""


def test_a_search_with_finalists_is_carried_out_to_its_end(tmp_path: Path) -> None:
    search = {"finalists": 2, "seeds": 2}
    ended = carried_out(tuned({"Rate": RATES}, search=search), tmp_path, "methods=Rate")
    assert [outcome.cell.folder for outcome in ended if outcome.status == "done"] == [
        "validation/Rate, lr=1.0e-09/seed-3",
        "validation/Rate, lr=0.3/seed-3",
        "validation/Rate, lr=0.3/seed-4",
        "validation/Rate, lr=1.0e-09/seed-4",
        "Rate/seed-3",
        "Rate/seed-4",
    ]
    assert {outcome.cell.chosen for outcome in ended} == {"", "lr=0.3"}


DARK = {"worst_of": {"dark": {"dataset.input_scale": 0.5}}}


def picked(ratings: dict[tuple[str, str, str], float], **search: object) -> tuple[list[str], str]:
    """The further trials of finalists, as candidate, seed and condition, and the chosen value."""
    names = {mu: name for name, mu in MU.items()}

    def key(cell: Cell) -> tuple[str, str, str]:
        name = names[float(str(cell.config.methods["fedprox"]["mu"]))]
        return name, cell.labels["seed"], cell.labels.get("search.worst_of", "")

    source = tuned({"Prox": {"methods.fedprox.mu": [*MU.values()]}}, search=search)
    _, cells = expand_sweep(source, ["methods=Prox"], lambda name, cell: ratings.get(key(cell)))
    return ["".join(key(cell)) for cell in cells if cell.trial][len(MU) :], cells[-1].chosen


def test_a_finalist_is_rated_by_its_worst_condition() -> None:
    """Least ratings: a min(9, 1) = 1, b min(7, 6) = 6. c, min(5, 5) = 5, is no finalist of two, and third of three.

    With two seeds the means of each condition count: a min((9 + 9) / 2, (1 + 13) / 2) = 7, b min(7, (6 + 6) / 2) = 6.
    """
    ratings = {("a", "3", ""): 9.0, ("b", "3", ""): 7.0, ("c", "3", ""): 5.0}
    ratings |= {("a", "3", "dark"): 1.0, ("b", "3", "dark"): 6.0, ("c", "3", "dark"): 5.0}
    assert picked(ratings, finalists=2, **DARK) == (["a3dark", "b3dark"], "mu=1.0")
    assert picked(ratings, finalists=3, **DARK)[1] == "mu=1.0"
    ratings |= {("a", "4", ""): 9.0, ("a", "4", "dark"): 13.0, ("b", "4", ""): 7.0, ("b", "4", "dark"): 6.0}
    further = ["a4", "a3dark", "a4dark", "b4", "b3dark", "b4dark"]
    assert picked(ratings, finalists=2, seeds=2, **DARK) == (further, "mu=0.1")


def test_a_finalist_that_fails_in_a_condition_is_out_and_one_that_waits_decides_nothing() -> None:
    ratings = {("a", "3", ""): 9.0, ("b", "3", ""): 7.0, ("c", "3", ""): 5.0, ("a", "3", "dark"): -math.inf}
    assert picked(ratings, finalists=2, **DARK) == (["a3dark", "b3dark"], "")
    assert picked({**ratings, ("b", "3", "dark"): 1.0}, finalists=2, **DARK)[1] == "mu=1.0"
    lost = {**ratings, ("b", "3", "dark"): -math.inf, ("c", "3", "dark"): 2.0}
    assert picked(lost, finalists=2, **DARK) == (["a3dark", "b3dark", "c3dark"], "mu=2.0")


def test_conditions_are_carried_out_and_resumed(tmp_path: Path) -> None:
    """Both candidates run in the condition, too, which takes precedence over the keys of all rows."""
    blind = {"blind": {"training.optimizer.lr": 1e-9}}
    source = tuned({"Rate": {"training.batch_size": [8, 16]}}, search={"finalists": 2, "worst_of": blind})
    folders = [cell.folder for cell in plan_sweep(source, ["methods=Rate"], tmp_path).to_do]
    assert folders == [f"validation/Rate, batch_size={size}/seed-3" for size in (8, 16)]
    ended = carried_out(source, tmp_path, "methods=Rate", "seed=3")
    further = [outcome.cell for outcome in ended if "search.worst_of" in outcome.cell.labels]
    assert [cell.folder.count("/blind/seed-3") for cell in further] == [1, 1]
    assert {cell.config.training.optimizer.lr for cell in further} == {1e-9}
    assert statuses(ended) == ["done"] * 5
    before = (tmp_path / further[0].folder / "summary.json").stat().st_mtime_ns
    shutil.rmtree(tmp_path / further[1].folder)
    found = standings(source, tmp_path, "methods=Rate", "seed=3")
    assert (found[further[1].folder], found["Rate/seed-3"]) == ("new", "undecided")
    assert statuses(carried_out(source, tmp_path, "methods=Rate", "seed=3")) == ["done"] * 5
    assert (tmp_path / further[0].folder / "summary.json").stat().st_mtime_ns == before


def sized(**search: object) -> dict[str, object]:
    """A sweep of a tuned row with two sizes of batches, where the large ones take what the small ones choose."""
    source = tuned({"Prox": {"methods.fedprox.mu": [0.1, 1.0]}}, search=search)
    source["grid"] = {
        "seed": [3, 4],
        "size": {"small": {"training.batch_size": 2}, "large": {"training.batch_size": 9}},
    }
    return source


TAKEN = {"transfer": {"size": {"large": "small"}}}


def test_a_value_takes_what_another_has_chosen_and_has_no_trials() -> None:
    """Ratings fall with mu for small batches. Were large ones tried, they would rise and choose the other candidate."""

    def rate(name: str, trial: Cell) -> float:
        return trial.config.methods["fedprox"]["mu"] * (-1 if trial.config.training.batch_size == 2 else 1)

    _, cells = expand_sweep(sized(**TAKEN), (), rate)
    found = [(cell.folder, cell.chosen, cell.config.methods["fedprox"]["mu"]) for cell in cells]
    assert found == [
        ("validation/small/Prox, mu=0.1/seed-3", "", 0.1),
        ("validation/small/Prox, mu=1.0/seed-3", "", 1.0),
        *((f"{size}/Prox/seed-{seed}", "mu=0.1", 0.1) for seed in (3, 4) for size in ("small", "large")),
    ]
    assert [cell.config.training.batch_size for cell in cells[2:]] == [2, 9, 2, 9]
    assert [cell.chosen_in for cell in cells[2:]] == ["", "small", "", "small"]
    assert {cell.chosen for cell in expand_sweep(sized(), ["size=large"], rate)[1][2:]} == {"mu=1.0"}


def test_a_value_alone_waits_for_the_trials_of_the_value_that_chooses_for_it() -> None:
    _, cells = expand_sweep(sized(**TAKEN), ["size=large", "seed=4"])
    trials = ["validation/small/Prox, mu=0.1/seed-3", "validation/small/Prox, mu=1.0/seed-3"]
    assert [cell.folder for cell in cells] == [*trials, "large/Prox/seed-4"]
    assert cells[-1].waits_for == trials


@pytest.mark.parametrize(
    ("transfer", "told"),
    [
        ({"clients": {"a": "b"}}, "search.transfer.clients: found clients, allowed: size"),
        ({"seed": {"3": "4"}}, "search.transfer.seed: found seed, allowed: size"),
        ({"size": {"huge": "small"}}, "search.transfer.size.huge: found 'huge', allowed: small or large"),
        ({"size": {"large": "tiny"}}, "search.transfer.size.large: found 'tiny', allowed: small or large"),
        ({"size": {"large": "large"}}, "found large, which takes the choices of large, allowed: a value that is tuned"),
        ({"size": {"large": "small", "small": "large"}}, "which takes the choices of"),
        ({"methods": {"Prox": "ER"}}, "search.transfer.methods: found methods, allowed: size"),
    ],
)
def test_a_value_that_cannot_take_another_s_choices_is_refused(transfer: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError) as found:
        expand_sweep(sized(transfer=transfer), ())
    assert told in str(found.value)


def test_the_command_line_names_picks_at_the_ends_of_their_lists(
    sweep_file: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both rates are too small to change an answer, so the first is chosen: the larger one of the list."""
    rows = "tune: {methods: {P: {training.optimizer.lr: [1.0e-9, 1.0e-10]}}}"
    path = sweep_file(f"grid: {{seed: [0]}}\n{rows}")
    assert main(["sweep", str(path), "--local", "--out", str(path.parent / "out")]) == 0
    assert "at the end of its list: P: lr=1.0e-09\n" in capsys.readouterr().out


def test_where_all_candidates_are_out_the_runs_fail(tmp_path: Path) -> None:
    ended = carried_out(tuned({"Rate": {"training.optimizer.lr": [1e30, 1e29]}}), tmp_path, "methods=Rate", "seed=3")
    assert statuses(ended) == ["diverged", "diverged", "failed"]
    assert ended[-1].problem.startswith("all its candidates failed, diverged or were stopped early; give the row other")
    assert not (tmp_path / "Rate").exists()


def test_an_interrupted_trial_decides_nothing(tmp_path: Path) -> None:
    rows = {"Row": {"methods": [{"er": {}}, {"troubles:Pressing": {"round": 1}}]}}
    ended = carried_out(tuned(rows), tmp_path, "methods=Row", "seed=3")
    assert statuses(ended) == ["done", "interrupted", "not started"]
    assert standings(tuned(rows), tmp_path, "methods=Row", "seed=3")["Row/seed-3"] == "undecided"


def test_the_list_tells_what_is_undecided(sweep_file: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = sweep_file("grid: {seed: [0]}\ntune: {methods: {P: {methods.fedprox.mu: [0.1, 1]}}}")
    assert main(["sweep", str(path), "--list", "--out", str(path.parent / "out")]) == 0
    assert [re.split("  +", line) for line in capsys.readouterr().out.splitlines()] == [
        ["validation/P, mu=0.1/seed-0", "new", "seed=0", "methods.fedprox.mu=0.1", "evaluation.split='validation'"],
        ["validation/P, mu=1/seed-0", "new", "seed=0", "methods.fedprox.mu=1", "evaluation.split='validation'"],
        ["P/seed-0", "undecided"],
    ]
    assert len(plan_sweep(path, (), None).to_do) == 2


REFUSED = {
    "tune: {methods: {P: {methods.fedprox.mu: []}}}": ":4: tune.methods.P.methods.fedprox.mu: found [], allowed: a val",
    "tune: {methods: {P: {sede: [1]}}}": ":4: tune.methods.P.sede.0: unknown key 'sede'; did you mean 'seed'?",
    "tune: {methods: {P: 3}}": ":4: tune: found {methods: {P: 3}}, allowed: by axis, further values such as {FedProx",
    "tune: {methods: {P: {seed: [7, 8]}}}": ":4: tune.methods: found the key seed, which sets seed of the axis seed",
    "tune: {methods: {P: {methods.fedprox.mu: [-1, 1]}}}": ":4: methods.fedprox.mu: found -1, allowed: a number >= 0 "
    "(in the run 'validation/P, mu=-1/seed-0')",
    "tune: {methods: {P: {training.batch_size: [2, 2]}}}": ":4: tune.methods.P: found 'P, batch_size=2' twice",
    "tune: {seed: {P: {methods.fedprox.mu: [0, 1]}}}": ":4: tune.seed: found seed, which all trials share, allowed",
    "tune: {evaluation.split: {P: {methods.fedprox.mu: [0, 1]}}}": ":4: tune.evaluation.split: found evaluation.split",
    "search: {trials: 2}": ":4: search: found no tune with it, allowed: tune with rows to search, or no search",
    "search: {finalists: 2, seeds: 2}\ntune: {}": ":4: search.seeds: found 2, allowed: at most as many as the axis",
    "search: {finalists: 2}": ":4: search.finalists: found 2 with 1 seed, allowed: at least 2 of finalists and of seed",
    "search: {seeds: 3}": ":4: search.finalists: found 1 with 3 seeds, allowed: at least 2 of finalists and of seeds",
    "search: {worst_of: {a: {seed: 1}}, finalists: 2}\ntune: {}": ":4: search.worst_of.a.seed: found seed, allowed: ",
    "search: {worst_of: {a: {}}, finalists: 2}\ntune: {}": ":4: search.worst_of.a: found no key, allowed: at least on",
    "search: {worst_of: {a: {sede: 1}}, finalists: 2}\ntune: {}": ":4: search.worst_of.a.sede: unknown key 'sede'; did",
    "search: {worst_of: {a: {training.batch_size: 1}}}\ntune: {}": ":4: search.finalists: found 1 with 1 seed and 1 of",
    "search: {trials: 0}": ":4: search.trials: found 0, allowed: a whole number >= 1",
    "remarks: [{where: {sede: 1}, text: x}]": ":4: remarks.0.where.sede: found no axis of the grid, allowed: seed",
    "skip: [{sede: 1}]": ":4: skip.0.sede: found no axis of the grid, allowed: seed",
    "skip: [{seed: 1}]": ":4: skip.0: seed is an axis of the grid; found 1, allowed: 0",
    "skip: [{seed: 0}]": "sweep.yaml: skip: found every combination of the grid, allowed: combinations that leave runs",
}


def test_a_condition_is_checked_before_the_first_trial() -> None:
    search = {"finalists": 2, "worst_of": {"a": {"training.batch_size": 0}}}
    source = tuned({"P": {"methods.fedprox.mu": [0, 1]}}, search=search)
    with pytest.raises(ConfigError, match=r"batch_size: found 0, .*\(in the run 'validation/P, mu=0/a/seed-3'\)"):
        expand_sweep(source, ())


@pytest.mark.parametrize("keys", [{"dataset.input_scale": 1.0}, {"methods.fedprox.mu": 0.7}])
def test_a_condition_that_leaves_trials_alike_is_told_before_the_first_trial(keys: dict[str, object]) -> None:
    """The first has the rows' own value, and the second makes all candidates one."""
    source = tuned({"P": {"methods.fedprox.mu": [0, 1]}}, search={"finalists": 2, "worst_of": {"a": keys}})
    with pytest.raises(ConfigError, match=r"the runs 'validation/P, mu=0/.*' are the same in all that changes results"):
        expand_sweep(source, ())


@pytest.mark.parametrize("lines", REFUSED)
def test_what_is_wrong_is_told_in_one_line(lines: str, sweep_file: Write) -> None:
    with pytest.raises(ConfigError) as found:
        expand_sweep(sweep_file(f"grid: {{seed: [0]}}\n{lines}"), ())
    assert REFUSED[lines] in str(found.value)
    assert "\n" not in str(found.value)
