"""Accuracy by client, by hand: logits are the sample itself, as in test_scoring."""

import json

import numpy as np
import pytest

import raysim
from raysim.data.dataset import Dataset, Split
from raysim.data.scenario import Task
from raysim.engine.host import ClientHost
from raysim.evaluation.scoring import client_accuracies, describe_clients, merge_scores, summarise_clients
from raysim.federation.availability import Availability
from raysim.federation.federation import Federation
from raysim.federation.stream import Stream
from raysim.records.result import load_result

ZERO = np.zeros(0, np.int32)


def rows(*numbers):
    return np.array(numbers, np.int32)


def federation_of(*streams):
    """Test: task 1 has the classes 0 0 1 1, task 2 has 2 2 2; the training rows 0..5 are of the classes 0 0 1 2 2 3."""
    test = np.array([0, 0, 1, 1, 2, 2, 2], np.int64)
    train = np.array([0, 0, 1, 2, 2, 3], np.int64)
    dataset = Dataset(Split(np.zeros((6, 4), np.float32), train), Split(np.zeros((7, 4), np.float32), test), classes=4)
    tasks = [
        Task("", (0, 1), None, rows(0, 1, 2), rows(0, 1, 2, 3)),
        Task("", (2, 3), None, rows(3, 4, 5), rows(4, 5, 6)),
    ]
    return Federation(dataset, tasks, streams, Availability([], [], [1]), ("class_il",), None, ())


RIGHT = {"class_il": np.array([[2, 1, 0, 0], [0, 0, 1, 0]])}  # of class 0 all, of class 1 half, of class 2 a third


def test_a_client_counts_what_it_has():
    """Two of class 0, one of 1: (2 * 1 + 1 * 1/2) / 3 = 5/6. One of 1, one of 2: (1/2 + 1/3) / 2 = 5/12.

    Class 3 has no test samples: two of 2 and one of 3 count as two of 2, and one of 3 alone is nothing.
    """
    federation = federation_of(
        Stream([rows(0, 1, 2), ZERO]),
        Stream([rows(2), rows(3)]),
        Stream([ZERO, rows(3, 4, 5)]),
        Stream([ZERO, rows(5)]),
    )
    assert client_accuracies(RIGHT, federation) == {"class_il": pytest.approx([5 / 6, 5 / 12, 1 / 3, None])}
    found = summarise_clients(RIGHT, federation)["class_il"]
    assert found["worst"] == pytest.approx(1 / 3)
    assert found["mean"] == pytest.approx((5 / 6 + 5 / 12 + 1 / 3) / 3)
    assert found["std"] == pytest.approx(np.std([5 / 6, 5 / 12, 1 / 3]))
    assert describe_clients("class_il", found) == (
        "accuracy in % on the clients' own classes and tasks, class-IL: mean 52.8, worst 33.3, std 21.9"
    )


def test_the_order_of_a_clients_tasks_is_its_own():
    federation = federation_of(Stream([rows(3), rows(0, 1)], tasks=[1, 0]), Stream([rows(0, 1), rows(3)]))
    first, second = client_accuracies(RIGHT, federation)["class_il"]
    assert first == second == pytest.approx((2 + 1 / 3) / 3)


def test_nobody_to_ask():
    found = summarise_clients(RIGHT, federation_of(Stream([ZERO, rows(5)])))["class_il"]
    assert found == {"accuracy": [None], "mean": None, "worst": None, "std": None}
    assert describe_clients("class_il", found).endswith("mean -, worst -, std -")


def test_a_client_that_has_all_of_a_domain_is_as_well_off_as_the_task(tiny, simulate):
    """One client, one task, classes in the same parts in training and in testing: its accuracy is the task's."""
    run = simulate(
        tiny(
            clients__count=1,
            scenario={"kind": "domain_incremental", "tasks": 1, "shift": "permutation"},
            evaluation__per_client=True,
        )
    )
    (accuracy,) = run.events[-1].per_client["domain_il"]["accuracy"]
    assert accuracy == pytest.approx(run.rounds[-1].evaluation["domain_il"][0])


def test_the_summary_has_it_where_it_is_asked_for(tiny, tmp_path):
    config = tiny(scenario={"kind": "class_incremental", "tasks": 2}, logging__tensorboard=False)
    without = raysim.run(config, out=tmp_path / "without", local=True)
    found = raysim.run(config, {"evaluation.per_client": True}, out=tmp_path / "with", local=True)
    assert without.per_client is None
    assert "per_client" not in json.loads((tmp_path / "without/summary.json").read_text())
    assert (found.model_sha256, found.evaluation) == (without.model_sha256, without.evaluation)
    assert set(found.per_client) == {"class_il", "task_il"}
    for values in found.per_client.values():
        assert len(values["accuracy"]) == 3
        assert values["worst"] == min(values["accuracy"]) <= values["mean"]
    assert load_result(tmp_path / "with") == found


def test_hosts_that_share_the_clients_come_to_the_same_bits(tiny, host_of):
    """Counts are whole numbers: however chunks fall to hosts, the clients' accuracies are the same floats."""
    config = tiny(scenario={"kind": "class_incremental", "tasks": 2})
    host: ClientHost = host_of(config)
    from raysim.evaluation.scoring import split_into_chunks

    parts = split_into_chunks(host.federation, 2)
    whole = host.evaluate(parts)
    shared = merge_scores([host.evaluate(parts[n::2]) for n in (1, 0)])
    assert summarise_clients(shared, host.federation) == summarise_clients(whole, host.federation)


def test_a_model_is_tested_once(tiny, simulate, monkeypatch):
    """Two tasks of two rounds, evaluated after every round: the untrained model and 4 versions, the last not again."""
    tested = []
    evaluate = ClientHost.evaluate

    def counting(host, parts, broadcasts=()):
        tested.extend(broadcast.version for broadcast in broadcasts)
        return evaluate(host, parts, broadcasts)

    monkeypatch.setattr(ClientHost, "evaluate", counting)
    run = simulate(
        tiny(scenario__tasks=2, training__rounds_per_task=2, evaluation__every_rounds=1, evaluation__per_client=True)
    )
    assert tested == [0, 1, 2, 3, 4]
    assert run.events[-1].per_client
