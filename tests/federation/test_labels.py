"""Few labels: how many of a client's samples have one, which, when the others arrive, and who sees them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from raysim import check as check_run
from raysim.config import load
from raysim.data.arrays import join_arrays
from raysim.data.dataset import Dataset, Split
from raysim.federation.federation import Federation, build_federation
from raysim.federation.labels import divide_by_label
from raysim.federation.stream import Stream
from raysim.federation.unlabelled import assign_unlabeled
from raysim.system.errors import ConfigError

RATE = {"dataset.label_rate": 0.25}


def split_of(labels: Any) -> Split:
    y = np.asarray(labels)
    return Split(np.arange(len(y), dtype=np.float32)[:, None], y)


def parts_of(*rows: Any) -> list[Any]:
    return [np.array(part, dtype=np.int32) for part in rows]


def by_window(stream: Stream) -> list[list[int]]:
    windows = [stream.span(window, window + 1) for window in range(stream.windows)]
    return [stream.locate(positions)[0].tolist() for positions in windows]


def test_the_counts_are_exact_by_client_task_and_class() -> None:
    """Rate .25. Client 0: 8 samples of class 0 and 2 of class 1 in task 0: 2 and 1 (.5 is rounded to 0, at least one);
    in task 1 6 of class 1: 2 (1.5 is rounded to 2). Client 1: 1 of class 0: 1; nothing of task 1.
    """
    labels = np.array([0] * 8 + [1] * 2 + [1] * 6 + [0])
    streams = [Stream(parts_of(range(10), range(10, 16))), Stream(parts_of([16], []))]
    known, others = divide_by_label(streams, split_of(labels), 0.25, seed=3)
    counts = [[np.bincount(labels[rows], minlength=2).tolist() for rows in stream.rows] for stream in known]
    assert counts == [[[2, 1], [0, 2]], [[1, 0], [0, 0]]]
    for stream, whole, rest in zip(known, streams, others, strict=True):
        for part, every, other in zip(stream.rows, whole.rows, rest.rows, strict=True):
            assert sorted([*part, *other]) == every.tolist()  # each sample is in one of the two


def test_a_larger_rate_adds_labels_and_another_seed_has_others() -> None:
    streams, split = [Stream(parts_of(range(40)))], split_of(np.arange(40) % 2)
    found = [
        {*divide_by_label(streams, split, rate, seed)[0][0].rows[0].tolist()}
        for rate, seed in ((0.1, 0), (0.3, 0), (0.3, 1))
    ]
    assert [len(rows) for rows in found] == [4, 12, 12]
    assert found[0] < found[1] != found[2]


def test_a_sample_that_returns_in_other_tasks_is_the_same_there() -> None:
    every = np.arange(12, dtype=np.int32)
    (known,), (others,) = divide_by_label([Stream([every] * 3)], split_of(np.zeros(12, np.int64)), 0.25, 0)
    assert len(known.rows[0]) == 3
    assert known.rows[0] is known.rows[1] is known.rows[2]  # and they share memory, as before
    assert not {*known.rows[0].tolist()} & {*others.rows[0].tolist()}


def test_targets_that_are_no_labels_count_as_one_class() -> None:
    y = np.linspace(0, 1, 20, dtype=np.float32)[:, None]
    split = Split(y, y)
    (known,), _ = divide_by_label([Stream(parts_of(range(12), range(12, 20)))], split, 0.5, 0)
    assert [len(rows) for rows in known.rows] == [6, 4]


def test_windows_stay_and_hold_what_they_held() -> None:
    """Windows of 4 of ten samples in two portions: what has a label and what has none are, together, the window."""
    stream = Stream(parts_of(range(6), range(6, 10)), [0, 1], windows=[4, 8, 10], stages=[0])
    (known,), (others,) = divide_by_label([stream], split_of(np.zeros(10, np.int64)), 0.5, 1)
    assert known.windows == others.windows == 3
    assert [known.size(window) for window in range(3)] != [4, 4, 2]
    windows = zip(by_window(known), by_window(others), strict=True)
    assert [sorted(one + other) for one, other in windows] == by_window(stream)
    assert len(known) == 5  # 3 of 6 and 2 of 4
    assert known.stage(2) == 0


def build(tiny: Any, **overrides: Any) -> Federation:
    return build_federation(tiny(dataset__label_rate=0.25, **overrides))


@pytest.mark.parametrize(
    "scenario",
    [
        {"scenario__online": True},
        {"scenario__blur": 0.5},
        {"scenario__boundaries": {"asynchronous": {"window": 5}}, "training__rounds_per_task": None},
        {"scenario": {"kind": "class_incremental", "tasks": 2, "order": "per_client"}},
        {"partition": {"kind": "dirichlet", "alpha": 0.5, "min_samples": 2}},
    ],
)
def test_clients_arrivals_are_those_of_all_samples(tiny: Any, scenario: dict[str, Any]) -> None:
    """With and without a rate the same samples are in the same windows; some have no label."""
    whole, few = build_federation(tiny(**scenario)), build(tiny, **scenario)
    assert few.unlabelled is not None
    for before, known, others in zip(whole.streams, few.streams, few.unlabelled.streams, strict=True):
        assert 0 < len(known) < len(before)
        windows = zip(by_window(known), by_window(others), strict=True)
        assert [sorted(one + other) for one, other in windows] == [sorted(rows) for rows in by_window(before)]


def test_all_methods_have_the_same_labels_and_fedavg_ignores_the_others(tiny: Any, simulate: Any) -> None:
    """The run is that of the samples with a label alone: no bit depends on what those without one look like."""
    config = tiny(dataset__label_rate=0.25)
    federation = build_federation(config)
    again = build_federation(tiny(dataset__label_rate=0.25, methods={"er": {}}))
    assert [by_window(s) for s in federation.streams] == [by_window(s) for s in again.streams]
    train = federation.dataset.train
    hidden = np.ones(len(train), bool)
    for stream in federation.streams:
        hidden[np.concatenate(stream.rows)] = False
    assert 0 < hidden.sum() < len(train)
    spoiled = Split(np.where(hidden[:, None], np.float32(9), train.x), np.where(hidden, 0, train.y))
    other = replace(federation, dataset=replace(federation.dataset, train=spoiled))
    assert simulate(config, federation).sha256 == simulate(config, other).sha256


def test_they_are_shown_by_their_task(tiny: Any, host_of: Any, quiet_torch: None) -> None:
    host, federation = host_of(tiny(dataset__label_rate=0.25)), build(tiny)
    client = host.clients[1]
    assert federation.unlabelled is not None
    for window in (0, 1):
        client.receive_data(window)
        rows = federation.unlabelled.streams[1].rows[window]
        pixels = federation.tasks[window].pixels
        assert pixels is not None
        expected = federation.dataset.train.x[rows][:, pixels]
        np.testing.assert_array_equal(client.unlabelled_samples(client.unlabelled), expected)
        assert len(client.arrived) + len(rows) == 12


def test_cfed_reviews_on_them(tiny: Any, simulate: Any) -> None:
    """From task 2 on; in task 1 it is FedAvg. A window in which all have labels is a review without a step."""
    few = {"dataset__label_rate": 0.25, "scenario__tasks": 2}
    plain, cfed = (simulate(tiny(methods=methods, **few)) for methods in ({}, {"cfed": {"weight": 1.0}}))
    assert plain.sha256 != cfed.sha256
    assert plain.rounds[1].loss == cfed.rounds[1].loss
    many = tiny(methods={"cfed": {}}, dataset__label_rate=0.99)
    unlabelled = build_federation(many).unlabelled
    assert unlabelled is not None
    assert all(not len(stream) for stream in unlabelled.streams)
    assert simulate(many).simulation.server.parameters.isfinite().all()


def test_check_says_how_many() -> None:
    """Client by client 12 samples, of 4 classes drawn at random; the counts are those of the streams."""
    config: dict[str, Any] = {
        "name": "few",
        "dataset": {"name": "synthetic", "classes": 2, "shape": [4], "train": 40, "label_rate": 0.1},
        "scenario": {"kind": "class_incremental", "tasks": 2},
        "clients": {"count": 1},
        "model": "mlp",
        "training": {"rounds_per_task": 1},
    }
    assert check_run(config)["labels"] == "4 of the clients' 40 samples over all tasks have a label"  # 2 of 20 each
    assert "labels" not in check_run(config, {"dataset.label_rate": None})


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"dataset.label_rate": 0}, "dataset.label_rate=0: found 0, allowed: a number > 0 and < 1 or null"),
        ({"dataset.label_rate": 1.0}, "found 1.0, allowed: a number > 0 and < 1 or null"),
        (
            {**RATE, "dataset.unlabelled": "digits"},
            "found 0.25, allowed: null with dataset.unlabelled, another set without labels",
        ),
        (
            {
                **RATE,
                "scenario": {
                    "kind": "class_incremental",
                    "tasks": 2,
                    "boundaries": {"asynchronous": {"window": 2, "windows": 2, "stream": "bits.own:stream"}},
                },
                "training.rounds_per_task": None,
            },
            "dataset.label_rate=0.25: found 0.25, allowed: null with a custom stream",
        ),
    ],
)
def test_what_does_not_fit_is_refused(keys: dict[str, Any], words: str) -> None:
    config = {
        "name": "few",
        "dataset": "digits",
        "scenario": {"kind": "domain_incremental", "tasks": 2},
        "clients": {"count": 2},
        "model": "mlp",
        "training": {"rounds_per_task": 1},
    }
    with pytest.raises(ConfigError) as refused:
        load(config, keys)
    assert words in str(refused.value)


def test_a_second_dataset_has_the_same_arrays(tiny):
    """4 ids, mask and types are as long as 6 ids and mask."""
    both = []
    for length, names in ((6, ("input_ids", "attention_mask")), (4, ("input_ids", "attention_mask", "token_type_ids"))):
        part = dict.fromkeys(names, np.zeros((5, length), np.int64))
        x, _, arrays = join_arrays(part, part)
        split = Split(x, np.zeros(5, np.int64))
        both.append(Dataset(split, split, classes=1, vocabulary=1, arrays=arrays, tokenizer="same"))
    assert both[0].shape == both[1].shape
    words = r"found samples of input_ids \[4\], attention_mask \[4\], token_type_ids \[4\], allowed: input_ids \[6\], "
    with pytest.raises(ConfigError, match=rf"dataset\.unlabelled: {words}attention_mask \[6\], as in dataset"):
        assign_unlabeled(both[1], both[0], tiny())
