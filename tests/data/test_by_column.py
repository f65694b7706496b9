"""Tasks by a column: which samples are in which interval, for numbers, dates and texts; counts derived by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from raysim.config import load
from raysim.config.scenarios import ByColumn
from raysim.data.builtin import digits
from raysim.data.by_column import by_column
from raysim.data.columns import as_column
from raysim.data.dataset import Dataset, Split
from raysim.data.loading import check_dataset
from raysim.data.scenario import Task
from raysim.federation.blurring import blur_boundaries
from raysim.federation.federation import Federation, build_federation
from raysim.system.errors import ConfigError


def split_of(values: Any, clients: Any = None) -> Split:
    values = np.asarray(values)
    x = np.arange(len(values), dtype=np.float32)[:, None]
    ids = None if clients is None else np.asarray(clients)
    return Split(x, np.arange(len(values), dtype=np.int64) % 2, ids, {"time": values})


def tasks_of(train: Any, test: Any, clients: tuple[Any, Any] = (None, None), **keys: Any) -> list[Task]:
    dataset = Dataset(split_of(train, clients[0]), split_of(test, clients[1]), classes=2)
    return by_column(check_dataset(dataset, "d"), ByColumn(kind="by_column", column="time", **keys))


def rows(tasks: list[Task], part: str = "train") -> list[list[int]]:
    return [getattr(task, part).tolist() for task in tasks]


def test_quantiles_are_equal_parts_in_order_of_the_column() -> None:
    """Seven values in order: rows 3 1 5 0 6 2 4, values 1 2 3 4 5 6 9. In three parts of 3, 2 and 2 they are as below.

    Tests: 3.5 is below 4, where the second part begins, 4 is in it, and 100 is above 6, where the third begins.
    """
    tasks = tasks_of([4, 2, 6, 1, 9, 3, 5], [4.0, 3.5, 100.0], tasks=3)
    assert rows(tasks) == [[3, 1, 5], [0, 6], [2, 4]]
    assert rows(tasks, "test") == [[1], [0], [2]]
    assert [task.name for task in tasks] == ["time 1 to 3", "time 4 to 5", "time 6 to 9"]
    assert all(task.classes == (0, 1) and task.pixels is None for task in tasks)


def test_equal_values_are_in_one_task() -> None:
    """Of 1 1 2 2 2 3 4 5 in two parts the second begins at the fifth value, 2: all of them are in it."""
    tasks = tasks_of([2, 1, 2, 1, 2, 3, 4, 5], [1, 2], tasks=2)
    assert rows(tasks) == [[1, 3], [0, 2, 4, 5, 6, 7]]


def test_a_column_with_as_many_values_as_tasks_has_a_task_each() -> None:
    """Two of the three parts of equal size would begin at 8, which most samples have."""
    tasks = tasks_of([8, 7, 8, 8, 8, 9], [7, 8, 9], tasks=3)
    assert rows(tasks) == [[1], [0, 2, 3, 4], [5]]
    assert [task.name for task in tasks] == ["time 7", "time 8", "time 9"]


def test_texts_are_divided_by_their_values() -> None:
    """Four sites in two tasks: a and b, then c and d, whatever their numbers of samples."""
    tasks = tasks_of(["d", "a", "a", "a", "b", "c"], ["c", "b"], tasks=2)
    assert rows(tasks) == [[1, 2, 3, 4], [5, 0]]
    assert rows(tasks, "test") == [[1], [0]]


def test_cuts_are_where_tasks_begin() -> None:
    tasks = tasks_of([0.5, 2.0, 1.0, 1.5], [0.9, 1.0, 7.0], tasks=3, cuts=(1.0, 2.0))
    assert rows(tasks) == [[0], [2, 3], [1]]
    assert rows(tasks, "test") == [[0], [1], [2]]
    days = np.array(["2024-02-01", "2023-12-31", "2024-01-01T12:00"], "datetime64[us]")
    tasks = tasks_of(days, days[:2], tasks=2, cuts=("2024-01-01",))
    assert rows(tasks) == [[1], [2, 0]]
    assert [task.name for task in tasks] == ["time 2023-12-31", "time 2024-01-01T12:00:00 to 2024-02-01"]
    assert rows(tasks_of(["x", "k", "b"], ["k", "x"], tasks=2, cuts=("l",))) == [[2, 1], [0]]


def test_cuts_ascend_in_time_not_as_texts() -> None:
    """As texts, 20240109 comes after 2024-01-20. 22:00 five hours west of Greenwich is 03:00 there, on the next day."""
    days = np.array(["2024-01-08", "2024-01-15", "2024-01-25"], "datetime64[us]")
    assert rows(tasks_of(days, days, tasks=3, cuts=("20240109", "2024-01-20"))) == [[0], [1], [2]]
    cuts = ("2024-01-10T22:00-05:00", "2024-01-11T00:00+00:00")
    with pytest.raises(ConfigError, match=r"scenario\.cuts: found .*, allowed: ascending values"):
        tasks_of(days, days, tasks=3, cuts=cuts)


def test_per_client_each_id_is_divided_by_itself() -> None:
    """Client 5 has 1 2 3 4, in halves; client 9 has 10 30 20, whose first part has two; client 2 has one sample.

    Tests: 2.5 of client 5 is below 3; 25 of client 9 is above 20, below 30; 99 of client 2 stays in its only part;
    client 7 has no training samples: of all eight values the fifth is 10, so 11 is in the second half.
    """
    train, clients = [4, 10, 2, 30, 1, 3, 20, 7], [5, 9, 5, 9, 5, 5, 9, 2]
    tasks = tasks_of(train, [2.5, 25, 30, 99, 11], (clients, [5, 9, 9, 2, 7]), tasks=2, per="client")
    assert rows(tasks) == [[4, 2, 7, 1, 6], [5, 0, 3]]
    assert rows(tasks, "test") == [[0, 1, 3], [2, 4]]
    assert [task.name for task in tasks] == ["time, part 1", "time, part 2"]


@pytest.mark.parametrize(
    ("keys", "clients", "words"),
    [
        ({"tasks": 5}, None, "scenario.tasks: task 5 of 5 has 1 training and 0 test samples"),
        ({"tasks": 2, "cuts": (9.5,)}, None, "scenario.cuts: task 2 of 2 has 0 training and 0 test samples, allowed: "),
        ({"tasks": 2, "cuts": ("b",)}, None, "scenario.cuts.0: found 'b', allowed: numbers, as the column's values"),
        ({"tasks": 2, "per": "client"}, None, "the training samples have no client ids, allowed: run; or a dataset"),
        ({"tasks": 2, "per": "client"}, [1, 1, 1, 2, 2], "the test samples have no client ids, allowed: run"),
    ],
)
def test_what_does_not_fit_is_refused(keys: dict[str, Any], clients: Any, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        tasks_of([1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 2.5, 3.0, 4.5], (clients, None), **keys)
    assert words in str(refused.value)


def test_texts_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="has 2 different values, from a to b, in 3 training samples"):
        tasks_of(["b", "a", "b"], ["a", "b"], tasks=4)


CONFIG: dict[str, Any] = {
    "name": "ink",
    "dataset": "digits",
    "scenario": {"kind": "by_column", "column": "ink", "tasks": 4},
    "clients": {"count": 3},
    "model": {"name": "mlp", "hidden": [4]},
    "training": {"rounds_per_task": 2},
}


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"scenario.column": "inc"}, "scenario.column: found 'inc', allowed: ['ink']; did you mean 'ink'?"),
        ({"dataset": "friedman", "objective": "regression"}, "allowed: none, as this dataset has no columns"),
        ({"scenario.cuts": [0.1]}, "found 1 values, allowed: 3, one less than scenario.tasks (4)"),
        ({"scenario.cuts": [0.1, 0.3, 0.2]}, "scenario.cuts: found [0.1, 0.3, 0.2], allowed: ascending values"),
        ({"scenario.cuts": [0.1, "b", 0.2]}, "allowed: all numbers or all texts"),
        (
            {"scenario.cuts": [0.1, 0.2, 0.3], "scenario.per": "client"},
            "found [0.1, 0.2, 0.3], allowed: null with scenario.per=client",
        ),
        ({"scenario.per": "task"}, "allowed: run or client"),
        ({"scenario": {"kind": "by_column", "tasks": 2}}, "scenario.column: this key is required and missing"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        build_federation(load(CONFIG, keys))
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def ink_in_order(federation: Federation, client: int) -> Any:
    stream = federation.streams[client]
    return federation.dataset.train.columns["ink"][np.concatenate(stream.rows)]


def test_digits_have_the_column_ink() -> None:
    """Gray values from 0 to 16 are stored times 255 / 16, rounded, so the means differ by at most half of 1 / 255."""
    train = digits(Path(), False).train
    np.testing.assert_allclose(train.columns["ink"], train.x.mean((1, 2, 3)) / 255, atol=0.5 / 255)


@pytest.mark.parametrize(
    "keys",
    [
        {"scenario.online": True},
        {
            "scenario.boundaries": {"asynchronous": {"window": 50}},
            "training.rounds_per_task": None,
            "scenario.tasks": 1,
            "partition.per": "run",
        },
    ],
)
def test_samples_arrive_in_the_order_of_the_column(keys: dict[str, Any]) -> None:
    """Without an ordered scenario they arrive at random, in one task of all samples too."""
    federation = build_federation(load(CONFIG, keys))
    for client in range(3):
        ink = ink_in_order(federation, client)
        assert 476 <= len(ink) <= 480  # a third of 1433, and in each of 4 tasks the parts differ by at most one
        assert (np.diff(ink) >= 0).all()


def test_drift_is_gradual_near_the_boundaries() -> None:
    """blur 0.2 of 40 samples a task: of the 8 nearest to a boundary, 4 change sides; the 24 inner ones stay."""
    values = np.random.default_rng(0).permutation(120)
    dataset = Dataset(split_of(values), split_of([0, 50, 100]), classes=2)
    tasks = by_column(dataset, ByColumn(kind="by_column", column="time", tasks=3))
    arrivals = blur_boundaries([task.train for task in tasks], [0, 1, 2], 0.2, np.random.default_rng(1), nearest=True)
    times = [{task: sorted(values[part].tolist()) for task, part in parts} for parts in arrivals]
    assert [{task: len(found) for task, found in time.items()} for time in times] == [
        {0: 36, 1: 4},
        {0: 4, 1: 32, 2: 4},
        {1: 4, 2: 36},
    ]
    assert {*times[0][1]} <= {*range(40, 48)}
    assert {*times[1][0]} <= {*range(32, 40)}
    assert {*times[1][2]} <= {*range(80, 88)}
    assert {*times[2][1]} <= {*range(72, 80)}
    assert {*times[1][1]} >= {*range(48, 72)}
    wide = blur_boundaries([np.arange(5)] * 3, [0, 1, 2], 0.9, np.random.default_rng(1), nearest=True)
    assert sorted(len(part) for task, part in wide[1] if task == 1) == [1]  # round(.45 * 5) = 2 go each way


def test_a_domain_has_a_head_of_its_own_if_the_task_is_known() -> None:
    assert load(CONFIG, {"training.logits": "task"}).heads == 4
    assert build_federation(load(CONFIG)).protocols == ("domain_il",)
    assert build_federation(load(CONFIG, {"training.logits": "task"})).protocols == ("task_il",)


# where columns come from


def test_the_first_value_says_what_a_column_is() -> None:
    assert as_column(["1", "2.5", 3], str).tolist() == [1.0, 2.5, 3.0]
    moments = as_column(["2024-01-01T00:00Z", "2024-01-01T02:00+01:00"], str)
    assert moments.dtype == "datetime64[us]"
    assert (moments[1] - moments[0]) == np.timedelta64(1, "h")
    assert as_column(["b1", "1"], str).tolist() == ["b1", "1"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([1, 2, "x"], "line 2: found 'x', allowed: a number, as the first value is"),
        (["2024-01-01", "2024-13-01"], "line 1: found '2024-13-01', allowed: a date in ISO 8601"),
        (["a", ""], "line 1: found nothing, allowed: a text, as the first value is"),
        ([None, "a"], "line 0: found nothing, allowed: a text"),
        ([None, None], "line 0: found nothing, allowed: a number, a date in ISO 8601 or a text"),
        ([1.0, float("nan")], "line 1: found .nan, allowed: a number"),
        ([1.0, True], "line 1: found true, allowed: a number"),
        (["", "2024-01-01"], "line 0: found nothing, allowed: a date in ISO 8601"),
        ([1, "1_000"], "line 1: found '1_000', allowed: a number"),
        (["2024-03-30", "2024_3_30"], "line 1: found '2024_3_30', allowed: a date in ISO 8601"),
        (["5", "\u0661\u0662"], "line 1: found '\u0661\u0662', allowed: a number"),
        (
            ["2024-01-01T01:00+01:00", "2024-01-01T01:00"],
            "line 1: found '2024-01-01T01:00' without a time zone, and '2024-01-01T01:00+01:00' with one (line 0)",
        ),
        (["a", "a\0"], "line 1: found 'a\\x00', allowed: a text that does not end with the character 0"),
    ],
)
def test_a_value_of_another_kind_is_refused(values: list[object], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        as_column(values, lambda index: f"line {index}")
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("train", "test", "words"),
    [
        ([1.0, np.inf], [1.0, 2.0], "train split: column 'time': found NaN, NaT or infinite values"),
        ([1.0], [1.0, 2.0], "train split: column 'time': found float64 of shape (1,); use numbers, datetime64 or"),
        ([1.0, 2.0], ["a", "b"], "column 'time': found numbers in training and texts in tests; both must be alike"),
        ([None, "a"], ["a", "b"], "column 'time': found object of shape (2,)"),
        (None, [1.0, 2.0], "the column 'time' is in the test split and not in the train split"),
    ],
)
def test_columns_of_another_kind_are_refused(train: Any, test: Any, words: str) -> None:
    x, y = np.zeros((2, 1), np.float32), np.zeros(2, np.int64)
    splits = [Split(x, y, columns={} if values is None else {"time": np.array(values)}) for values in (train, test)]
    with pytest.raises(ConfigError) as refused:
        check_dataset(Dataset(*splits, classes=1), "d")
    assert words in str(refused.value)


def test_an_image_list_has_columns(tmp_path: Path) -> None:
    for number in range(4):
        Image.new("L", (2, 2), number).save(tmp_path / f"a {number}.png")
    lines = ["a 0.png 0 anna 3.5 x", "a 1.png 0 ben 1 y", "a 2.png 0 ben 2 x"]
    (tmp_path / "train.txt").write_text("\n".join(lines))
    (tmp_path / "test.txt").write_text("a 3.png 0 anna 9 x\n")
    listed = {"path": ".", "train": "train.txt", "test": "test.txt", "client_ids": True, "columns": ["age", "site"]}
    dataset = {"name": "image_list", "root": str(tmp_path), **listed}
    config = load({**CONFIG, "dataset": dataset}, {"scenario": {"kind": "by_column", "column": "age", "tasks": 1}})
    federation = build_federation(config)
    assert federation.tasks[0].train.tolist() == [1, 2, 0]
    assert federation.dataset.train.columns["site"].tolist() == ["x", "y", "x"]
    assert federation.dataset.test.clients is not None
    assert federation.dataset.test.clients.tolist() == ["anna"]
    (tmp_path / "train.txt").write_text("a 0.png 0 anna 3.5 x\na 1.png 0 ben old y\n")
    with pytest.raises(
        ConfigError, match=r"train.txt, line 2, column 'age' \(dataset.columns\): found 'old', allowed: a number"
    ):
        build_federation(config)
    (tmp_path / "train.txt").write_text("a 0.png 0 anna 3.5\n")
    with pytest.raises(ConfigError, match=r"a space and a client id, then a space and age, then a space and site"):
        build_federation(config)
    for number in range(4):
        (tmp_path / f"a {number}.png").unlink()
    (tmp_path / "train.txt").write_text("\n".join(lines))
    estimated = build_federation(config, pretend=True)  # the lists say the columns of images that are missing
    assert estimated.tasks[0].train.tolist() == [1, 2, 0]


def test_texts_have_columns(tmp_path: Path) -> None:
    lines = [
        f'{{"text": "t", "label": {n % 2}, "split": "{p}", "day": "2024-01-0{n + 1}"}}'
        for n, p in enumerate(["train", "test", "val", "train", "train"])
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    dataset = {"name": "text_jsonl", "root": str(tmp_path), "path": "t.jsonl", "columns": ["day"]}
    scenario = {"kind": "by_column", "column": "day", "tasks": 1}
    model = {"name": "bag_of_embeddings"}
    federation = build_federation(load({**CONFIG, "dataset": dataset, "scenario": scenario, "model": model}))
    assert (
        federation.dataset.train.columns["day"].tolist()
        == as_column(["2024-01-01", "2024-01-04", "2024-01-05"], str).tolist()
    )
    (tmp_path / "t.jsonl").write_text("\n".join([*lines, '{"text": "t", "label": 1, "split": "test"}']))
    with pytest.raises(ConfigError, match=r"line 6, key 'day' \(dataset.columns\): found nothing, allowed: a date"):
        build_federation(load({**CONFIG, "dataset": dataset, "scenario": scenario, "model": model}))
