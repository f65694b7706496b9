"""Partitions by a column: clients non-IID by topic where the next token is learned, or by what is no label."""

import json
from typing import Any

import numpy as np
import pytest
from tiny_tokenizers import word_level

from raysim.config import load
from raysim.federation.federation import Federation, build_federation
from raysim.system.errors import ConfigError

TOPICS = ("sea", "sky", "sun")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """36 training texts of three topics at two sites in turn. Their targets are next tokens."""
    folder = tmp_path_factory.mktemp("texts")
    lines = [
        {"text": f"the {TOPICS[number % 3]}", "label": TOPICS[number % 3], "site": "ab"[number % 2], "split": part}
        for part, count in (("train", 36), ("test", 12))
        for number in range(count)
    ]
    (folder / "t.jsonl").write_text("\n".join(map(json.dumps, lines)))
    dataset = {"name": "text_jsonl", "root": str(folder), "path": "t.jsonl", "columns": ["site"], "length": 4}
    tokens = {"tokenizer": word_level(folder / "words", ["the", *TOPICS]), "target": "next_token"}
    return {
        "name": "topics",
        "dataset": {**dataset, **tokens},
        "objective": "next_token",
        "scenario": {"kind": "by_column", "column": "label", "tasks": 3},
        "clients": {"count": 3},
        "model": {"name": "transformer", "output": "token"},
        "training": {"rounds_per_task": 1},
    }


def build(keys: dict[str, Any], *overrides: str) -> Federation:
    return build_federation(load(keys, list(overrides)))


def held(federation: Federation, column: str) -> list[set[str]]:
    """Return the values of a column that each client has."""
    values = federation.dataset.train.columns[column]
    return [set(values[np.concatenate(stream.rows)].tolist()) for stream in federation.streams]


def test_clients_differ_by_topic_where_tokens_are_learned(keys: dict[str, Any]) -> None:
    """With one class each, each of three clients has one of the three topics, and 12 texts."""
    one_task = ["scenario.column=site", "scenario.tasks=1", "partition.classes_per_client=1"]
    federation = build(keys, "partition={kind: pathological, by: label}", *one_task)
    assert sorted(map(sorted, held(federation, "label"))) == [["sea"], ["sky"], ["sun"]]
    assert [len(stream) for stream in federation.streams] == [12, 12, 12]
    by_draw = build(keys, "partition={kind: dirichlet, by: label, alpha: 0.1, min_samples: 1}", *one_task[:2])
    counts = [len(stream) for stream in by_draw.streams]
    assert sum(counts) == 36
    assert len(set(counts)) > 1


def test_tasks_are_by_topic_where_tokens_are_learned(keys: dict[str, Any]) -> None:
    federation = build(keys)
    assert [task.name for task in federation.tasks] == ["label sea", "label sky", "label sun"]
    assert [len(task.train) for task in federation.tasks] == [12, 12, 12]
    assert {tuple(row) for row in federation.dataset.train.y[federation.tasks[1].train].tolist()} == {(4, 6, 3, -100)}


def test_labels_may_be_divided_by_another_column(keys: dict[str, Any]) -> None:
    """Two clients with one site each have all labels."""
    by_label = {**keys, "dataset": {**keys["dataset"], "target": "label"}, "objective": "classification"}
    kind = "partition={kind: pathological, by: site, classes_per_client: 1}"
    federation = build(by_label, kind, "scenario={kind: class_incremental, tasks: 1}", "clients.count=2")
    assert sorted(map(sorted, held(federation, "site"))) == [["a"], ["b"]]
    counts = [np.bincount(federation.dataset.train.y[np.concatenate(s.rows)]).tolist() for s in federation.streams]
    assert counts == [[6, 6, 6], [6, 6, 6]]


@pytest.mark.parametrize(
    ("partition", "message"),
    [
        ("{kind: dirichlet, by: lable}", r"partition\.by: found 'lable', allowed: .*; did you mean 'label'\?"),
        ("{kind: iid, by: label}", "partition.by: found 'label', allowed: null with iid, which has no use for it"),
        ("{kind: natural, by: label}", "partition.by: found 'label', allowed: null with natural"),
        ("{kind: dirichlet}", "partition.kind: found 'dirichlet', allowed: iid, quantity, .*, or partition.by with"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(keys: dict[str, Any], partition: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(keys, f"partition={partition}")
