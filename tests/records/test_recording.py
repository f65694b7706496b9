"""What a run leaves behind, from raysim.run(..., local=True): design.md section 2."""

import errno
import hashlib
import json
import math
import os
import re
import shlex
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import raysim
from raysim.callbacks import Callback
from raysim.config import load
from raysim.config.comparison import label_run
from raysim.engine.events import RoundDone
from raysim.federation.federation import build_federation
from raysim.launch.resolving import make_default_directory
from raysim.models.building import build_model
from raysim.objectives.classification import ACCURACY_METRIC
from raysim.records.run_directory import claim_directory, sha256
from raysim.records.totals import Totals
from raysim.system.errors import ConfigError, Diverged, RunError

SUMMARY = [
    "name",
    "seed",
    "methods",
    "status",
    "clients",
    "tasks",
    "test_samples",
    "rounds",
    "updates",
    "evaluation",
    "bytes_up",
    "bytes_down",
    "steps",
    "participation",
    "virtual_time",
    "seconds",
    "seconds_per_round",
    "seconds_starting",
    "peak_memory_bytes",
    "actors",
    "recoveries",
    "rounds_recomputed",
    "model_sha256",
    "versions",
]
METRICS = [
    *("accuracy", "average_accuracy", "forgetting", "final_forgetting", "backward_transfer", "forward_transfer"),
    *("average_incremental_accuracy_by_task", "average_incremental_accuracy", "accuracy_seen", "final_accuracy"),
]
ROUND = [
    "round",
    "tasks",
    "cohort",
    "loss",
    "bytes_up",
    "bytes_down",
    "seconds",
    "staleness",
    "virtual_time",
    "steps",
    "idle_share",
    "records",
]


@pytest.fixture(scope="module")
def config(tiny):
    return tiny(
        scenario={"kind": "class_incremental", "tasks": 2},
        methods={"probes:Everything": {}},
        model__dropout=0.3,
        logging__tensorboard=True,
        seed=7,
    )


@pytest.fixture(scope="module")
def run(config, tmp_path_factory):
    """One run and its directory."""
    out = tmp_path_factory.mktemp("recording") / "run"
    return raysim.run(config, out=out, local=True), out


@pytest.fixture(scope="module")
def rounds(run):
    return [json.loads(text) for text in (run[1] / "rounds.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def summary(run):
    return json.loads((run[1] / "summary.json").read_text())


def test_the_directory_has_the_contracts_files(run):
    names = {path.name for path in run[1].iterdir()}
    assert {"config.yaml", "summary.json", "rounds.jsonl", "model.pt"} < names
    assert any(name.startswith("events.out.") for name in names)


def test_one_line_per_round(rounds):
    assert [list(entry)[: len(ROUND)] for entry in rounds] == [ROUND] * 4
    assert [entry["round"] for entry in rounds] == [1, 2, 3, 4]
    assert [entry["tasks"] for entry in rounds] == [[1], [1], [2], [2]]
    assert [entry["cohort"] for entry in rounds] == [[0, 1, 2], [1, 2], [0, 1, 2], [0, 1, 2]]
    assert [entry["staleness"] for entry in rounds] == [[0] * 3, [0] * 2, [0] * 3, [0] * 3]
    assert all(entry["seconds"] > 0 and entry["loss"] > 0 for entry in rounds)
    times = [entry["virtual_time"] for entry in rounds]  # 6 samples of a millisecond each, all equally fast
    assert times == pytest.approx([0.006, 0.012, 0.018, 0.024])
    assert [entry["records"]["updates"] for entry in rounds] == [1, 2, 3, 4]
    assert ["evaluation" in entry for entry in rounds] == [False, True, False, True]
    assert [entry["steps"] for entry in rounds] == [3, 2, 3, 3]  # 4 of a client's samples are one batch of 4


def test_the_summary_has_the_contracts_keys(summary, rounds):
    assert sorted(summary) == sorted(SUMMARY)
    assert (summary["name"], summary["seed"], summary["status"]) == ("tiny", 7, "done")
    assert summary["methods"] == ["probes:Everything"]
    assert (summary["clients"], summary["tasks"], summary["rounds"]) == (3, 2, 4)
    assert summary["updates"] == 3 + 2 + 3 + 3
    assert summary["participation"] == [3, 4, 4]
    assert summary["bytes_up"] == sum(entry["bytes_up"] for entry in rounds)
    assert summary["bytes_down"] == sum(entry["bytes_down"] for entry in rounds)
    assert summary["steps"] == 3 + 2 + 3 + 3
    assert summary["peak_memory_bytes"] > 2**26
    assert (summary["recoveries"], summary["rounds_recomputed"]) == (0, 0)
    assert summary["seconds_per_round"] == np.median([entry["seconds"] for entry in rounds])
    assert summary["seconds"] > sum(entry["seconds"] for entry in rounds)
    known = {"python", "torch", "ray", "raysim", "git", "code", "data", "model", "machine", "settings", "numpy"}
    assert known == set(summary["versions"])  # code: of probes.py


def test_the_matrices_are_those_of_the_rounds_that_end_a_task(summary, rounds):
    assert list(summary["evaluation"]) == ["class_il", "class_il_seen", "task_il"]
    for protocol, values in summary["evaluation"].items():
        assert list(values) == METRICS
        matrix = [entry["evaluation"][protocol] for entry in rounds if "evaluation" in entry]
        assert values["accuracy"] == matrix
        assert np.shape(matrix) == (2, 2)
        assert values["average_accuracy"] == pytest.approx(np.mean(matrix[1]))
        assert values["forgetting"] == pytest.approx(matrix[0][0] - matrix[1][0])
        sizes = summary["test_samples"]
        seen = [matrix[0][0], np.average(matrix[1], weights=sizes)]
        assert values["accuracy_seen"] == pytest.approx(seen)
        assert values["final_accuracy"] == pytest.approx(seen[1])
        assert values["average_incremental_accuracy"] == pytest.approx(np.mean(seen))
        assert values["average_incremental_accuracy_by_task"] == pytest.approx((matrix[0][0] + np.mean(matrix[1])) / 2)


def test_the_seen_classes_are_the_first_tasks_and_then_all(run, config, summary):
    """After task 1 only its classes compete, as in task-IL, and no other can be right; after task 2 all compete."""
    by_class, seen, by_task = (
        summary["evaluation"][name]["accuracy"] for name in ("class_il", "class_il_seen", "task_il")
    )
    assert seen == [[by_task[0][0], 0.0], by_class[1]]
    assert summary["evaluation"]["class_il_seen"]["forward_transfer"] is None
    federation = build_federation(config)
    assert summary["test_samples"] == [len(task.test) for task in federation.tasks]


def test_forward_transfer_is_against_the_untrained_model(run, config, summary):
    """Scored here by hand: the initial model on task 2's test set, all classes admitted."""
    federation = build_federation(config)
    module = build_model(config, federation.shape, federation.classes).eval()
    test, rows = federation.dataset.test, federation.tasks[1].test
    with torch.no_grad():
        answers = module(torch.from_numpy(test.x[rows])).argmax(1).numpy()
    untrained = float((answers == test.y[rows]).mean())
    values = summary["evaluation"]["class_il"]
    assert values["forward_transfer"] == pytest.approx(values["accuracy"][0][1] - untrained)


def test_the_models_digest_can_be_made_again_from_the_file(run, summary):
    state = torch.load(run[1] / "model.pt", weights_only=True)
    digest = hashlib.sha256(b"".join(tensor.numpy().astype("<f4").tobytes() for tensor in state.values()))
    assert digest.hexdigest() == summary["model_sha256"]


def test_the_digest_is_over_contiguous_little_endian_bytes():
    """A transposed view, integers and a scalar: 1 3 2 4 as float32, then 5 as int64."""
    state = {"a": torch.tensor([[1.0, 2.0], [3.0, 4.0]]).t(), "n": torch.tensor(5)}
    data = np.array([1, 3, 2, 4], "<f4").tobytes() + np.array(5, "<i8").tobytes()
    assert sha256(state) == hashlib.sha256(data).hexdigest()


def test_the_model_file_has_the_modules_names(run, config):
    federation = build_federation(config)
    module = build_model(config, federation.shape, federation.classes)
    module.load_state_dict(torch.load(run[1] / "model.pt", weights_only=True))


def test_the_resolved_config_says_every_default_and_reproduces_the_run(run, summary, tmp_path):
    values = yaml.safe_load((run[1] / "config.yaml").read_text())
    assert values["training"]["optimizer"] == {
        "name": "sgd",
        "lr": 0.1,
        "momentum": 0.0,
        "nesterov": False,
        "weight_decay": 0.0,
    }
    again = raysim.run(run[1] / "config.yaml", out=tmp_path / "again", local=True)
    assert again.model_sha256 == summary["model_sha256"]
    assert again.evaluation == summary["evaluation"]
    assert (tmp_path / "again" / "config.yaml").read_text() == (run[1] / "config.yaml").read_text()


def test_another_seed_is_another_model(config, summary, tmp_path):
    other = raysim.run(config, {"seed": 8, "logging.tensorboard": False}, out=tmp_path / "o", local=True)
    assert other.model_sha256 != summary["model_sha256"]
    assert other.seed == 8


def test_tensorboard_has_the_scalars_and_the_matrix(run, rounds, summary):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    shown = EventAccumulator(str(run[1]))
    shown.Reload()

    def scalars(name):
        return [(event.step, pytest.approx(event.value, rel=1e-6)) for event in shown.Scalars(name)]

    assert scalars("train/loss") == [(e["round"], e["loss"]) for e in rounds]
    up = np.cumsum([e["bytes_up"] for e in rounds])
    assert scalars("bytes/up_so_far") == [(e["round"], total) for e, total in zip(rounds, up, strict=True)]
    assert scalars("clients/cohort") == [(e["round"], len(e["cohort"])) for e in rounds]
    assert scalars("methods/probe") == [(e["round"], e["records"]["probe"]) for e in rounds]
    for protocol in ("class_il", "class_il_seen", "task_il"):
        values = summary["evaluation"][protocol]
        matrix, name = values["accuracy"], "average_incremental_accuracy"
        assert scalars(f"average/{protocol}/accuracy_seen") == [*zip((2, 4), values["accuracy_seen"], strict=True)]
        assert scalars(f"average/{protocol}/{name}") == [(2, values["accuracy_seen"][0]), (4, values[name])]
        assert scalars(f"{protocol}/task_2") == [(2, matrix[0][1]), (4, matrix[1][1])]
        average = [(2, matrix[0][0]), (4, (matrix[1][0] + matrix[1][1]) / 2)]
        assert scalars(f"average/{protocol}/accuracy") == average
        assert [step for step, _ in scalars(f"average/{protocol}/forgetting")] == [4]  # undefined after one task
        images = shown.Images(f"{protocol}/accuracy_matrix")
        assert [image.step for image in images] == [1, 2]
        assert all(image.encoded_image_string.startswith(b"\x89PNG") and image.width > 50 for image in images)


def test_the_matrix_image_of_many_tasks_is_as_large_as_that_of_40():
    from raysim.records.figures import matrix_image

    sizes = {
        tasks: matrix_image([[0.5] * tasks] * 2, "class_il", True, 1, ACCURACY_METRIC).shape for tasks in (40, 500)
    }
    assert sizes[40] == sizes[500]


def test_the_matrix_image_shows_the_accuracies():
    """Beside white the most frequent color is that of the one cell: from violet (94, 60, 160) for 0 to yellow for 1."""
    from raysim.records.figures import matrix_image

    for value, color in ((0.0, (94, 60, 160)), (1.0, (240, 215, 50))):
        image = matrix_image([[value]], "class_il", True, 1, ACCURACY_METRIC)
        assert image.dtype == np.uint8
        pixels, counts = np.unique(image.reshape(-1, 3), axis=0, return_counts=True)
        frequent = pixels[np.argsort(-counts)]
        first = next(pixel for pixel in frequent.tolist() if pixel != [255, 255, 255])
        assert np.abs(np.subtract(first, color)).max() <= 2


def test_all_images_of_a_run_have_one_size_and_rows_to_come_are_white():
    """After one of two tasks the lower half is empty; a dark cell there would be the second row's."""
    from raysim.records.figures import matrix_image

    first, both = (matrix_image([[0.0, 0.0]] * rows, "class_il", True, 1, ACCURACY_METRIC) for rows in (1, 2))
    assert first.shape == both.shape
    dark = [(np.abs(image.astype(int) - (94, 60, 160)).max(2) <= 2).sum() for image in (first, both)]
    assert 1.5 * dark[0] < dark[1]


def test_without_logging_there_are_no_events_and_the_same_bits(config, summary, tmp_path):
    quiet = raysim.run(config, {"logging.tensorboard": False}, out=tmp_path / "quiet", local=True)
    assert not list((tmp_path / "quiet").rglob("events.out.*"))
    assert quiet.model_sha256 == summary["model_sha256"]


def test_the_result_has_the_summarys_keys_and_loads_again(run, summary):
    result, out = run
    assert {key: getattr(result, key) for key in SUMMARY} == summary
    assert result.directory == out
    assert raysim.load(out) == result
    assert raysim.load(str(out)).model_sha256 == summary["model_sha256"]


def test_a_summary_of_a_raysim_that_did_not_count_steps_loads(summary, tmp_path):
    (tmp_path / "summary.json").write_text(json.dumps({key: value for key, value in summary.items() if key != "steps"}))
    assert raysim.load(tmp_path).steps is None


def test_a_summary_of_a_raysim_without_metrics_over_time_gets_what_the_matrices_say(run, summary, tmp_path):
    old = {key: value for key, value in summary.items() if key != "test_samples"}
    old["evaluation"] = {"class_il": {key: summary["evaluation"]["class_il"][key] for key in METRICS[:6]}}
    (tmp_path / "summary.json").write_text(json.dumps(old))
    found, new = raysim.load(tmp_path), run[0].evaluation["class_il"]
    assert (found.test_samples, list(found.evaluation)) == ((), ["class_il"])
    assert found.evaluation["class_il"] == {key: new[key] for key in METRICS[:7]}


def test_a_run_that_an_older_raysim_began_ends_without_the_second_reading():
    totals = Totals([0])
    totals.begin({"class_il": [0.25], "task_il": [0.5]})
    totals.matrices = json.loads(json.dumps(totals.matrices))  # as a checkpoint keeps it
    evaluation = {"class_il": [0.5], "class_il_seen": [0.75], "task_il": [1.0]}
    totals.add(RoundDone(1, [1], [0], 0.5, 1, 1, 0.1, [0], 1.0, evaluation=evaluation, task_done=True))
    assert list(totals.summarise(True, ACCURACY_METRIC, [4])["evaluation"]) == ["class_il", "task_il"]


def test_what_is_no_run_does_not_load(tmp_path):
    with pytest.raises(ConfigError, match=r"summary\.json: No such file"):
        raysim.load(tmp_path)
    for text, words in (("{", "invalid JSON"), ("{}", "name: field required"), ("[]", "should be an object")):
        (tmp_path / "summary.json").write_text(text)
        with pytest.raises(ConfigError, match=words):
            raysim.load(tmp_path)


def test_a_directory_that_is_taken_is_refused_before_anything_is_written(config, tmp_path):
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(ConfigError, match="this directory is not empty, allowed: a new or empty one") as found:
        raysim.run(config, out=tmp_path, local=True)
    assert "\n" not in str(found.value)
    assert "--resume" not in str(found.value)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    (tmp_path / "config.yaml").write_text("of a run")
    with pytest.raises(ConfigError, match=rf"a new or empty one; to continue its run: .*--resume --out {tmp_path}$"):
        claim_directory(tmp_path)
    with pytest.raises(ConfigError, match="this is a file"):
        claim_directory(tmp_path / "mine.txt")


def test_an_empty_directory_may_be_used(tiny, tmp_path):
    result = raysim.run(tiny(logging={"tensorboard": False}), out=tmp_path, local=True)
    assert result.status == "done"


def test_the_default_directory_has_the_runs_name_and_seed(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = raysim.run(tiny(logging={"tensorboard": False}, seed=3), local=True)
    assert result.directory.parts[:3] == ("runs", "tiny", "seed-3")
    assert (tmp_path / result.directory / "summary.json").is_file()


@pytest.mark.parametrize(
    ("methods", "given", "label"),
    [
        ({}, [], ""),
        ({}, ["name=other", "seed=1", "logging.tensorboard=false", "resources={clients_per_actor: 2}"], ""),
        ({"er": {}}, ["training.optimizer.lr=1e-3"], "er,lr=0.001"),
        ({}, {"methods": {"der": {"alpha": 0.3}, "probes:Everything": {}}}, "der+Everything,alpha=0.3"),
        ({}, ["methods={er: {}}", "methods.er.sample_size=4"], "er,sample_size=4"),
        (
            {},
            ["partition={kind: dirichlet, alpha: 0.1}", "model.hidden=[64, 3]"],
            "partition=dirichlet,alpha=0.1,hidden=64_3",
        ),
        ({}, [f"model.hidden=[{', '.join('7' * 60)}]"], "hidden=" + "7_" * 46 + "7"),
    ],
)
def test_a_runs_label_says_its_methods_and_what_was_given(tiny, methods, given, label):
    """At most 100 characters, and none that a shell would take apart; nothing that changes no result."""
    config = load(tiny(methods=methods), given)
    assert label_run(config, given) == label
    assert shlex.quote(label) == (label or "''")


def test_the_default_directory_has_the_runs_label(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = raysim.run(tiny(), ["methods={er: {}}", "training.batch_size=6", "logging.tensorboard=false"], local=True)
    assert re.fullmatch(r"\d{8}-\d{6}-er,batch_size=6", result.directory.name)


def test_runs_of_the_same_second_have_directories_of_their_own(tiny, tmp_path, monkeypatch):
    class Noon:
        @staticmethod
        def now():
            return datetime(2026, 1, 2, 12, 0, 0)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("raysim.launch.resolving.datetime", Noon)
    results = [raysim.run(tiny(logging={"tensorboard": False}), local=True) for _ in range(3)]
    names = ["20260102-120000", "20260102-120000-2", "20260102-120000-3"]
    assert [result.directory.name for result in results] == names


def test_a_directory_is_made_when_it_is_chosen(tiny, tmp_path, monkeypatch):
    """So runs that start at the same time do not choose the same one. One that nothing was written to is removed."""
    monkeypatch.chdir(tmp_path)
    chosen = [make_default_directory(tiny()) for _ in range(3)]
    assert len({made[0] for made in chosen}) == 3
    assert all(made[0].is_dir() for made in chosen)
    assert [len(made) for made in chosen] == [4, 1, 1]  # runs, tiny and seed-0 are the first one's
    for made in reversed(chosen):
        made[0].rmdir()
    for path in chosen[0][1:]:
        path.rmdir()
    with pytest.raises(ConfigError, match="there is no folder"):
        raysim.run(tiny(), {"dataset": {"name": "image_folder", "path": "nowhere", "size": 8}}, local=True)
    assert not list(tmp_path.iterdir())


def test_runs_that_leads_nowhere_is_named(tiny, tmp_path, monkeypatch):
    """As a link to scratch that was purged."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").symlink_to(tmp_path / "purged")
    with pytest.raises(ConfigError, match=rf"runs is a link to {tmp_path}/purged, which does not exist; make that"):
        raysim.run(tiny(), local=True)


def test_a_name_that_the_locale_lacks_is_explained(tiny, tmp_path, monkeypatch):
    def fail(*_, **__):
        "é".encode("ascii")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Path, "mkdir", fail)
    with pytest.raises(ConfigError, match=r"locale's encoding \(ascii\) lacks .*; set PYTHONUTF8=1 or LANG"):
        raysim.run(tiny(name="expérience"), local=True)


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.EIO])
def test_a_file_system_that_cannot_sync_has_done_what_it_can(number, tiny, tmp_path, monkeypatch):
    """As some of FUSE. Another error, such as EIO, is one."""

    def refuse(file):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    config = tiny(logging={"tensorboard": False}, checkpoint={"every_rounds": 1})
    if number == errno.EIO:
        with pytest.raises(RunError, match="could not be written"):
            raysim.run(config, out=tmp_path / "run", local=True)
    else:
        assert raysim.run(config, out=tmp_path / "run", local=True).status == "done"


def test_a_run_that_fails_says_so_in_its_summary(tiny, tmp_path):
    config = tiny(training__optimizer={"lr": 1e30}, logging={"tensorboard": False})
    with pytest.raises(Diverged, match="client 0 diverged in round 1") as found:
        raysim.run(config, out=tmp_path / "run", local=True)
    result = raysim.load(tmp_path / "run")
    assert (result.status, result.rounds, result.model_sha256) == ("failed", 0, None)
    assert result.problem == str(found.value)
    assert result.evaluation["domain_il"]["average_accuracy"] is None
    assert result.seconds_per_round is None


def test_one_task_has_nulls_and_no_nan(tiny, tmp_path):
    result = raysim.run(tiny(scenario__tasks=1), {"logging.tensorboard": False}, out=tmp_path / "run", local=True)
    values = result.evaluation["domain_il"]
    assert {key: values[key] for key in METRICS[2:6]} == dict.fromkeys(METRICS[2:6])
    assert math.isfinite(values["average_accuracy"])
    assert "NaN" not in (tmp_path / "run" / "summary.json").read_text()


def test_a_checkpoint_is_of_files_that_are_on_the_disk(tiny, tmp_path, monkeypatch):
    """After a power failure a file has at least what was synced. The checkpoint's sizes may not be larger."""
    out, synced, sync = tmp_path / "out", {}, os.fsync

    class Records(Callback):
        def on_round(self, run, done):
            run.record("round", done.round)

    def watched(descriptor):
        sync(descriptor)
        synced[os.fstat(descriptor).st_ino] = os.fstat(descriptor).st_size

    monkeypatch.setattr(os, "fsync", watched)
    config = tiny(checkpoint__every_rounds=3, logging__tensorboard=True)  # of 4 rounds
    raysim.run(config, out=out, local=True, callbacks=[Records()])
    (manifest,) = out.glob("checkpoints/*/manifest.json")
    sizes = json.loads(manifest.read_text())["recorded"]["files"]
    assert [name.partition(".out.")[0] for name in sizes] == ["callbacks.jsonl", "events", "rounds.jsonl"]
    assert {name: synced.get((out / name).stat().st_ino) for name in sizes} == sizes


def test_what_a_method_records_is_json_even_where_it_is_not_finite(tmp_path):
    from raysim.engine.events import line

    event = RoundDone(1, [1], [0], 0.5, 1, 1, 0.1, [0], None, records={"a": math.nan, "b": math.inf, "c": 1.5})
    assert json.loads(json.dumps(line(event), allow_nan=False))["records"] == {"a": None, "b": None, "c": 1.5}


def test_torch_is_left_as_it_was_found(tiny, tmp_path):
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        torch.manual_seed(11)
        state = torch.random.get_rng_state()
        numpy_state = np.random.get_state()[1].copy()
        raysim.run(tiny(model__dropout=0.5, logging={"tensorboard": False}), out=tmp_path / "run", local=True)
        assert torch.get_num_threads() == 3
        assert torch.equal(torch.random.get_rng_state(), state)
        assert (np.random.get_state()[1] == numpy_state).all()
        assert not torch.are_deterministic_algorithms_enabled()
    finally:
        torch.set_num_threads(threads)


def test_what_the_callers_generator_says_does_not_matter(tiny, simulate):
    config = tiny(model__dropout=0.5)
    torch.manual_seed(1)
    first = simulate(config).sha256
    torch.manual_seed(2)
    torch.rand(3)
    assert simulate(config).sha256 == first


def test_a_run_does_not_import_torchs_compiler():
    """It costs seconds: torch.optim and use_deterministic_algorithms would bring it."""
    script = (
        "import sys, torch, conftest\n"
        "names = ['torch._dynamo', 'torch._inductor']\n"
        "names += [] if torch.__version__.startswith('2.9.') else ['sympy']\n"  # which torch 2.9 imports itself
        "for optimizer in ({'lr': 0.1, 'momentum': 0.5}, {'name': 'adam'}):\n"
        "    other = {'training__optimizer': optimizer, 'model__dropout': 0.5, 'dataset': {'name': 'digits'}}\n"
        "    conftest.run_here(conftest.tiny_config(**other))\n"
        "print([name for name in names if name in sys.modules])"
    )
    tests = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", script], cwd=tests, capture_output=True, text=True, timeout=120)
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr
