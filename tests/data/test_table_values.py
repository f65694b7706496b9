"""What the values of a table mean: missing ones, numbers, dates, pandas' index, and how much memory they may take."""

import gzip
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raysim.config import load
from raysim.data import table_files
from raysim.data.dataset import Dataset
from raysim.data.loading import load_dataset
from raysim.data.tables import csv, parquet
from raysim.federation.doubts import describe_doubts
from raysim.federation.federation import build_federation
from raysim.system import capacity
from raysim.system.capacity import this_machine
from raysim.system.errors import ConfigError

Read = Callable[..., Dataset]
HEADER = "size,color,who,day,kind"
LINES = ["1,red,a,2024-01-01,x", "3,blue,b,2024-01-02,y", "5,red,a,2024-01-03,x", "7,blue,b,2024-01-04,y"]
ROLES: dict[str, Any] = {"target": "kind", "client": "who", "time": "day", "categories": ["color"]}


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """A function that writes the lines of a CSV file, and of a second one to test on, and reads them."""

    def of(lines: list[str] = LINES, test: list[str] | None = None, header: str = HEADER, **keys: Any) -> Dataset:
        for name, written in (("t.csv", lines), ("s.csv", test or [])):
            (tmp_path / name).write_text("\n".join([header, *written]) + "\n", encoding="utf-8")
        files = {"path": "t.csv", "test": None if test is None else "s.csv"}
        return load_dataset(csv, str(tmp_path), False, {**files, **ROLES, **keys})

    return of


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Dataset]:
    """A function that writes a Parquet file of columns and reads it."""
    arrow = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow; CSV has the same roles and is tested")
    files = pytest.importorskip("pyarrow.parquet")

    def of(values: dict[str, Any], metadata: dict[str, str] | None = None, **keys: Any) -> Dataset:
        table = arrow.table(values)
        files.write_table(table.replace_schema_metadata(metadata), tmp_path / "t.parquet")
        return load_dataset(parquet, str(tmp_path), False, {"path": "t.parquet", "target": "kind", **keys})

    return of


def refusal(read: Callable[..., Any], *values: Any, **keys: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        read(*values, **keys)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_number_that_stands_for_a_missing_value_has_any_spelling(read: Read) -> None:
    """pandas writes -999 as -999.0 once a value is missing. Sizes 1, missing, missing, 7 have the mean 4."""
    keys: dict[str, Any] = {"missing": "mean", "missing_values": ["-999"], "standardize": "none"}
    lines = [LINES[0], LINES[1].replace("3,", "-999.0,"), LINES[2].replace("5,", "-999,"), LINES[3]]
    found = read(lines, LINES[:1], **keys)
    assert found.train.x[:, 0].tolist() == [1, 4, 4, 7]
    assert found.notes[-1] == "missing values: 2 in size"
    said = refusal(read, lines, **{**keys, "missing": "refuse"})
    assert "line 3, column 'size': found '-999.0', one of dataset.missing_values, allowed: a number" in said


def test_a_number_that_stands_for_a_missing_value_is_one_in_parquet(write: Read) -> None:
    columns = {"a": [1, -999, 3, -999], "b": [1.0, 2, -999, 4], "kind": ["x", "x", "y", "y"]}
    found = write(columns, missing="mean", missing_values=["-999"])
    assert found.notes[-1] == "missing values: 2 in a, 1 in b"
    columns["kind"] = ["x", "x", "-999", "y"]
    said = refusal(write, columns, missing="mean", missing_values=["-999"])
    assert "row 3, column 'kind' (dataset.target): found '-999', one of dataset.missing_values" in said


def test_columns_that_only_the_file_for_testing_has_are_said(read: Read, tmp_path: Path) -> None:
    read()
    (tmp_path / "s.csv").write_text(f",{HEADER},later\n0,{LINES[0]},9\n1,{LINES[1]},9\n")
    found = load_dataset(csv, str(tmp_path), False, {"path": "t.csv", "test": "s.csv", **ROLES})
    assert found.notes[1:] == ("left out as pandas' index: a column without a name", "left out of dataset.test: later")


def test_the_roles_of_all_columns_are_said(read: Read) -> None:
    labels = "target: kind (classes 0 to 1: x, y)"
    assert read().notes == (f"1 number: size; 1 category: color (2 values); {labels}; client: who; time: day",)
    found = read(target="size", target_kind="number", columns=["kind", "day"], client=None, ignore=["who"], time=None)
    assert found.notes == (
        "1 category: color (2 values); target: size (a number); columns: kind, day",
        "left out by dataset.ignore: who",
    )


def test_what_is_left_out_and_missing_is_said(read: Read) -> None:
    lines = [f"{number},{line.replace('5,', 'NA,')}" for number, line in enumerate(LINES)]
    found = read(lines, header=f",{HEADER}", client=None, ignore=["who"], missing="mean")
    assert found.notes[1:] == (
        "left out by dataset.ignore: who",
        "left out as pandas' index: a column without a name",
        "missing values: 1 in size",
    )
    assert found.shape == (2,)


@pytest.mark.parametrize("word", ["NA", "NaN", "nan", "null", "None", "N/A", ""])
def test_missing_values_have_one_rule_in_all_roles(read: Read, word: str) -> None:
    """Sizes 1, missing, 5, 7 have the mean 13/3. The missing value is a category of its own: three ids and unknown."""
    described = f"'{word}', one of dataset.missing_values" if word else "nothing"
    number = [LINES[0], LINES[1].replace("3,", f"{word},"), *LINES[2:]]
    assert f"column 'size': found {described}, allowed: a number; dataset.missing=mean" in refusal(read, number)
    found = read(number, LINES[:1], missing="mean", standardize="none")
    np.testing.assert_allclose(found.train.x[1, 0], 13 / 3, rtol=1e-6)
    assert read([LINES[0].replace("red", word), *LINES[1:]], LINES[:1]).categories == (4,)
    for role, line in (
        ("'kind' (dataset.target)", LINES[2].replace(",x", f",{word}")),
        ("'who' (dataset.client)", LINES[2].replace(",a,", f",{word},")),
        ("'day' (dataset.time)", LINES[2].replace("2024-01-03", word)),
    ):
        assert f"line 4, column {role}: found {described}, allowed: a" in refusal(read, [*LINES[:2], line, LINES[3]])
    columns = {"categories": [], "columns": ["color"]}
    first = [LINES[0].replace("red", word), *LINES[1:]]
    assert f"line 2, column 'color' (dataset.columns): found {described}, allowed" in refusal(read, first, **columns)


def test_a_word_may_be_a_value_again(read: Read) -> None:
    lines = [line.replace("x", "NA") for line in LINES]
    assert read(lines, missing_values=[]).names == ("NA", "y")
    assert "allowed: a number; dataset.missing_values names missing ones" in refusal(
        read, ["-,red,a,2024-01-01,x", *LINES], missing="mean"
    )
    assert read(["-,red,a,2024-01-01,x", *LINES], missing="mean", missing_values=["-"]).shape == (2,)


def test_a_whole_number_is_one_text_with_and_without_a_point(read: Read) -> None:
    """Colors 0, 1 in training and 0.0, 1.0 in tests are ids 1 and 2. Classes 10.0, 2, -0.0 are 2, 1, 0. 01 is no 1."""
    lines = ["1,0,1.0,2024-01-01,10.0", "2,1,1,2024-01-02,2", "3,01,2,2024-01-03,-0.0"]
    found = read(lines, ["1,0.0,2,2024-01-01,0", "2,1.0,1.,2024-01-01,10", "2,01,1,2024-01-01,10"])
    assert found.train.x[:, 1].tolist() == [1, 3, 2]  # in the order of the texts 0, 01, 1
    assert found.test.x[:, 1].tolist() == [1, 3, 2]
    assert (found.train.y.tolist(), found.test.y.tolist(), found.names) == ([2, 1, 0], [0, 2, 2], None)
    assert found.train.clients is not None
    assert found.train.clients.tolist() == ["1", "1", "2"]


@pytest.mark.parametrize("number", ["1_000", "\u0661\u0662", "1,5", "0x10", "1e400", "Infinity", "True", "\uff11"])
def test_a_number_has_ascii_digits_and_nothing_else(read: Read, number: str) -> None:
    lines = [LINES[0].replace("1,", f'"{number}",', 1), *LINES[1:]]
    said = refusal(read, lines)
    assert f"t.csv, line 2, column 'size': found '{number}', allowed: a number; " in said
    assert ("truth values in dataset.categories" in said) == (number == "True")


@pytest.mark.parametrize(("text", "number"), [("+1.5", 1.5), (".5e1", 5), ("2.", 2), ("-1E-1", -0.1)])
def test_numbers_of_other_programs_are_numbers(read: Read, text: str, number: float) -> None:
    found = read([LINES[0].replace("1,", f"{text},", 1), *LINES[1:]], LINES[:1], standardize="none")
    assert found.train.x[0, 0] == np.float32(number)


def test_dates_of_another_format_are_read_in_it(read: Read) -> None:
    """1 April is after 30 March, and before it as text."""
    lines = [line.replace("2024-01-0", "") for line in LINES]
    lines = [f"{number},red,a,{day},{kind}" for number, day, kind in ((1, "01.04.2024", "x"), (2, "30.03.2024", "y"))]
    found = read(lines, lines, time_format="%d.%m.%Y").train.columns["day"]
    assert found.astype("datetime64[D]").astype(str).tolist() == ["2024-04-01", "2024-03-30"]
    assert (
        "'day' (dataset.time): found '01.04.2024', allowed: a number or a date in ISO 8601; set dataset.time_format"
        in (refusal(read, lines, lines))
    )
    wrong = [lines[0], lines[1].replace("30.03", "30.13")]
    assert "line 3, column 'day' (dataset.time): found '30.13.2024', allowed: a date of the form '%d.%m.%Y'" in refusal(
        read, wrong, lines, time_format="%d.%m.%Y"
    )
    other = [lines[0], lines[1].replace("30.03.2024", "\u0663\u0660.03.2024")]
    assert "allowed: a date of the form" in refusal(read, other, lines, time_format="%d.%m.%Y")


def test_dates_with_a_zone_are_in_utc(read: Read) -> None:
    lines = [f"1,red,a,30.03.2024 0{hour}:00 {zone},x" for hour, zone in ((3, "+0200"), (2, "+0000"))]
    found = read(lines, lines, time_format="%d.%m.%Y %H:%M %z").train.columns["day"]
    assert (found[1] - found[0]) == np.timedelta64(1, "h")  # 01:00 and 02:00 in UTC


@pytest.mark.parametrize("form", ["%d.%m", "%Q %Y", "", "%Y %Z", "%d %d %Y", "%Y \0"])
def test_a_format_is_checked_before_the_file_is_read(tmp_path: Path, form: str) -> None:
    keys = {"path": "absent.csv", "target": "kind", "time": "day", "time_format": form}
    said = refusal(load_dataset, csv, str(tmp_path), False, keys)
    assert "dataset.time_format: found" in said
    assert "allowed: a format of Python's strptime with a year, such as '%d.%m.%Y'" in said
    assert "allowed without dataset.time: null" in refusal(
        load_dataset, csv, str(tmp_path), False, {**keys, "time": None}
    )


def test_times_with_and_without_a_zone_do_not_mix(read: Read) -> None:
    lines = [LINES[0], LINES[1].replace("2024-01-02", "2024-01-02T00:00+02:00"), *LINES[2:]]
    said = refusal(read, lines)
    assert "t.csv, line 2, column 'day' (dataset.time): found '2024-01-01' without a time zone, and" in said
    assert "t.csv, line 3, column 'day'" in said


def test_a_category_that_most_test_rows_do_not_know_is_doubted(read: Read) -> None:
    doubts = read(LINES, [line.replace("red", "Red") for line in LINES[:3]]).doubts
    assert len(doubts) == 1
    assert "found 2 of 3 test rows with a value that no training row has, such as 'Red', column 'color'" in doubts[0]
    assert read(LINES, [LINES[0].replace("red", "Red"), LINES[1]]).doubts == ()


def test_texts_that_look_like_dates_are_doubted_where_they_order_tasks(read: Read, tmp_path: Path) -> None:
    lines = [line.replace("2024-01-0", "30.03.202") for line in LINES]
    read(lines, lines, time=None, columns=["day"])
    table = {"name": "csv", "root": str(tmp_path), "path": "t.csv", "test": "s.csv", **ROLES, "time": None}

    def doubts(column: str) -> list[str]:
        scenario = {"kind": "by_column", "column": column, "tasks": 2}
        document = {
            "name": "t",
            "dataset": {**table, "columns": ["day"]},
            "scenario": scenario,
            "clients": {"count": 2},
        }
        return describe_doubts(
            build_federation(load({**document, "model": "table_mlp", "training": {"rounds_per_task": 1}}))
        )

    assert any("found 'day' with texts that look like dates, such as '30.03.2021'" in line for line in doubts("day"))
    lines = [line.replace("2024-01-0", "2024/01/0") for line in LINES]  # the order of these texts is that of time
    read(lines, lines, time=None, columns=["day"])
    assert not any("look like dates" in line for line in doubts("day"))
    assert not any("dates" in line for line in doubts("who"))


def test_pandas_index_is_no_input(read: Read) -> None:
    """pandas' to_csv writes it as a first column without a name, which read_csv then calls Unnamed: 0."""
    lines = [f"{number},{line}" for number, line in enumerate(LINES)]
    for name in ("", "Unnamed: 0", "Unnamed: 0.1"):
        found = read(lines, lines, header=f"{name},{HEADER}")
        assert found.shape == (2,)
        assert found.notes[-1] == f"left out as pandas' index: {name or 'a column without a name'}"
        assert read(lines, lines, header=f"{name},{HEADER}", columns=[name]).train.columns[name].tolist() == [
            0,
            1,
            2,
            3,
        ]
    assert read(lines, lines, header=f"Unnamed: 1,{HEADER}").shape == (3,)


def test_an_ignored_column_must_be_there(read: Read, write: Read) -> None:
    """With a slip of the pen, the column would stay an input."""
    said = refusal(read, ignore=["sizes"])
    assert said.startswith("dataset.ignore: found 'sizes', allowed: one of ['size', 'color', 'who', 'day', 'kind'] in ")
    assert said.endswith("; did you mean 'size'?")
    columns = {"a": [1, 2, 3, 4], "kind": ["x", "x", "y", "y"]}
    assert "dataset.ignore: found 'A', allowed: one of ['a', 'kind']" in refusal(write, columns, ignore=["A"])


def test_an_ignored_column_may_be_in_one_of_two_files(read: Read, tmp_path: Path) -> None:
    read()
    (tmp_path / "s.csv").write_text(f"id,{HEADER}\n7,{LINES[0]}\n8,{LINES[1]}\n")
    for path, test in (("t.csv", "s.csv"), ("s.csv", "t.csv")):
        keys = {"path": path, "test": test, "ignore": ["id"], **ROLES}
        assert load_dataset(csv, str(tmp_path), False, keys).notes[1:] == ("left out by dataset.ignore: id",)


def test_a_column_without_a_name_may_be_the_client(read: Read) -> None:
    lines = [f"{number % 2},{line}" for number, line in enumerate(LINES)]
    found = read(lines, header=f",{HEADER}", client="", ignore=["who"])
    assert "; client: a column without a name; time: day" in found.notes[0]


def test_other_columns_without_a_name_can_be_ignored(read: Read) -> None:
    lines = [f"{line},," for line in LINES]
    said = refusal(read, lines, lines, header=f"{HEADER},,")
    assert "line 1: found a column without a name, column 6, allowed:" in said
    assert said.endswith("dataset.ignore=[''] leaves it out")
    assert read(lines, lines, header=f"{HEADER},,", ignore=[""]).shape == (2,)


def test_a_long_record_is_refused_before_it_is_read_to_its_end(read: Read, tmp_path: Path, monkeypatch: Any) -> None:
    """A record of many short lines, as a field in quotes has, is bounded too."""
    monkeypatch.setattr(table_files, "LONGEST", 1000)
    allowed = "found 1,000 letters or more in a row of the table, allowed: fewer"
    for line in ("x" * 5000, '"' + "y\n" * 600 + '"', "z," * 501):
        assert allowed in refusal(read, [*LINES, line])
    zipped = gzip.compress("\n".join([HEADER, *LINES, "x" * 5000]).encode())
    (tmp_path / "t.csv.gz").write_bytes(zipped)
    said = refusal(load_dataset, csv, str(tmp_path), False, {"path": "t.csv.gz", **ROLES})
    assert f"t.csv.gz, line 6: {allowed}" in said


def test_too_many_columns_are_refused(read: Read, monkeypatch: Any) -> None:
    monkeypatch.setattr(table_files, "MOST_COLUMNS", 4)
    assert "line 1: found 5 columns, allowed: 4 at most" in refusal(read)


def test_texts_that_grow_as_an_array_are_refused(read: Read, monkeypatch: Any) -> None:
    """An array of texts has the longest one's size in every row: 5 rows x 100,000 letters x 4 bytes are 2 MB."""
    machine = this_machine()
    monkeypatch.setattr(capacity, "MOST_FOR_DATA", 1e6 / (machine.memory or 1e6))
    said = refusal(read, [*LINES, f"1,{'r' * 100_000},a,2024-01-01,x"])
    assert "line 6, column 'color' (dataset.categories): found 100,000 letters for 5 rows, which takes" in said


def test_quotes_and_line_breaks_are_no_delimiters(read: Read) -> None:
    for delimiter in ('"', "\n"):
        assert "dataset.delimiter: found" in refusal(read, delimiter=delimiter)


@pytest.mark.parametrize("name", ["__index_level_0__", "row"])
def test_pandas_index_in_parquet_is_no_input(write: Read, name: str) -> None:
    """A named index is one by the file's metadata only."""
    columns = {"a": [1.0, 2, 3, 4], "kind": ["x", "x", "y", "y"], name: [0, 1, 2, 3]}
    metadata = {"pandas": f'{{"index_columns": ["{name}"]}}'}
    found = write(columns, metadata)
    assert (found.shape, found.notes[-1]) == ((1,), f"left out as pandas' index: {name}")
    assert write(columns, metadata, columns=[name]).train.columns[name].size == 2
    for odd in (
        {"pandas": "[" * 5000},
        {"pandas": '{"index_columns": 5}'},
        {"pandas": '{"index_columns": [{}]}'},
        None,
    ):
        assert write(columns, odd).shape == ((1,) if name.startswith("_") else (2,))


def test_columns_that_no_role_can_use_are_refused(write: Read) -> None:
    kinds = {
        "list<": [[1.0, 2.0]] * 4,
        "struct<": [{"p": 1}] * 4,
        "binary": [b"ab"] * 4,
        "duration[us]": [timedelta(1)] * 4,
    }
    columns = {"a": [1.0, 2, 3, 4], "kind": ["x", "x", "y", "y"]}
    for kind, values in kinds.items():
        for keys in ({}, {"categories": ["odd"]}, {"time": "odd"}, {"client": "odd"}, {"columns": ["odd"]}):
            said = refusal(write, {**columns, "odd": values}, **keys)
            assert f"t.parquet, column 'odd': found values of the type {kind}" in said
            assert said.endswith("allowed: numbers, truth values, texts, dates and times; name it in dataset.ignore")
        assert write({**columns, "odd": values}, ignore=["odd"]).shape == (1,)


def test_parquet_and_csv_have_one_text_for_a_value(write: Read) -> None:
    """True is 1, 1.0 is 1, and missing values are None or a word."""
    found = write({"a": [1.0, None, 3, 5], "c": [0.0, 1, None, 1], "kind": [True, True, False, False]}, missing="mean")
    assert (found.shape, found.names) == ((2,), None)
    assert found.notes[-1] == "missing values: 1 in a, 1 in c"
    texts = {"a": ["1", "NA", "1_0", "2"], "kind": ["x", "x", "y", "y"]}
    assert "row 3, column 'a': found '1_0', allowed: a number" in refusal(write, texts, missing="mean")
    days = {"kind": ["x", "x"], "a": [1, 2], "t": [datetime(2024, 1, 1, tzinfo=UTC), None]}
    assert "row 2, column 't' (dataset.time): found nothing" in refusal(write, days, time="t")
    assert write({**days, "t": [date(2024, 1, 1)] * 2}, time="t").train.columns["t"].dtype == "datetime64[us]"


def test_a_long_text_that_many_rows_share_is_stored_once(write: Read, monkeypatch: Any) -> None:
    """4,000 rows of two texts of 100,000 letters are 400 MB if each row has its own, and 1.6 GB as an array."""
    machine = this_machine()
    monkeypatch.setattr(capacity, "MOST_FOR_DATA", 2e6 / (machine.memory or 1e6))
    texts = ["r" * 100_000, "b" * 100_000] * 2000
    said = refusal(write, {"c": texts, "a": [1.0, 2] * 2000, "kind": ["x", "y"] * 2000}, categories=["c"])
    assert "row 1, column 'c' (dataset.categories): found 100,000 letters for 4,000 rows, which takes" in said


def test_texts_of_other_encodings_are_read(write: Read, tmp_path: Path) -> None:
    """pyarrow reads them, but not as a dictionary."""
    columns = {"c": ["red", "blue"] * 2, "kind": ["x", "x", "y", "y"]}
    expected = write(columns, categories=["c"])
    arrow, files = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for encoding in ("DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"):
        encodings = {"c": encoding, "kind": "PLAIN"}
        file = tmp_path / "t.parquet"
        files.write_table(arrow.table(columns), file, use_dictionary=False, column_encoding=encodings)
        keys = {"path": "t.parquet", "target": "kind", "categories": ["c"]}
        np.testing.assert_array_equal(load_dataset(parquet, str(tmp_path), False, keys).train.x, expected.train.x)


def test_a_column_whose_name_is_a_path_into_another_is_the_column(write: Read) -> None:
    """pyarrow reads s, which is left out, too: its field q has the path s.q."""
    columns = {"s": [{"q": 1}] * 4, "s.q": [7, 8, 9, 10], "kind": ["x", "x", "y", "y"]}
    found = write(columns, ignore=["s"], standardize="none")
    assert sorted([*found.train.x[:, 0], *found.test.x[:, 0]]) == [7, 8, 9, 10]


def test_a_row_count_beyond_the_memory_is_refused(write: Read, monkeypatch: Any) -> None:
    machine = this_machine()
    monkeypatch.setattr(capacity, "MOST_FOR_DATA", 1e6 / (machine.memory or 1e6))
    said = refusal(write, {"a": np.zeros(20_000, np.int8), "kind": np.zeros(20_000, np.int8)})
    assert "dataset.path: found" in said
    assert "which takes" in said
