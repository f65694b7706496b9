"""What is one setting, what is one group in it, and what both are called by their configs."""

import json
from collections.abc import Mapping
from pathlib import Path

from made_runs import make_run

from raysim.config.yaml_text import to_yaml
from raysim.reports.grouping import ExperimentSetting, group_runs
from raysim.reports.naming import derive_label
from raysim.reports.quantity_tables import tabulate_results, tabulate_settings
from raysim.reports.reading import FinishedRun, find_runs
from raysim.reports.write import write_report


def settings(directory: Path, *overrides: Mapping[str, object]) -> list[ExperimentSetting]:
    for number, given in enumerate(overrides):
        make_run(directory / f"run-{number:02}", given)
    return group_runs(find_runs([directory], []), [])


def shape(found: list[ExperimentSetting]) -> list[tuple[str, list[tuple[str, list[int]]]]]:
    """Titles, labels and seeds."""
    return [(s.title, [(g.label, [run.summary.seed for run in g.runs]) for g in s.groups]) for s in found]


def test_seeds_methods_names_and_resources_make_no_setting(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        {"seed": 2},
        {"seed": 0, "name": "other", "resources": {"clients_per_actor": "auto"}, "logging": {"tensorboard": False}},
        {"seed": 1, "methods": {"er": {}}, "evaluation": {"per_client": True}},
    )
    assert shape(found) == [("made, other", [("FedAvg", [0, 2]), ("ER", [1])])]


def test_settings_are_called_by_their_runs_and_what_differs_is_a_table(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        {"partition": {"kind": "dirichlet", "alpha": 10.0, "min_samples": 1}},
        {"partition": {"kind": "dirichlet", "alpha": 0.5, "min_samples": 1}},
        {},
        {"training.rounds_per_task": 9},
    )
    assert [setting.title for setting in found] == ["made"] * 4
    table = tabulate_settings(found)
    assert table is not None
    assert table.headings == ("key", "1: made", "2: made", "3: made", "4: made")
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["partition.kind", "dirichlet", "dirichlet", "iid", "iid"],
        ["partition.alpha", "0.5", "10.0", "-", "-"],
        ["partition.min_samples", "1", "1", "-", "-"],
        ["partition.balanced", "true", "true", "-", "-"],
        ["training.rounds_per_task", "2", "2", "2", "9"],
    ]
    assert tabulate_settings(found[:1]) is None


def test_a_key_that_one_setting_has_is_in_the_table_of_what_differs(tmp_path: Path) -> None:
    found = settings(tmp_path, {"partition": {"kind": "dirichlet", "alpha": 0.5}}, {})
    table = tabulate_settings(found)
    assert table is not None
    assert ["partition.alpha", "0.5", "-"] in [[cell.text for cell in row] for row in table.rows]


def test_a_key_that_differs_between_rows_in_one_setting_says_so(tmp_path: Path) -> None:
    """The rows of `slow` have their own rates; those of `fast` have one."""
    runs = {}
    for pace, rates in (("slow", (0.1, 0.2)), ("fast", (0.3, 0.3))):
        for row, rate in zip(("FL", "ER"), rates, strict=True):
            methods = {} if row == "FL" else {"er": {}}
            made = {"methods": methods, "training.optimizer.lr": rate, "clients.count": 3 + (pace == "fast")}
            make_run(tmp_path / pace / row, made)
            runs[f"{pace}/{row}"] = {"methods": row, "pace": pace}
    (tmp_path / "sweep.yaml").write_text(to_yaml({"name": "s", "runs": runs}))
    table = tabulate_settings(group_runs(find_runs([tmp_path], []), []))
    assert table is not None
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["clients.count", "3", "4"],
        ["training.optimizer.lr", "by method", "0.3"],
    ]


def test_where_the_data_are_makes_no_setting(tmp_path: Path) -> None:
    found = settings(tmp_path, {"seed": 1}, {"dataset.root": str(tmp_path), "dataset.download": False})
    assert shape(found) == [("made", [("FedAvg", [0, 1])])]


def test_trackers_make_no_setting(tmp_path: Path) -> None:
    for seed, callbacks in enumerate(({}, {"wandb": {"project": "fl"}}, {"mlflow": {"experiment": "other"}})):
        make_run(tmp_path / str(seed), {"seed": seed})
        path = tmp_path / str(seed) / "config.yaml"
        path.write_text(path.read_text().replace("callbacks: {}", f"callbacks: {json.dumps(callbacks)}"))
    (setting,) = group_runs(find_runs([tmp_path], []), [])
    assert [group.count for group in setting.groups] == ["3"]


def test_rows_with_other_tested_models_are_other_settings(tmp_path: Path) -> None:
    """The captions say which model was tested, and accuracies of others cannot be compared."""
    names = {}
    for row, model in (("one", "global_per_client"), ("other", "local")):
        make_run(tmp_path / row, {"evaluation.model": model, "training.optimizer.lr": 0.1}, tested=model)
        names[row] = {"methods": row, "seed": "0"}
    (tmp_path / "sweep.yaml").write_text(to_yaml({"name": "two", "runs": names}))
    found = group_runs(find_runs([tmp_path], []), [])
    assert [setting.label("domain_il").partition(" of ")[2] for setting in found] == [
        "the global model on clients' own data",
        "clients' own models",
    ]


def test_runs_that_did_not_finish_are_counted_with_their_group(tmp_path: Path) -> None:
    """Of five seeds of FedAvg two failed and one was interrupted; seed 0 failed too, and was repeated."""
    for seed, status in enumerate(("done", "done", "failed", "failed", "interrupted")):
        make_run(tmp_path / f"fl-{seed}", {"seed": seed}, status=status)
    make_run(tmp_path / "again", {"seed": 0}, status="failed")
    make_run(tmp_path / "er", {"methods": {"er": {}}})
    make_run(tmp_path / "er-fast", {"methods": {"er": {}}, "training.optimizer.lr": 9.0}, status="failed")
    left_out: list[str] = []
    unfinished: list[FinishedRun] = []
    (setting,) = group_runs(find_runs([tmp_path], left_out, unfinished=unfinished), left_out, unfinished)
    assert [group.count for group in setting.groups] == ["2 (2 failed, 1 interrupted)", "1"]
    table = tabulate_results(setting, "domain_il")
    assert [row[1].text for row in table.rows] == ["2 (2 failed, 1 interrupted)", "1"]
    assert left_out == [
        f"{tmp_path}/{name}: found the status {status}, counted: done ({which})"
        for name, status, which in (
            ("again", "failed", "FedAvg, seed 0"),
            ("er-fast", "failed", "er, seed 0"),
            ("fl-2", "failed", "FedAvg, seed 2"),
            ("fl-3", "failed", "FedAvg, seed 3"),
            ("fl-4", "interrupted", "FedAvg, seed 4"),
        )
    ]


def test_keys_that_only_one_setting_has_tell_settings_apart_where_no_other_does(tmp_path: Path) -> None:
    domains = {"domains": [{"name": "synthetic", "seed": 0}, {"name": "synthetic", "seed": 1}]}
    own = {"name": "synthetic", "classes": 10, "seed": 0}
    found = settings(tmp_path, {"dataset": own, "scenario.shift": domains}, {"dataset": own})
    assert [next(iter(setting.differing)) for setting in found] == ["scenario.shift", "scenario.shift.domains"]


def test_runs_with_another_top_k_are_no_replicates(tmp_path: Path) -> None:
    """Nor does the later of two runs with one seed stand for both."""
    for top_k in (1, 3):
        for seed in (0, 1):
            make_run(tmp_path / f"{top_k}-{seed}", {"seed": seed, "evaluation.top_k": top_k}, top_k=top_k)
    left_out: list[str] = []
    found = group_runs(find_runs([tmp_path], []), left_out)
    assert shape(found) == [("made", [("FedAvg", [0, 1])])] * 2
    assert [setting.differing for setting in found] == [{"evaluation.top_k": k} for k in (1, 3)]
    assert (left_out, [setting.label("class_il") for setting in found]) == ([], ["class-IL", "class-IL top-3"])


def test_runs_from_before_top_k_are_top_1(tmp_path: Path) -> None:
    make_run(tmp_path / "new", {"seed": 1}, top_k=1)
    config = make_run(tmp_path / "old", {"seed": 0}) / "config.yaml"
    assert "top_k: 1" in config.read_text()
    config.write_text(config.read_text().replace(", top_k: 1", "").replace("  top_k: 1\n", ""))
    assert "top_k" not in config.read_text()
    assert shape(group_runs(find_runs([tmp_path], []), [])) == [("made", [("FedAvg", [0, 1])])]


def test_a_key_that_an_older_raysim_did_not_write_is_null(tmp_path: Path) -> None:
    make_run(tmp_path / "new", {"seed": 1})
    config = make_run(tmp_path / "old", {"seed": 0}) / "config.yaml"
    text = config.read_text()
    assert "  train_samples: null\n" in text
    config.write_text(text.replace("  train_samples: null\n", ""))
    (setting,) = group_runs(find_runs([tmp_path], []), [])
    assert [len(group.runs) for group in setting.groups] == [2]


def test_a_key_that_an_older_raysim_wrote_and_that_decides_nothing_is_left_out(tmp_path: Path) -> None:
    """Of a config with a custom dataset, too, whose values are taken as they are in the file."""
    for dataset in ("synthetic", "somebodys:data"):
        for seed, every in ((0, "  every: task\n"), (1, "")):
            config = make_run(tmp_path / dataset / str(seed), {"seed": seed}) / "config.yaml"
            text = config.read_text().replace("evaluation:\n", f"evaluation:\n{every}")
            config.write_text(text.replace("name: synthetic", f"name: {dataset}"))
        assert "every: task" in (tmp_path / dataset / "0" / "config.yaml").read_text()
        (setting,) = group_runs(find_runs([tmp_path / dataset], []), [])
        assert [len(group.runs) for group in setting.groups] == [2]


def test_the_same_config_and_seed_counts_once_and_the_last_counts(tmp_path: Path) -> None:
    for name in ("a", "b"):
        make_run(tmp_path / name, {"seed": 4})
    left_out: list[str] = []
    (setting,) = group_runs(find_runs([tmp_path], []), left_out)
    assert [run.directory.name for run in setting.runs] == ["b"]
    assert left_out == [f"{tmp_path}/a: the same config and seed as {tmp_path}/b, which is counted"]


def test_knobs_make_groups_and_their_order_is_by_size(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        {"methods": {"special": {"lam": 0.25}}},
        {"methods": {"special": {"lam": 0.05}}},
        {"methods": {"special": {"lam": 0.1, "global_rate": 1.0}}},
        {"methods": {"der": {}, "fed_a_gem": {}}},
        {"methods": {"fed_a_gem": {}, "der": {}}},
    )
    assert [group.label for group in found[0].groups] == [
        "DER + Fed-A-GEM",
        "Fed-A-GEM + DER",
        "SPECIAL lam=0.05 global_rate=1/task",
        "SPECIAL lam=0.1 global_rate=1.0",
        "SPECIAL lam=0.25 global_rate=1/task",
    ]


def test_rows_of_two_sweeps_with_the_same_name_have_different_labels(tmp_path: Path) -> None:
    """Both sweeps have a row FedAvg, with another rate, and a row ER, so the rate is a key of rows."""
    for sweep, rate in (("a", 0.1), ("b", 0.3)):
        runs = {}
        for row, given in {"FedAvg": {"training.optimizer.lr": rate}, "ER": {"methods": {"er": {}}}}.items():
            make_run(tmp_path / sweep / row, given)
            runs[row] = {"methods": row}
        (tmp_path / sweep / "sweep.yaml").write_text(to_yaml({"name": sweep, "runs": runs}))
    (setting,) = group_runs(find_runs([tmp_path], []), [])
    names = [group.name for group in setting.groups]
    assert len({*names}) == len(names) == 3
    assert {"FedAvg lr=0.1", "FedAvg lr=0.3"} < {*names}


def in_directories(place: Path, **given: Mapping[str, object]) -> list[ExperimentSetting]:
    """The settings of one sweep with rows FL and ER that was run in several directories, each with further keys."""
    for folder, more in given.items():
        rows = {"FL": {**more}, "ER": {**more, "methods": {"er": {}}, "training.optimizer.lr": 0.3}}
        for row, keys in rows.items():
            make_run(place / folder / row, keys)
        runs = {row: {"methods": row} for row in rows}
        (place / folder / "sweep.yaml").write_text(to_yaml({"name": "made", "runs": runs}))
    return group_runs(find_runs([place / folder for folder in given], []), [])


def test_a_sweep_that_was_run_again_with_another_value_is_another_setting(tmp_path: Path) -> None:
    found = in_directories(tmp_path, a={}, b={"training.rounds_per_task": 9})
    assert [[group.label for group in one.groups] for one in found] == [["FL", "ER"]] * 2
    assert [one.differing["training.rounds_per_task"] for one in found] == [2, 9]


def test_a_row_that_was_tuned_again_elsewhere_is_in_the_same_setting(tmp_path: Path) -> None:
    """The learning rate differs between rows of the first directory, so it is of the rows."""
    make_run(tmp_path / "own/FL", {"training.optimizer.lr": 0.7})
    (tmp_path / "own/sweep.yaml").write_text(to_yaml({"name": "made", "runs": {"FL": {"methods": "FL"}}}))
    in_directories(tmp_path, a={})
    (found,) = group_runs(find_runs([tmp_path / "a", tmp_path / "own"], []), [])
    assert len(found.groups) == 3


def test_rows_of_a_sweep_in_several_directories_are_of_one_setting(tmp_path: Path) -> None:
    for row, rate in (("FL", 0.1), ("ER", 0.3)):
        make_run(tmp_path / row / row, {"training.optimizer.lr": rate})
        (tmp_path / row / "sweep.yaml").write_text(to_yaml({"name": "made", "runs": {row: {"methods": row}}}))
    (found,) = group_runs(find_runs([tmp_path], []), [])
    assert [group.label for group in found.groups] == ["ER", "FL"]


def test_the_split_as_an_axis_is_no_trial(tmp_path: Path) -> None:
    """And another sweep changes nothing."""
    runs: dict[str, Mapping[str, str]] = {}
    for split in ("test", "validation"):
        make_run(tmp_path / "a" / split, {"evaluation.split": split})
        runs[split] = {"methods": "FL", "evaluation.split": split}
    (tmp_path / "a/sweep.yaml").write_text(to_yaml({"name": "made", "runs": runs}))
    make_run(tmp_path / "b", {"methods": {"er": {}}})
    left_out: list[str] = []
    found = group_runs(find_runs([tmp_path], []), left_out)
    assert ([len(one.groups) for one in found], left_out) == ([1, 1, 1], [])


def test_labels_show_only_knobs_in_which_groups_differ() -> None:
    der, fed = {"alpha": 1.0, "beta": 0.0}, {"sample_size": 32}
    assert labels({}, {"der": der}, {"der": der, "fed_a_gem": fed}) == ["FedAvg", "DER", "DER + Fed-A-GEM"]
    assert labels({"der": der}, {"der": {**der, "beta": 0.5}, "fed_a_gem": fed}) == [
        "DER beta=0.0",
        "DER++ beta=0.5 + Fed-A-GEM",
    ]
    assert labels({"mine.parts:Still": {"on": True}}, {"mine.parts:Still": {"on": "a\nb"}}) == [
        "Still on=true",
        "Still on=a\\nb",
    ]


def labels(*groups: Mapping[str, Mapping[str, object]]) -> list[str]:
    return [derive_label(methods, groups) for methods in groups]


def test_results_of_another_size_are_another_setting(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    make_run(tmp_path / "b", {"seed": 1}, {"domain_il": [[0.5]]}, tasks=1)
    assert [len(setting.runs) for setting in group_runs(find_runs([tmp_path], []), [])] == [1, 1]


def in_sweep(directory: Path, **names: str) -> list[str]:
    """Two groups, er with seeds 0 and 1 and FedAvg with seed 0, in a sweep that calls them so."""
    runs = {"er/seed-0": {"methods": {"er": {}}}, "er/seed-1": {"seed": 1, "methods": {"er": {}}}, "fl/seed-0": {}}
    for folder, overrides in runs.items():
        make_run(directory / folder, overrides)
    lines = [f"  {folder}: {{methods: '{names[folder[:2]]}', seed: '0'}}" for folder in runs]
    (directory / "sweep.yaml").write_text("\n".join(["name: made", "runs:", *lines, ""]))
    (setting,) = group_runs(find_runs([directory], []), [])
    return [group.label for group in setting.groups]


def test_groups_are_called_what_a_sweep_calls_their_methods(tmp_path: Path) -> None:
    """And stand in the sweep's order, not in that of their names."""
    assert in_sweep(tmp_path, er="FL + replay", fl="FL") == ["FL + replay", "FL"]


def test_settings_are_called_what_a_sweep_calls_them(tmp_path: Path) -> None:
    lines = ["name: made", "runs:"]
    for rate, name in ((0.1, "slow"), (0.5, "fast")):
        make_run(tmp_path / name, {"training.optimizer.lr": rate})
        lines.append(f"  {name}: {{methods: FL, seed: '0', pace: {name}}}")
    assert [one.title for one in group_runs(find_runs([tmp_path], []), [])] == ["made", "made"]
    (tmp_path / "sweep.yaml").write_text("\n".join([*lines, ""]))
    assert [one.title for one in group_runs(find_runs([tmp_path], []), [])] == ["slow", "fast"]


def test_where_a_sweep_calls_two_groups_the_same_their_methods_tell_them_apart(tmp_path: Path) -> None:
    assert in_sweep(tmp_path, er="FL", fl="FL") == ["ER", "FedAvg"]


def test_a_file_of_that_name_that_no_sweep_wrote_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text("runs: 3\n")
    assert shape(settings(tmp_path, {}, {"methods": {"er": {}}})) == [("made", [("FedAvg", [0]), ("ER", [0])])]


def test_runs_from_before_a_key_are_of_the_same_setting(tmp_path: Path) -> None:
    """What a run did before a key was there is the key's default; another value is another setting."""
    for name, overrides in (
        ("now", {"seed": 1}),
        ("then", {}),
        ("other", {"training.optimizer.nesterov": True, "training.optimizer.momentum": 0.9}),
    ):
        make_run(tmp_path / name, overrides)
    path = tmp_path / "then" / "config.yaml"
    kept = [
        line for line in path.read_text().splitlines() if line.split(":")[0].strip() not in ("nesterov", "precision")
    ]
    path.write_text("\n".join(kept) + "\n")
    found = group_runs(find_runs([tmp_path], []), [])
    assert sorted(len(one.runs) for one in found) == [1, 2]


def test_a_tuned_value_is_part_of_its_row(tmp_path: Path) -> None:
    """The rows of a sweep may set the learning rate: one setting with three rows. Two seeds of a row stay together."""
    rows = {"FedAvg, lr=0.2": {"training.optimizer.lr": 0.2}, "ER": {"methods": {"er": {}}}}
    rows["FedAvg, lr=0.5"] = {"training.optimizer.lr": 0.5}
    lines = ["name: made", "runs:"]
    for number, (label, given) in enumerate(rows.items()):
        for seed in (0, 1):
            make_run(tmp_path / f"{number}/seed-{seed}", {**given, "seed": seed})
            lines.append(f"  {number}/seed-{seed}: {{methods: '{label}', seed: '{seed}'}}")
    (tmp_path / "sweep.yaml").write_text("\n".join([*lines, ""]))
    found = shape(group_runs(find_runs([tmp_path], []), []))
    assert [groups for _, groups in found] == [[(label, [0, 1]) for label in rows]]


def test_trials_of_a_sweep_are_no_setting(tmp_path: Path) -> None:
    """They decide the tuned values. Alone, they are reported as any runs are."""
    make_run(tmp_path / "runs/ER", {"methods": {"er": {}}})
    make_run(tmp_path / "runs/validation/ER", {"methods": {"er": {}}, "evaluation.split": "validation"})
    trial = "{methods: ER, seed: '0', evaluation.split: validation}"
    lines = ["name: made", "runs:", "  ER: {methods: ER, seed: '0'}", f"  validation/ER: {trial}", ""]
    (tmp_path / "runs/sweep.yaml").write_text("\n".join(lines))
    left_out: list[str] = []
    (setting,) = group_runs(find_runs([tmp_path], []), left_out)
    assert len(setting.runs) == 1
    assert left_out == ["1 trial on validation data, by which sweeps chose hyperparameters"]
    assert len(group_runs(find_runs([tmp_path / "runs/validation"], []), [])) == 1


def test_a_trial_that_diverged_is_no_unfinished_run_of_a_report(tmp_path: Path) -> None:
    """The sweep chose without it, and has not failed. A report of the trials alone counts it."""
    make_run(tmp_path / "runs/ER", {"methods": {"er": {}}})
    lines = ["name: made", "runs:", "  ER: {methods: ER}"]
    for rate, status in ((0.1, "done"), (9.0, "failed")):
        given = {"methods": {"er": {}}, "evaluation.split": "validation", "training.optimizer.lr": rate}
        make_run(tmp_path / f"runs/validation/{rate}", given, status=status)
        lines.append(f"  validation/{rate}: {{methods: 'ER, lr={rate}', evaluation.split: validation}}")
    (tmp_path / "runs/sweep.yaml").write_text("\n".join([*lines, ""]))
    assert write_report(tmp_path / "runs", tmp_path / "all").unfinished == 0
    assert write_report(tmp_path / "runs/validation", tmp_path / "trials").unfinished == 1
