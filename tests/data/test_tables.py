"""Tables: what their columns become, by hand; standardization, categories, and broken files, each by its line."""

import gzip
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import raysim
from raysim.config import load
from raysim.data.dataset import Dataset, Split
from raysim.data.loading import check_dataset, load_dataset
from raysim.data.tables import csv, parquet
from raysim.federation.federation import build_federation
from raysim.system.errors import ConfigError

HEADER = "day,who,size,color,mass,kind"
TRAIN = ["2024-01-03,a,1,red,10,cat", "2024-01-01,b,5,blue,30,dog", "2024-01-02,a,3,red,20,dog"]
TEST = ["2024-01-01,b,3,green,20,dog", "2024-01-04,a,5,blue,50,cat"]
ROLES = {"path": "t.csv", "test": "s.csv", "target": "kind", "client": "who", "time": "day", "categories": ["color"]}

Read = Callable[..., Dataset]
ONE_FILE: dict[str, Any] = {"in_one_file": True}


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """A function that writes lines of training and test rows below the header, and reads them."""

    def of(
        train: Sequence[str] = TRAIN,
        test: Sequence[str] = TEST,
        header: str = HEADER,
        in_one_file: bool = False,
        **keys: Any,
    ) -> Dataset:
        for name, lines in (("t.csv", train), ("s.csv", test)):
            (tmp_path / name).write_text("\n".join([header, *lines]) + "\n")
        roles = {**ROLES, "test": None} if in_one_file else ROLES
        return load_dataset(csv, str(tmp_path), False, {**roles, **keys})

    return of


def test_columns_become_inputs_targets_and_columns_by_their_roles(read: Read) -> None:
    """size 1 5 3 has mean 3 and variance 8/3, mass 10 30 20 mean 20 and variance 200/3: -1, 1, 0 times 3 / sqrt(6).

    In tests size 3 and 5 are 0 and 1, and mass 20 and 50 are 0 and 3 of these. Colors: blue 1, red 2, green unknown, 0.
    """
    dataset, unit = read(), 3 / np.sqrt(6)
    assert dataset.train.x.dtype == np.float32
    expected = [[-unit, -unit, 2], [unit, unit, 1], [0, 0, 2]]
    np.testing.assert_allclose(dataset.train.x, np.array(expected), rtol=1e-6)
    np.testing.assert_allclose(dataset.test.x, np.array([[0, 0, 0], [unit, 3 * unit, 1]]), rtol=1e-6)
    assert dataset.categories == (3,)
    assert (dataset.names, dataset.classes) == (("cat", "dog"), 2)
    assert (dataset.train.y.tolist(), dataset.test.y.tolist()) == ([0, 1, 1], [1, 0])
    assert dataset.train.clients is not None
    assert dataset.train.clients.tolist() == ["a", "b", "a"]
    assert sorted(dataset.train.columns) == ["color", "day", "mass", "size", "who"]
    assert dataset.train.columns["mass"].tolist() == [10, 30, 20]
    assert dataset.test.columns["day"].astype("datetime64[D]").astype(str).tolist() == ["2024-01-01", "2024-01-04"]


def test_by_client_each_is_standardized_by_its_own_rows(read: Read) -> None:
    """Client a has sizes 1 and 3: mean 2, deviation 1; client b has 5 only: deviation 0 counts as 1.

    Client c has no training rows: mean 3 and deviation sqrt(8/3) of all three.
    """
    dataset = read(test=[*TEST, "2024-01-01,c,3,red,20,cat"], standardize="client")
    np.testing.assert_allclose(dataset.train.x[:, 0], [-1, 0, 1])
    np.testing.assert_allclose(dataset.test.x[:, 0], [-2, 3, 0])  # b: 3 - 5; a: 5 - 2; c: 3 - 3
    np.testing.assert_allclose(dataset.test.x[2, 1], 0)


def test_a_constant_column_becomes_0_whatever_rounding_does(read: Read) -> None:
    """NumPy's deviation of 0.1, 0.1, 0.1 is 1.4e-17. It counts as 1, so a test row with 1.1 has 1."""
    assert np.full(3, 0.1).std() > 0
    lines = [f"2024-01-0{n},a,0.1,red,10,cat" for n in (1, 2, 3)]
    dataset = read([*lines[:2], lines[2].replace("cat", "dog")], ["2024-01-01,a,1.1,red,10,dog"])
    assert dataset.train.x[:, 0].tolist() == [0, 0, 0]
    np.testing.assert_allclose(dataset.test.x[:, 0], [1])


def test_a_deviation_that_underflows_to_0_counts_as_1(read: Read) -> None:
    """The square of 1e-200 is 0 in float64, so NumPy's deviation of 1e-200 and 3e-200 is 0; float32 has no 1e-200."""
    dataset = read([TRAIN[0].replace(",1,", ",1e-200,"), TRAIN[1].replace(",5,", ",3e-200,")])
    assert dataset.train.x[:, 0].tolist() == [0, 0]


def test_without_standardizing_numbers_stay(read: Read) -> None:
    dataset = read(standardize="none")
    assert dataset.train.x[:, :2].tolist() == [[1, 10], [5, 30], [3, 20]]


def test_a_missing_number_is_the_mean_if_the_config_says_so(read: Read) -> None:
    """Of sizes 1, missing, 3 the mean is 2 and the deviation 1. By client, b has no size: those of all."""
    lines = [TRAIN[0], TRAIN[1].replace(",5,", ",,"), TRAIN[2]]
    with pytest.raises(
        ConfigError, match=r"t.csv, line 3, column 'size': found nothing, allowed: a number; dataset.mis"
    ):
        read(lines)
    assert read(lines, missing="mean").train.x[:, 0].tolist() == [-1, 0, 1]
    assert read(lines, missing="mean", standardize="client").train.x[:, 0].tolist() == [-1, 0, 1]
    assert read(lines, missing="mean", standardize="none").train.x[:, 0].tolist() == [1, 2, 3]
    assert "size" not in read(lines, missing="mean").train.columns


def test_columns_can_be_left_out_or_kept_beside_the_inputs(read: Read) -> None:
    dataset = read(ignore=["mass"], columns=["size"], categories=["color", "who"])
    assert dataset.shape == (2,)  # who and color, in the order of the header
    assert dataset.categories == (3, 3)
    assert dataset.train.x.tolist() == [[1, 2], [2, 1], [1, 2]]
    assert sorted(dataset.train.columns) == ["color", "day", "size", "who"]


def test_a_number_can_be_the_target(read: Read) -> None:
    dataset = read(target="mass", target_kind="number", ignore=["kind"])
    assert dataset.train.y.dtype == np.float32
    assert (dataset.train.y.tolist(), dataset.classes, dataset.names) == ([[10], [30], [20]], 1, None)


def test_a_target_too_large_for_float32_is_named(read: Read) -> None:
    lines = [TRAIN[0], TRAIN[1].replace(",30,", ",1e308,")]
    with pytest.raises(ConfigError, match=r"line 3, column 'mass' \(dataset.target\): found 1e\+308, allowed: -3"):
        read(lines, target="mass", target_kind="number", ignore=["kind"])


def test_whole_numbers_as_labels_are_in_their_order(read: Read) -> None:
    lines = [line.rpartition(",")[0] + f",{label}" for line, label in zip(TRAIN, (10, 9, -1), strict=True)]
    dataset = read(lines, [TEST[0].replace("dog", "10")])
    assert dataset.train.y.tolist() == [2, 1, 0]
    assert dataset.test.y.tolist() == [2]
    assert dataset.names is None


def test_without_a_test_file_a_part_of_each_class_is_for_testing(read: Read) -> None:
    """Of 10 cats and 5 dogs round(.3 * 10) = 3 and round(.3 * 5) = 2 (1.5 to even); by seed, not by the run's."""
    lines = [f"{day},a,{day},red,0,{'cat' if day <= 10 else 'dog'}" for day in range(1, 16)]
    dataset = read(lines, **ONE_FILE, test_fraction=0.3)
    assert np.bincount(dataset.test.y).tolist() == [3, 2]
    days = [*dataset.train.columns["day"], *dataset.test.columns["day"]]
    assert sorted(days) == [*range(1, 16)]
    assert (
        dataset.test.columns["day"].tolist() == read(lines, **ONE_FILE, test_fraction=0.3).test.columns["day"].tolist()
    )
    other = read(lines, **ONE_FILE, test_fraction=0.3, seed=1)
    assert dataset.test.columns["day"].tolist() != other.test.columns["day"].tolist()
    numbers = read(lines, **ONE_FILE, target="size", target_kind="number", ignore=["kind"])
    assert (len(numbers.train), len(numbers.test)) == (12, 3)


BROKEN = [
    (["2024-01-03,a,1,red,10"], "t.csv, line 2: found 5 fields, allowed: 6, as the header has (['day', 'who', 'size',"),
    ([*TRAIN, "", "x,y"], "t.csv, line 6: found 2 fields, allowed: 6"),
    (
        [TRAIN[0], 'd,"a"b,1,red,10,cat'],
        "t.csv, line 3: found a broken line (',' expected after '\"'), allowed: fields",
    ),
    ([TRAIN[0], '2024-01-01,"a,1,red'], "t.csv, line 3: found a broken line (unexpected end of data), allowed: fields"),
    (
        [TRAIN[0].replace(",1,", ",one,"), *TRAIN],
        "t.csv, line 2, column 'size': found 'one', allowed: a number; dataset.missin",
    ),
    ([TRAIN[0], TRAIN[1].replace(",5,", ",inf,")], "t.csv, line 3, column 'size': found 'inf', allowed: a number"),
    ([TRAIN[0], TRAIN[1].replace("2024-01-01", "May")], "t.csv, line 3, column 'day' (dataset.time): found 'May',"),
    (
        [TRAIN[0].replace("2024-01-03", "May"), *TRAIN],
        "'day' (dataset.time): found 'May', allowed: a number or a date in ISO 8601; set dataset.time_format for dates",
    ),
    (
        [TRAIN[0], TRAIN[1].replace(",5,", ",-1e39,")],
        "t.csv, line 3, column 'size': found -1e+39, allowed: -3.4e38 to 3.4e38, the range of float32",
    ),
    (
        [TRAIN[0].replace(",1,", ",1e-39,"), TRAIN[1].replace(",5,", ",3e-39,")],
        "s.csv, line 2, column 'size', standardized: found 3e+39, allowed",
    ),
    (
        [TRAIN[0], TRAIN[1].replace("dog", "")],
        "column 'kind' (dataset.target): found nothing, allowed: a label; remove",
    ),
    ([TRAIN[0]], "s.csv, line 2, column 'kind' (dataset.target): found 'dog', allowed: a label of the training rows"),
    ([], "t.csv holds no rows, allowed: at least one below the names of the columns"),
]


@pytest.mark.parametrize(("lines", "words"), BROKEN)
def test_a_broken_line_is_named(read: Read, lines: list[str], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(lines)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_lines_are_counted_where_fields_have_line_breaks(read: Read) -> None:
    """The second record is of lines 3 and 4, the third begins in line 5."""
    lines = [TRAIN[0], TRAIN[1].replace("blue", '"bl\nue"'), TRAIN[2].replace(",3,", ",x,")]
    with pytest.raises(ConfigError, match=r"t.csv, line 5, column 'size': found 'x'"):
        read(lines)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (
            {"header": "day,who,size,color,size,kind"},
            "t.csv, line 1: found the column 'size' twice, allowed: a name for",
        ),
        ({"header": "day,who,,color,mass,kind"}, "t.csv, line 1: found a column without a name"),
        (
            {"delimiter": ";"},
            "found one column, 'day,who,size,color,mass,kind', allowed: a name for each column, separated by ';' (dat",
        ),
        (
            {"target": "knd"},
            "dataset.target: found 'knd', allowed: one of ['day', 'who', 'size', 'color', 'mass', 'kin",
        ),
        ({"time": "kind"}, "dataset.time: found 'kind', which is dataset.target, allowed: one of the two"),
        ({"categories": ["colour"]}, "did you mean 'color'?"),
        (
            {"client": None, "ignore": ["who"], "standardize": "client"},
            "allowed without dataset.client: federation or n",
        ),
        ({"ignore": ["size", "mass"], "categories": [], "columns": ["color"]}, "has no column that is an input"),
        ({"path": "nowhere.csv"}, "dataset.path: there is no file"),
        ({"target": "mass", "target_kind": "number"}, "column 'kind': found 'cat', allowed: a number; dataset.missing"),
        (
            {"target_kind": "number"},
            "column 'kind' (dataset.target): found 'cat', allowed: a number, as dataset.target_kind=number says",
        ),
    ],
)
def test_roles_that_do_not_fit_are_refused(read: Read, keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(**keys)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("emu", "found the only row of the class 'emu', allowed: two, one for testing; set dataset.test, a file"),
        ("", "found nothing, allowed: a label; remove rows without one"),
    ],
)
def test_a_class_of_one_row_cannot_be_divided(read: Read, kind: str, words: str) -> None:
    """Line 8 is the only row of its class, or has no class."""
    lines = [*TRAIN, *TRAIN, TRAIN[0].replace("cat", kind)]
    with pytest.raises(ConfigError, match=rf"t.csv, line 8, column 'kind' \(dataset.target\): {words}"):
        read(lines, **ONE_FILE)


def test_a_test_file_has_the_same_columns(read: Read, tmp_path: Path) -> None:
    read()
    (tmp_path / "u.csv").write_text("kind,mass\ncat,1\n")
    with pytest.raises(ConfigError, match=r"dataset.test: found 'day', allowed: one of \['kind', 'mass'\] in .*u.csv"):
        load_dataset(csv, str(tmp_path), False, {**ROLES, "test": "u.csv"})
    (tmp_path / "u.csv").write_text("kind;mass;color;size;who;day;more\ncat;1;red;1;a;2024-01-01;0\n".replace(";", ","))
    found = load_dataset(csv, str(tmp_path), False, {**ROLES, "test": "u.csv"})  # in any order, and with more
    assert found.test.columns["mass"].tolist() == [1]


def test_files_may_be_gzipped_and_have_another_delimiter(tmp_path: Path) -> None:
    text = "\ufeff" + "\n".join([HEADER, *TRAIN, *TEST]).replace(",", ";")
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(text.encode()))
    keys = {**ROLES, "path": "t.csv.gz", "test": None, "delimiter": ";"}
    assert len(load_dataset(csv, str(tmp_path), False, keys).train) == 3  # a cat and a dog of five rows are for testing
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(text.encode())[:40])
    with pytest.raises(ConfigError, match=r"t.csv.gz cannot be read \(.*\), allowed: CSV in UTF-8, in .gz if gzipped"):
        load_dataset(csv, str(tmp_path), False, keys)
    (tmp_path / "t.csv").write_bytes(b"a,b\n\xff\xfe,1\n")
    with pytest.raises(ConfigError, match=r"t.csv cannot be read \('utf-8' codec"):
        load_dataset(csv, str(tmp_path), False, {"path": "t.csv", "target": "b"})


def config_of(tmp_path: Path, **keys: Any) -> Any:
    document = {
        "name": "table",
        "dataset": {"name": "csv", "root": str(tmp_path), **ROLES},
        "scenario": {"kind": "by_column", "column": "day", "tasks": 2},
        "partition": "natural",
        "clients": {"count": 2},
        "model": {"name": "table_mlp", "hidden": [4], "width": 2},
        "training": {"rounds_per_task": 2, "batch_size": 2},
        "logging": {"tensorboard": False},
    }
    return load(document, keys)


def test_a_run_on_a_table(read: Read, tmp_path: Path) -> None:
    """Days 1 and 2 are task 1, day 3 is task 2: client a has one row in each, client b one in task 1.

    The model has an embedding 3 x 2, layers 4 x 4 + 4 and 4 x 2 + 2: 36 parameters.
    """
    read()
    federation = build_federation(config_of(tmp_path))
    assert [[len(rows) for rows in stream.rows] for stream in federation.streams] == [[1, 1], [1, 0]]
    assert federation.vocabulary == (3,)
    result = raysim.run(config_of(tmp_path), out=tmp_path / "run", local=True)
    assert result.updates == 2 * 2 + 2
    assert result.bytes_up == 6 * 36 * 4


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"model": "mlp"}, "model.name: found mlp for a table with categories, allowed: table_mlp, or your own with a"),
        ({"dataset.normalize": "standard"}, "dataset.normalize: found 'standard' for a table with categories"),
        (
            {"scenario": {"kind": "domain_incremental", "tasks": 2, "shift": "permutation"}},
            "scenario.shift: found permutation for a table with categories, whose columns cannot change places",
        ),
    ],
)
def test_what_would_mix_ids_up_is_refused(read: Read, tmp_path: Path, keys: dict[str, Any], words: str) -> None:
    read()
    with pytest.raises(ConfigError) as refused:
        raysim.run(config_of(tmp_path, **keys), out=tmp_path / "run", local=True)
    assert words in str(refused.value)


def test_tables_with_categories_are_no_domains_and_no_second_dataset(read: Read, tmp_path: Path) -> None:
    read()
    tables = [{"name": "csv", **ROLES}, {"name": "csv", **ROLES, "standardize": "none"}]
    shift = {"kind": "domain_incremental", "tasks": 2, "shift": {"domains": tables}}
    with pytest.raises(ConfigError, match="has categories, whose ids differ between tables; join the tables"):
        build_federation(config_of(tmp_path, scenario=shift))
    with pytest.raises(ConfigError, match=r"allowed: tables without categories; or dataset.label_rate"):
        build_federation(config_of(tmp_path, **{"dataset.unlabelled": tables[0]}))


def test_ids_of_categories_are_checked() -> None:
    def with_ids(ids: Any) -> Dataset:
        x, y = np.array([[0.5, ids], [1, 0]], np.float32), np.zeros(2, np.int64)
        return check_dataset(Dataset(Split(x, y), Split(x, y), classes=1, categories=(3,)), "mine")

    assert with_ids(2).categories == (3,)
    for ids in (3, -1, 0.5):
        with pytest.raises(
            ConfigError, match=r"dataset mine, train split: found ids from .* use whole numbers from 0 to 2"
        ):
            with_ids(ids)


def test_parquet_needs_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(
        ConfigError, match=r"the package pyarrow cannot be imported .*pip install 'raysim-cfl\[parquet\]'"
    ):
        load_dataset(parquet, str(tmp_path), False, {"path": "t.parquet", "target": "kind"})


def test_parquet_has_the_same_roles(read: Read, tmp_path: Path) -> None:
    why = "pyarrow is not installed; the roles of columns are tested with CSV, and the error without it, in any case"
    arrow = pytest.importorskip("pyarrow", reason=why)
    files = pytest.importorskip("pyarrow.parquet", reason=why)
    from datetime import date

    expected = read()
    for name, lines in (("t", TRAIN), ("s", TEST)):
        rows = [line.split(",") for line in lines]
        columns = dict(zip(HEADER.split(","), zip(*rows, strict=True), strict=True))
        columns |= {"day": [date.fromisoformat(day) for day in columns["day"]]}
        columns |= {"size": [float(size) for size in columns["size"]], "mass": [int(mass) for mass in columns["mass"]]}
        files.write_table(arrow.table(columns), tmp_path / f"{name}.parquet")
    keys = {**ROLES, "path": "t.parquet", "test": "s.parquet"}
    found = load_dataset(parquet, str(tmp_path), False, keys)
    for one, other in ((found.train, expected.train), (found.test, expected.test)):
        np.testing.assert_array_equal(one.x, other.x)
        np.testing.assert_array_equal(one.y, other.y)
        assert {name: values.tolist() for name, values in one.columns.items()} == {
            name: values.tolist() for name, values in other.columns.items()
        }
    with pytest.raises(ConfigError, match=r"t.parquet, row 1, column 'color': found 'red', allowed: a number"):
        load_dataset(parquet, str(tmp_path), False, {**keys, "categories": []})
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    with pytest.raises(ConfigError, match=r"t.parquet cannot be read \(.*\), allowed: a Parquet file"):
        load_dataset(parquet, str(tmp_path), False, keys)
