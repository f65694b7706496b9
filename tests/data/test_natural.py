"""The partition by client ids, and how ids come with the data: in files, lists, one's own Dataset, through all cuts."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import raysim
from raysim.config import load
from raysim.data.dataset import Dataset, Declared, Split, stand_in
from raysim.data.loading import check_dataset
from raysim.data.partition import natural
from raysim.data.scenario import Task, domains, hold_out
from raysim.federation.federation import build_federation
from raysim.system.errors import ConfigError

IDS = np.array([30, 7, 30, 200, 7, 7, 30, 200, 4, 11])


def dealt(ids: Any, clients: int, seed: int = 0, **keys: Any) -> list[list[int]]:
    found = natural(np.zeros(len(ids), np.int64), clients, np.random.default_rng(seed), np.asarray(ids), **keys)
    assert all(part.dtype == np.int32 for part in found)
    return [part.tolist() for part in found]


def test_as_many_clients_as_ids_are_the_ids_in_ascending_order() -> None:
    assert dealt(IDS, 5) == [[8], [1, 4, 5], [9], [0, 2, 6], [3, 7]]  # 4, 7, 11, 30, 200
    assert dealt(["f_02", "b", "f_02", "a"], 3) == [[3], [1], [0, 2]]


def test_fewer_clients_have_groups_of_whole_ids() -> None:
    seen = set()
    for seed in range(20):
        parts = dealt(IDS, 2, seed)
        assert sorted(parts[0] + parts[1]) == list(range(10))
        groups = [{*IDS[part].tolist()} for part in parts]
        assert [len(group) for group in groups] == [3, 2]  # five ids in two groups
        assert not groups[0] & groups[1]
        assert dealt(IDS, 2, seed) == parts
        seen.add(frozenset(groups[0]))
    assert len(seen) > 5  # of 10


def test_others_can_be_left_out() -> None:
    for seed in range(10):
        parts = dealt(IDS, 3, seed, others="left_out")
        held = [{*IDS[part].tolist()} for part in parts]
        assert [len(ids) for ids in held] == [1, 1, 1]
        assert len(set.union(*held)) == 3
        assert all(len(part) == (IDS[part[0]] == IDS).sum() for part in parts)


def test_ids_of_few_samples_can_be_left_out() -> None:
    assert dealt(IDS, 3, min_samples=2) == [[1, 4, 5], [0, 2, 6], [3, 7]]
    words = (
        "clients.count: found 4, allowed with this partition: 1 to 3, as many as the training samples have client ids"
    )
    with pytest.raises(ConfigError, match=f"{words} with partition.min_samples=2 of 5$"):
        dealt(IDS, 4, min_samples=2)


def test_more_clients_than_ids_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"clients.count: found 6, allowed with this partition: 1 to 5, as many as"):
        dealt(IDS, 6)


CONFIG: dict[str, Any] = {
    "name": "writers",
    "dataset": {"name": "npz", "path": "w.npz"},
    "scenario": {"kind": "class_incremental", "tasks": 2},
    "partition": "natural",
    "clients": {"count": 3},
    "model": {"name": "mlp", "hidden": [4]},
    "training": {"rounds_per_task": 2, "batch_size": 4},
    "logging": {"tensorboard": False},
}


@pytest.fixture
def writers(tmp_path: Path) -> dict[str, Any]:
    """Four classes in turn; writer 5 wrote rows 0 to 7, writer 9 rows 8 to 15, writer 2 one each of classes 0 and 1."""
    y = np.r_[np.arange(16) % 4, 0, 1]
    clients = np.r_[np.full(8, 5), np.full(8, 9), 2, 2]
    x = np.random.default_rng(0).random((18, 6)).astype(np.float32)
    np.savez(tmp_path / "w.npz", x_train=x, y_train=y, x_test=x[:8], y_test=y[:8], client_train=clients)
    return {**CONFIG, "dataset": {**CONFIG["dataset"], "root": str(tmp_path)}}


def test_in_every_task_a_client_has_its_own_samples(writers: dict[str, Any], tmp_path: Path) -> None:
    """Ascending: client 0 is writer 2, who has nothing of task 2 and is not there in it."""
    federation = build_federation(load(writers))
    rows = [[part.tolist() for part in stream.rows] for stream in federation.streams]
    assert rows == [[[16, 17], []], [[0, 1, 4, 5], [2, 3, 6, 7]], [[8, 9, 12, 13], [10, 11, 14, 15]]]
    assert [federation.availability.present(round) for round in (1, 3)] == [(0, 1, 2), (1, 2)]
    result = raysim.run(writers, out=tmp_path / "run", local=True)
    assert result.updates == 2 * 3 + 2 * 2
    rotated = {"scenario": {"kind": "domain_incremental", "tasks": 2, "shift": "permutation"}}
    streams = build_federation(load({**writers, **rotated})).streams
    assert [part.tolist() for part in streams[0].rows] == [[16, 17]] * 2


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (
            {"dataset": {"name": "digits"}},
            "partition.kind: natural deals by client ids, and the dataset has none, allow",
        ),
        (
            {"partition.per": "task"},
            "partition.per='task': found 'task', allowed: run where samples are dealt by their client ids",
        ),
        ({"partition.others": "grupped"}, "allowed: grouped or left_out; did you mean 'grouped'?"),
        ({"clients.count": 4}, "clients.count: found 4, allowed with this partition: 1 to 3"),
    ],
)
def test_what_does_not_fit_is_refused(writers: dict[str, Any], keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        build_federation(load(writers, keys))
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def by_parity(labels: Any, clients: int, generator: Any, ids: Any) -> list[Any]:
    return [np.flatnonzero(ids % 2 == client % 2) if client < 2 else np.arange(0) for client in range(clients)]


def test_a_partition_of_ones_own_is_given_the_ids(writers: dict[str, Any]) -> None:
    streams = build_federation(load(writers, {"partition": f"{__name__}:by_parity"})).streams
    assert [part.tolist() for part in streams[0].rows] == [[16, 17], []]
    assert [len(stream) for stream in streams] == [2, 16, 0]


def test_arrays_of_another_kind_are_refused(writers: dict[str, Any], tmp_path: Path) -> None:
    arrays = {**np.load(tmp_path / "w.npz")}
    for clients, found in (
        (arrays["client_train"][1:], "int64 of shape (17,)"),
        (np.zeros(18), "float64 of shape (18,)"),
    ):
        np.savez(tmp_path / "w.npz", **{**arrays, "client_train": clients})
        with pytest.raises(ConfigError) as refused:
            build_federation(load(writers))
        assert f"train split: clients: found {found}; use whole numbers or strings of shape [18]" in str(refused.value)


def test_a_list_of_images_has_them_in_its_third_column(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    for name in ("1", "2", "3"):
        Image.new("RGB", (2, 2)).save(tmp_path / "a b" / f"{name}.png")
    (tmp_path / "train.txt").write_text("a b/1.png 0 anna\na b/2.png 1 ben\n")
    (tmp_path / "test.txt").write_text("a b/3.png 1 carl\n")
    keys = {"path": "", "train": "train.txt", "test": "test.txt", "size": 2, "client_ids": True}
    config = load({**CONFIG, "dataset": {"name": "image_list", "root": str(tmp_path), **keys}}, {"clients.count": 2})
    federation = build_federation(load(config, {"scenario.tasks": 1}))
    assert federation.dataset.train.clients is not None
    assert federation.dataset.train.clients.tolist() == ["anna", "ben"]
    assert [stream.rows[0].tolist() for stream in federation.streams] == [[0], [1]]
    (tmp_path / "train.txt").write_text("a b/1.png 0\n")
    with pytest.raises(
        ConfigError, match=r"line 1: found 'a b/1.png 0', allowed: a path, a space and a label, .* client id"
    ):
        build_federation(config)


def test_ids_go_along_with_the_rows() -> None:
    x, y = np.arange(6, dtype=np.float32)[:, None], np.array([0, 1] * 3)
    whole = Dataset(Split(x, y, np.array(list("abcdef"))), Split(x[:2], y[:2]), 2)
    taken = whole.train.take(np.array([4, 1])).clients
    assert taken is not None
    assert taken.tolist() == ["e", "b"]
    joined, _ = domains([("one", whole), ("two", whole)], 0)
    assert joined.train.clients is not None
    assert joined.train.clients.tolist() == list("abcdefabcdef")
    bare = Dataset(Split(x, y), whole.test, 2)
    assert domains([("one", whole), ("two", bare)], 0)[0].train.clients is None
    task = Task("all", (0, 1), None, np.arange(6, dtype=np.int32), np.arange(2, dtype=np.int32))
    kept, _ = hold_out(whole, [task], 0.5, seed=0)
    assert kept.train.clients is not None
    assert kept.train.clients.tolist() == ["abcdef"[int(value)] for value in kept.train.x[:, 0]]


def test_a_stand_in_has_as_many_ids_as_are_declared() -> None:
    """Rows take turns by class, then by client: each of three clients has both classes."""
    train = stand_in(Declared((4,), train=12, test=2, classes=2, clients=3), "x").train
    assert train.clients is not None
    assert train.clients.tolist() == [0, 0, 1, 1, 2, 2] * 2


def test_an_empty_client_id_is_refused() -> None:
    """It would be a client of its own, of all samples whose id is missing."""
    x, y = np.zeros((3, 1), np.float32), np.zeros(3, np.int64)
    split = Split(x, y, np.array(["a", "", ""]))
    with pytest.raises(ConfigError, match="train split: clients: found 2 samples without a client id, the first with"):
        check_dataset(Dataset(split, split, classes=1), "mine")
