"""A finished run's model, evaluated again: on its own tests, on others, and on what it does not fit."""

import json
import os
import resource
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_tokenizers import word_level

import raysim
from raysim.cli import main
from raysim.config import Config, load
from raysim.config.yaml_text import to_yaml_line
from raysim.evaluation import scoring
from raysim.evaluation.finished_run import check_held_out
from raysim.system.errors import ConfigError

CLASSES = {"kind": "class_incremental", "tasks": 2}
TEXT = {"name": "bag_of_embeddings", "width": 4, "hidden": []}


@pytest.fixture(scope="module")
def done(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run of two tasks of two classes."""
    out = tmp_path_factory.mktemp("runs") / "done"
    config = tiny(scenario=CLASSES, logging__tensorboard=False, evaluation__per_client=True)
    return raysim.run(config, out=out, local=True)


def test_on_its_own_tests_it_is_the_last_row_of_its_matrix(done: Any) -> None:
    found = raysim.evaluate(done.directory)
    assert found.tasks == ["classes 0 1", "classes 2 3"]
    assert (found.split, found.samples) == ("test", [10, 10])
    assert list(found.evaluation) == ["class_il", "task_il"]  # the second reading of class-IL is the first one then
    assert done.evaluation["class_il_seen"]["accuracy"][-1] == done.evaluation["class_il"]["accuracy"][-1]
    for protocol in found.evaluation:
        values = done.evaluation[protocol]
        assert found.evaluation[protocol] == {
            "accuracy": values["accuracy"][-1],
            "average_accuracy": values["average_accuracy"],
        }
    assert found.per_client == done.per_client


def test_other_scenarios_and_data(done: Any) -> None:
    whole = raysim.evaluate(done.directory, ["scenario={kind: domain_incremental, tasks: 1, shift: permutation}"])
    assert (list(whole.evaluation), whole.samples) == (["domain_il"], [20])
    more = raysim.evaluate(done.directory, {"dataset.test": 60, "evaluation.per_client": False})
    assert (more.samples, more.per_client) == ([30, 30], None)


def test_what_a_run_held_out_is_what_it_may_be_validated_on(done: Any, tiny: Any, tmp_path: Path) -> None:
    """A run that holds nothing out has trained on every sample; one that does, on all others."""
    assert "that the run may have been trained on" in refusal(done.directory, "evaluation.split=validation")
    config = tiny(scenario=CLASSES, evaluation__split="validation", evaluation__validation_fraction=0.5)
    tuned = raysim.run(config, out=tmp_path / "tuned", local=True)
    found = raysim.evaluate(tuned.directory)
    assert (found.split, found.samples) == ("validation", [9, 9])
    assert found.evaluation["class_il"]["accuracy"] == tuned.evaluation["class_il"]["accuracy"][-1]
    assert raysim.evaluate(tuned.directory, ["evaluation.split=test"]).samples == [10, 10]
    same = raysim.evaluate(tuned.directory, ["scenario.online=true", "scenario.order=per_client"])
    assert same.evaluation["class_il"] == found.evaluation["class_il"]
    for other in ("evaluation.validation_fraction=0.2", "scenario.class_order=seeded", "dataset.train=60"):
        assert "that the run may have been trained on" in refusal(tuned.directory, other)


def test_weights_under_a_prefix_are_replaced_by_the_model(done: Any, tiny: Any, tmp_path: Path) -> None:
    """The file of the run's first weights has those of the first layer alone, and model.pt has all."""
    state = torch.load(done.directory / "model.pt")
    torch.save({name: state[f"1.{name}"] for name in ("weight", "bias")}, tmp_path / "first.pt")
    model = {"name": "mlp", "hidden": [5], "weights": str(tmp_path / "first.pt"), "prefix": "1."}
    run = raysim.run(tiny(scenario=CLASSES, model=model, logging__tensorboard=False), out=tmp_path / "run", local=True)
    found = raysim.evaluate(run.directory)
    assert found.evaluation["class_il"]["accuracy"] == run.evaluation["class_il"]["accuracy"][-1]


def test_other_samples_are_normalized_as_those_of_the_run_were(tiny: Any, tmp_path: Path) -> None:
    """The second file has all samples shifted by 3. In NumPy: the network on (x - mean) / std of the first file."""
    draws = np.random.default_rng(0)
    y = np.arange(80) % 4
    x = (np.eye(4, 6)[y] * 2 + draws.normal(size=(80, 6))).astype(np.float32)
    for name, shift in (("a", 0), ("b", 3)):
        parts = {"x_train": x[:40] + shift, "y_train": y[:40], "x_test": x[40:] + shift, "y_test": y[40:]}
        np.savez(tmp_path / f"{name}.npz", **parts)
    dataset = {"name": "npz", "path": "a.npz", "root": str(tmp_path), "normalize": "standard"}
    one = {"kind": "class_incremental", "tasks": 1}
    rate = {"training__rounds_per_task": 20, "logging__tensorboard": False}
    run = raysim.run(tiny(dataset=dataset, scenario=one, **rate), out=tmp_path / "run", local=True)
    found = raysim.evaluate(run.directory, ["dataset.path=b.npz"]).evaluation["class_il"]["average_accuracy"]
    state = {name: value.numpy() for name, value in torch.load(run.directory / "model.pt").items()}
    weights, biases = ([value for name, value in state.items() if name.endswith(end)] for end in ("weight", "bias"))
    inputs = (x[40:] + 3 - x[:40].mean()) / x[:40].std()

    def expected(scale: float) -> float:
        logits = np.maximum(scale * inputs @ weights[0].T + biases[0], 0) @ weights[1].T + biases[1]
        return float(np.mean(logits.argmax(1) == y[40:]))

    assert found == expected(1) < run.evaluation["class_il"]["average_accuracy"]
    scaled = raysim.evaluate(run.directory, ["dataset.path=b.npz", "dataset.input_scale=0.1"])
    assert scaled.evaluation["class_il"]["average_accuracy"] == expected(0.1) != expected(1)


def test_another_table_is_refused_and_other_tests_are_not(tiny: Any, tmp_path: Path) -> None:
    """In the second table the ids of the categories would be others."""
    for name, colors in (("one", "abc"), ("two", "bcd"), ("more", "cab")):
        rows = [f"{colors[n % 3]},{n % 2}" for n in range(30)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["color,target", *rows]) + "\n")
    keys = {
        "path": "one.csv",
        "target": "target",
        "target_kind": "label",
        "categories": ["color"],
        "root": str(tmp_path),
    }
    given = {"dataset": {"name": "csv", **keys}, "model": {"name": "table_mlp"}, "logging__tensorboard": False}
    run = raysim.run(
        tiny(scenario={"kind": "class_incremental", "tasks": 1}, **given), out=tmp_path / "run", local=True
    )
    assert refusal(run.directory, "dataset.path=two.csv").startswith(
        "dataset: found another path, with which numbers, "
    )
    assert raysim.evaluate(run.directory, ["dataset.test=more.csv"]).samples == [30]


def test_tests_among_training_samples_are_refused(tiny: Any, tmp_path: Path) -> None:
    """Another part for testing is drawn from the samples that the run was trained on, as are those of its file."""
    for name in ("one", "two"):
        rows = [f"{n},{n % 2}" for n in range(30)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["size,target", *rows]) + "\n")
    keys = {"name": "csv", "path": "one.csv", "target": "target", "root": str(tmp_path)}
    given = {"scenario": {"kind": "class_incremental", "tasks": 1}, "logging__tensorboard": False}
    drawn = raysim.run(tiny(dataset=keys, **given), out=tmp_path / "drawn", local=True).directory
    apart = raysim.run(tiny(dataset={**keys, "test": "two.csv"}, **given), out=tmp_path / "apart", local=True).directory
    among = ", which draws tests among the samples that the run may have been trained on, allowed: "
    for directory, override, found in (
        (drawn, "dataset.seed=1", f"dataset.seed: found 1{among}0, as in the run"),
        (drawn, "dataset.test_fraction=0.4", f"dataset.test_fraction: found 0.4{among}0.2, as in the run"),
        (apart, "dataset.test=null", f"dataset.test: found null{among}a file of tests, as in the run"),
        (
            drawn,
            "dataset.test=one.csv",
            "dataset.test: found what the run was trained on, allowed: another file or split",
        ),
        (drawn, "dataset.test=./one.csv", "dataset.test: found what the run was trained on, allowed: another file"),
    ):
        assert refusal(directory, override).startswith(found)
    assert raysim.evaluate(drawn, ["dataset.test=two.csv"]).samples == [30]
    on_itself = raysim.run(tiny(dataset={**keys, "test": "one.csv"}, **given), out=tmp_path / "same", local=True)
    assert raysim.evaluate(on_itself.directory).samples == [30]


def test_tests_are_checked_by_their_files_whatever_names_them(tiny: Any, tmp_path: Path) -> None:
    """The lines of one.jsonl say which are tests; with another key for that, tests are drawn among all of them."""
    for name in ("one", "two"):
        lines = [{"text": f"word{n % 5}", "label": n % 2, "split": "test" if n < 10 else "train"} for n in range(30)]
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    keys = {"name": "text_jsonl", "path": "one.jsonl", "length": 4, "root": str(tmp_path)}
    given = {"scenario": {"kind": "class_incremental", "tasks": 1}, "logging__tensorboard": False, "model": TEXT}
    run = raysim.run(tiny(dataset=keys, **given), out=tmp_path / "run", local=True).directory
    assert raysim.evaluate(run).samples == [10]
    for other in ("dataset.split=other", "dataset.path=./one.jsonl dataset.split=other"):
        assert refusal(run, *other.split()).startswith("dataset.split: found 'other', which draws tests among")
    assert "found what the run was trained on" in refusal(run, "dataset.path=two.jsonl", "dataset.test=one.jsonl")
    (tmp_path / "moved").mkdir()
    shutil.copy(tmp_path / "one.jsonl", tmp_path / "moved")
    elsewhere = f"dataset.root={tmp_path / 'moved'}"
    assert raysim.evaluate(run, [elsewhere]).samples == [10]
    assert refusal(run, elsewhere, "dataset.split=other").startswith("dataset.split: found 'other', which draws tests")


def test_labels_and_lists_of_files_decide_which_tests_are_drawn(tiny: Any, tmp_path: Path) -> None:
    """A part of each label is drawn, and of each file by its place in the list."""
    for name in ("one", "two", "new"):
        lines = [{"prompt": f"w{n % 5}", "answer": "w1 w2", "topic": f"t{n % 3}", "kind": "k"} for n in range(12)]
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    words = word_level(tmp_path / "words", [f"w{n}" for n in range(5)])

    def settings(**keys: Any) -> Config:
        dataset = {"root": str(tmp_path), "tokenizer": words, "length": 8, **keys}
        return load(tiny(dataset=dataset, scenario={"kind": "domain_incremental", "tasks": 1}, objective="next_token"))

    texts = {"name": "text_jsonl", "path": "one.jsonl", "text": "prompt", "target": "next_token"}
    files = {"name": "instructions", "path": ["one.jsonl", "two.jsonl"]}
    for run, other, message in (
        ({**texts, "label": "topic"}, {**texts, "label": "kind"}, "dataset.label: found 'kind', which draws tests"),
        ({**texts, "label": "topic"}, {**texts, "label": None}, "dataset.label: found null, which draws tests"),
        (files, {**files, "path": "two.jsonl"}, r"dataset.path: found \['two.jsonl'\], with a file that the run"),
        (files, {**files, "path": "new.jsonl", "test": "two.jsonl"}, "dataset.test: found what the run was trained on"),
    ):
        with pytest.raises(ConfigError, match=message):
            check_held_out(settings(**run), settings(**other))
    check_held_out(settings(**files), settings(**{**files, "path": "new.jsonl"}))


def test_tests_of_a_set_by_name_are_drawn_by_its_seed(tiny: Any) -> None:
    one, two = (load(tiny(dataset={"name": "imagenet_a", "seed": seed})) for seed in (0, 1))
    check_held_out(one, one)
    with pytest.raises(ConfigError, match=r"dataset\.seed: found 1, which draws tests among .*allowed: 0"):
        check_held_out(one, two)


def test_every_domain_is_checked(tiny: Any, tmp_path: Path) -> None:
    """A domain of the run's file with another seed has other tests, which the run was trained on."""
    for name in ("one", "two"):
        for label in ("a", "b"):
            (tmp_path / name / label).mkdir(parents=True)
            for n in range(10):
                image = Image.new("L", (4, 4), n)
                image.putpixel((0, 0), 200)  # raysim warns of a single color
                image.save(tmp_path / name / label / f"{n}.png")
    one, two = ({"name": "image_folder", "path": name, "size": 4} for name in ("one", "two"))
    scenario = {"kind": "domain_incremental", "tasks": 2, "shift": {"domains": [one, two]}}
    dataset = {**one, "root": str(tmp_path)}
    run = raysim.run(tiny(dataset=dataset, scenario=scenario), out=tmp_path / "run", local=True).directory
    assert raysim.evaluate(run).samples == [4, 4]
    seeds = f"scenario.shift.domains={to_yaml_line([one, {**two, 'seed': 1}])}"
    assert refusal(run, seeds).startswith("dataset.seed: found 1, which draws tests among")


def test_prompts_are_those_of_the_runs_tasks(tiny: Any, tmp_path: Path) -> None:
    """CODA-Prompt's pool has two components for each of two tasks. All four are used, whatever tasks the tests have.

    Without a mask of the task, the accuracy over all samples does not depend on how they are divided: 20 tests of two
    tasks of ten.
    """
    dataset = {"name": "synthetic", "classes": 4, "shape": [1, 6, 6], "train": 36, "test": 20}
    prompts = {"kind": "coda", "blocks": [0], "pool": 4, "per_task": 2, "length": 2}
    model = {"name": "vit", "width": 8, "depth": 1, "heads": 1, "patch": 3, "input_size": None, "prompts": prompts}
    rate = {"training__optimizer": {"name": "adam", "lr": 0.05}, "methods": {"fed_coda_prompt": {}}}
    run = raysim.run(tiny(dataset=dataset, model=model, scenario=CLASSES, **rate), out=tmp_path / "run", local=True)
    used: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scoring, "tell_task", lambda module, task, so_far: used.append(so_far))
        raysim.evaluate(run.directory)
        raysim.evaluate(run.directory, ["scenario={kind: class_incremental, tasks: 1}"])
    assert {*used} == {2}
    whole = raysim.evaluate(run.directory, ["scenario={kind: class_incremental, tasks: 1}"]).evaluation["class_il"]
    assert whole["average_accuracy"] == pytest.approx(run.evaluation["class_il"]["average_accuracy"])


def test_it_leaves_torch_and_the_directory_as_they_were(done: Any) -> None:
    before = (torch.get_num_threads(), torch.get_rng_state(), sorted(done.directory.iterdir()))
    raysim.evaluate(done.directory)
    assert torch.get_num_threads() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])
    assert sorted(done.directory.iterdir()) == before[2]


def refusal(directory: Path, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        raysim.evaluate(directory, overrides)
    return str(caught.value)


def test_what_does_not_fit_is_refused(done: Any, tmp_path: Path) -> None:
    said = refusal(done.directory, "dataset.classes=6")
    assert said.startswith(f"model.weights: {done.directory}/model.pt does not fit the model: of another shape: ")
    assert said.endswith(", 3.bias [4] for [6]")
    assert "does not fit the model" in refusal(done.directory, "dataset.shape=[7]")
    assert refusal(done.directory, "training.batch_size=3") == (
        "training.batch_size=3: found a key of training, which the trained model cannot change, allowed: keys of "
        "dataset, scenario, objective or evaluation"
    )
    assert refusal(done.directory, "evaluation.splt=test").startswith("evaluation.splt=test: unknown key 'splt'")
    assert "found 'train', allowed: test or validation" in refusal(done.directory, "evaluation.split=train")
    assert refusal(done.directory, "scenario.tasks=5").startswith("scenario.tasks: found 5, allowed: 1 to 4")
    assert refusal(tmp_path / "gone") == (
        f"{tmp_path}/gone/config.yaml: there is no such file; allowed: the directory of a run that is done"
    )


def test_a_directory_of_runs_is_answered_with_the_newest(tmp_path: Path) -> None:
    for age, run in enumerate(("quickstart/seed-0/new", "quickstart/seed-0/old", "quickstart/begun")):
        (tmp_path / run).mkdir(parents=True)
        for name in ("model.pt", "config.yaml")[: 1 if run.endswith("begun") else 2]:
            (tmp_path / run / name).touch()
            os.utime(tmp_path / run / name, (100 - age, 100 - age))
    assert refusal(tmp_path) == (
        f"{tmp_path}: found runs below it, allowed: the directory of one of them; "
        f"did you mean {tmp_path}/quickstart/seed-0/new?"
    )


class Owner:
    """What pickle would call a command for."""

    def __reduce__(self) -> Any:
        return print, ("owned",)


@pytest.mark.parametrize("content", ["cut", "pickle"])
def test_a_model_that_is_no_state_dict_is_refused_and_runs_no_code(
    done: Any, tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.yaml").write_bytes((done.directory / "config.yaml").read_bytes())
    if content == "cut":
        (tmp_path / "model.pt").write_bytes((done.directory / "model.pt").read_bytes()[:100])
    else:
        torch.save({"1.weight": Owner()}, tmp_path / "model.pt")
    words = "is cut off" if content == "cut" else "holds more than tensors, or is no file of torch's"
    assert (said := refusal(tmp_path)).startswith(f"model.weights: {tmp_path}/model.pt {words}")
    assert "weights_only" not in said
    assert "owned" not in capsys.readouterr().out


def test_the_command_prints_the_accuracies_and_writes_them(
    done: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "found.json"
    assert main(["evaluate", str(done.directory), "--out", str(out), "evaluation.split=test"]) == 0
    output, errors = capsys.readouterr()
    assert errors == ""
    record = json.loads(out.read_text())
    assert record["evaluation"] == raysim.evaluate(done.directory).evaluation
    assert record["per_client"] == done.per_client
    assert (record["tasks"], record["directory"]) == (["classes 0 1", "classes 2 3"], str(done.directory))
    first, second = record["evaluation"]["class_il"]["accuracy"]
    shown = output.splitlines()
    assert shown[0] == "accuracy in %, class-IL, test samples of each task"
    assert shown[1] == f"   1  {100 * first:5.1f}  classes 0 1 (10)"
    assert shown[2] == f"   2  {100 * second:5.1f}  classes 2 3 (10)"
    assert shown[3] == f"mean  {50 * (first + second):5.1f}"
    assert shown[8].startswith("accuracy in % on the clients' own classes and tasks, class-IL: mean ")
    assert main(["evaluate", str(done.directory), "--out", str(out)]) == 2
    assert capsys.readouterr().err == f"--out {out}: this is there already, allowed: a new file\n"
    assert main(["evaluate", str(done.directory), "--out", str(tmp_path / "no/found.json")]) == 2
    assert "No such file or directory, allowed: a file that can be written" in capsys.readouterr().err


def test_a_full_disk_leaves_nothing_of_the_file(done: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a full disk would, Linux refuses to write more than 100 bytes."""
    out = tmp_path / "new" / "found.json"
    out.parent.mkdir()
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        status = main(["evaluate", str(done.directory), "--out", str(out)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert status == 2
    assert capsys.readouterr().err.startswith(f"--out {out}: File too large, allowed: ")
    assert not [*out.parent.iterdir()]
