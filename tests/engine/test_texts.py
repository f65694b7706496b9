"""Runs on texts: ids reach models, memories and methods as whole numbers, and every method serves or is refused."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from costs import cost_of
from small_runs import ADAPTED, PROMPTED, small_run

import raysim
from raysim.config.lookup import table
from raysim.data.dataset import Declared, stand_in
from raysim.data.scenario import Task
from raysim.engine.compatibility import check_fit, check_methods
from raysim.engine.orders import Order, RoundInfo, Train
from raysim.estimate.memory import estimate_memory
from raysim.federation.federation import build_federation
from raysim.models.building import check_model
from raysim.system.errors import ConfigError

SMALL = {"name": "transformer", "width": 4, "layers": 1, "heads": 2, "feedforward": 4, "dropout": 0.3}
WORDS = ("goal match cup", "court law judge", "plant leaf root", "film actor scene")
COUNTED = {"der": {"alpha": 0.5, "beta": 0.5}, "re_fed": {"epochs": 2}, "af_fcl": {"width": 2, "tail": 1}}


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """36 + 20 texts of 3 to 6 words in four classes; each has a word of its own, so the vocabulary is 2 + 36 + 14."""
    path, draws = tmp_path_factory.mktemp("texts") / "texts.jsonl", np.random.default_rng(2)
    lines = []
    for number, (split, label) in enumerate([*itertools.product(["train"] * 9 + ["test"] * 5, range(4))]):
        drawn = draws.choice([*WORDS[label].split(), "the", "of"], draws.integers(2, 6))
        lines.append({"text": f"n{number} {' '.join(drawn)}", "label": label, "split": split})
    path.write_text("\n".join(map(json.dumps, lines)))
    return {"name": "text_jsonl", "path": str(path), "length": 6}


@pytest.fixture(scope="module")
def asked(tiny, texts):
    """A function: a config of texts by class, two classes in each of two tasks."""

    def make(**keys):
        scenario = {"kind": "class_incremental", "tasks": 2}
        usual = {"dataset": texts, "scenario": scenario, "model": SMALL, "memory": {"capacity": 6}}
        return tiny(**{**usual, "partition": "iid", **keys})

    return make


GENERATING = [name for name in table("method") if "dataset__shape" in small_run(name)]  # that is, images
REFUSED = {
    **dict.fromkeys(GENERATING, "generates images, but the samples have the shape"),
    **dict.fromkeys(PROMPTED, "found no prompts"),
    **dict.fromkeys(ADAPTED, "found no adapters"),
}
# a third of the methods, and those that are refused; the soak tests have the others
IN_TURN = [
    pytest.param(name, marks=() if name in REFUSED or number % 3 == 0 else pytest.mark.soak)
    for number, name in enumerate(table("method"))
]


@pytest.mark.parametrize("name", IN_TURN)
def test_every_method_trains_on_texts(asked, texts, simulate, name):
    """However clients are packed; and what `raysim check` says of bytes and steps is so."""
    config = asked(
        methods={name: COUNTED.get(name, {})},
        dataset={**texts, "unlabelled": texts} if name == "cfed" else texts,
        training__optimizer__lr=0.05,
    )
    check_methods(config)
    federation = build_federation(config)
    if name in REFUSED:
        with pytest.raises(ConfigError, match=f"methods.{name}: {REFUSED[name]}"):
            check_fit(config, check_model(config, federation.shape, 4, federation.vocabulary), 4)
        return
    run = simulate(config, federation)
    assert all(value.isfinite().all() for value in run.state.values())
    assert simulate(config, federation, [(2,), (1, 0)]).sha256 == run.sha256
    cost = cost_of(config, federation)
    assert cost.unsure_steps or cost.steps == sum(r.steps for r in run.rounds)
    assert cost.unsure_bytes or sum(cost.up.values()) == sum(r.bytes_up for r in run.rounds)


@pytest.mark.parametrize("dtype", ["int64", "float32", "uint8"])
def test_samples_reach_the_model_as_they_are(asked, host_of, tmp_path, dtype):
    """Steps and replayed batches are rows of the dataset: ids whole, features as they are, pixels by 255."""
    x = np.random.default_rng(0).integers(0, 9, (24, 5)).astype(dtype)
    arrays = {"x_train": x, "y_train": np.arange(24) % 4, "x_test": x[:8], "y_test": np.arange(8) % 4}
    np.savez(tmp_path / "some.npz", **arrays)
    model = SMALL if dtype == "int64" else {"name": "mlp", "hidden": [3]}
    dataset = {"name": "npz", "path": str(tmp_path / "some.npz")}
    host, batches = host_of(asked(methods={"er": {}}, dataset=dataset, model=model)), []
    shown = {tuple(row) for row in (x.astype(np.float32) / (np.float32(255) if dtype == "uint8" else 1)).tolist()}
    original = host.model.forward
    host.model.forward = lambda given: (batches.append(given), original(given))[1]
    for number in (1, 2):
        host.perform(Order(Train(), (0, 1), {0: 0.5, 1: 0.5}, 2, RoundInfo(number, 0, 0.05)), {})
    assert max(map(len, batches)) == 8  # 4 and as many replayed ones
    assert {batch.dtype for batch in batches} == {torch.int64 if dtype == "int64" else torch.float32}
    assert {tuple(row) for batch in batches for row in batch.tolist()} <= shown


def test_what_is_for_images_is_refused(asked, texts):
    def refused(**keys):
        with pytest.raises(ConfigError) as found:
            build_federation(asked(**keys))
        assert "\n" not in str(found.value)
        return str(found.value)

    for shift in ("rotation", "permutation"):
        found = refused(scenario={"kind": "domain_incremental", "tasks": 2, "shift": shift})
        assert found.startswith(
            f"scenario.shift: found {shift} for samples that are ids, such as tokens of text, allowed"
        )
    for normalize in ("standard", {"mean": [0.5], "std": [0.5]}):
        assert "such as token ids, allowed: none" in refused(dataset={**texts, "normalize": normalize})
    found = refused(dataset={**texts, "augment": ["crop"]})
    assert found == "dataset.augment: crop needs images (C, H, W), the samples are ids of shape (6,)"
    plain = {"name": "synthetic", "classes": 4, "shape": [6], "train": 9}
    found = refused(dataset={**texts, "unlabelled": plain})
    assert found == "dataset.unlabelled: found samples that are numbers, allowed: ids up to 51, as in dataset"


def test_the_unlabelled_texts_have_the_first_ones_ids(asked, texts, tmp_path):
    """Of its words only "goal" is in the first vocabulary, and "goal" is the first word of its own."""
    lines = [{"text": "goal goal zzz", "label": 0, "split": split} for split in ("train", "train", "train", "test")]
    (tmp_path / "more.jsonl").write_text("\n".join(map(json.dumps, lines)))
    second = {**texts, "path": str(tmp_path / "more.jsonl")}
    federation = build_federation(asked(dataset={**texts, "unlabelled": second}))
    goal = federation.dataset.words.index("goal") + 2
    assert federation.unlabelled.split.x.tolist() == 3 * [[goal, goal, 1, 0, 0, 0]]


def test_domains_of_texts_are_tasks(asked, texts, simulate, tmp_path):
    lines = [
        json.dumps({"text": f"goal z{n}", "label": n % 4, "split": "train" if n < 36 else "test"}) for n in range(48)
    ]
    (tmp_path / "other.jsonl").write_text("\n".join(lines))
    shift = {"domains": [texts, {**texts, "path": str(tmp_path / "other.jsonl")}]}
    config = asked(
        scenario={"kind": "domain_incremental", "tasks": 2, "shift": shift}, model={"name": "bag_of_embeddings"}
    )
    federation = build_federation(config)
    assert federation.vocabulary == 52 + 36  # "goal" is in both; words of the test texts alone are in none
    assert len(simulate(config, federation).rounds) == 4


def test_other_texts_are_evaluated_with_the_words_of_the_run(asked, texts, tmp_path):
    """The same tests in a file with other training texts, and so another vocabulary: the same accuracies."""
    config = asked(training__rounds_per_task=4, training__optimizer__lr=1.0, logging={"tensorboard": False})
    run = raysim.run(config, {}, out=tmp_path / "run", local=True)
    lines = [json.loads(line) for line in Path(texts["path"]).read_text().splitlines()]
    for line in lines:
        line["text"] = "others " + line["text"] if line["split"] == "train" else line["text"]
    (tmp_path / "other.jsonl").write_text("\n".join(map(json.dumps, lines[::-1])))
    keys = [f"dataset.path={tmp_path / 'other.jsonl'}"]
    found = raysim.evaluate(tmp_path / "run", keys)
    assert found.evaluation["class_il"]["accuracy"] == run.evaluation["class_il"]["accuracy"][-1]


def test_one_of_several_domains_is_evaluated_with_the_words_of_all(asked, texts, tmp_path):
    """The model's ids are those of both domains' words, and the accuracy is that of the run's last row."""
    lines = [
        json.dumps({"text": f"a{n} goal", "label": n % 4, "split": "train" if n < 36 else "test"}) for n in range(48)
    ]
    (tmp_path / "other.jsonl").write_text("\n".join(lines))
    other = {**texts, "path": str(tmp_path / "other.jsonl")}
    scenario = {"kind": "domain_incremental", "tasks": 2, "shift": {"domains": [other, texts]}}
    rate = {"training__rounds_per_task": 4, "training__optimizer__lr": 1.0, "logging": {"tensorboard": False}}
    run = raysim.run(asked(scenario=scenario, **rate), {}, out=tmp_path / "run", local=True)
    alone = {"kind": "domain_incremental", "tasks": 1, "shift": {"domains": [texts]}}
    found = raysim.evaluate(tmp_path / "run", {"scenario": alone})
    assert found.evaluation["domain_il"]["accuracy"] == run.evaluation["domain_il"]["accuracy"][-1][1:]


def test_what_a_run_takes_is_known_before(asked):
    """36 + 20 texts of 6 ids and a label: (36 + 20) * 7 * 8 = 3,136 bytes. A step's activations are those by hand."""
    config = asked()
    federation = build_federation(config)
    need = estimate_memory(config, federation, check_model(config, (6,), 4, federation.vocabulary))
    assert need.data == 3136


def test_declared_ids_stand_in_for_missing_texts(asked):
    """With the number of ids that is declared, as the model's size depends on it."""
    dataset = stand_in(Declared((6,), train=24, test=8, classes=4, dtype="int64", vocabulary=70), "mine")
    assert (dataset.vocabulary, dataset.train.x.dtype) == (70, np.int64)
    config = asked(model={"name": "bag_of_embeddings", "width": 3})
    model = check_model(config, dataset.shape, dataset.classes, dataset.vocabulary)
    assert len(model.parameters) == 70 * 3 + 3 * 4 + 4


def test_a_causal_transformer_learns_which_token_follows(tmp_path):
    """After token t comes t + 1, of seven. Untrained, a guess: the perplexity is near 7; learnt, it is near 1."""
    starts = np.arange(56)[:, None] % 7
    ids = (starts + np.arange(6)) % 7  # int64 [56, 6]
    arrays = {"x_train": ids[:, :-1], "y_train": ids[:, 1:], "x_test": ids[:14, :-1], "y_test": ids[:14, 1:]}
    np.savez(tmp_path / "tokens.npz", **arrays)
    config = {
        "name": "tokens",
        "dataset": {"name": "npz", "path": "tokens.npz", "root": str(tmp_path)},
        "scenario": {"kind": "test_texts:halves", "tasks": 2},
        "clients": {"count": 2},
        "model": {"name": "transformer", "width": 16, "layers": 1, "heads": 2, "causal": True, "output": "token"},
        "objective": "next_token",
        "training": {"rounds_per_task": 6, "batch_size": 4, "optimizer": {"name": "adam", "lr": 0.01}},
        "methods": {"er": {}},
        "memory": {"capacity": 8},
        "logging": {"tensorboard": False},
    }
    found = raysim.run(config, out=tmp_path / "run", local=True).evaluation["domain_il"]
    assert (found["metric"], found["higher_is_better"]) == ("perplexity", False)
    assert all(1.0 <= value < 1.3 for value in found["accuracy"][-1])
    assert found["forward_transfer"] > 2  # the second task, before its training, is far below the guess


def halves(dataset, tasks, generator):
    """Equal parts of the training samples, each tested on all."""
    test = np.arange(len(dataset.test), dtype=np.int32)
    parts = np.array_split(np.arange(len(dataset.train), dtype=np.int32), tasks)
    return [Task(f"part {number}", tuple(range(7)), None, rows, test) for number, rows in enumerate(parts, 1)]
