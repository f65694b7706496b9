"""The picture of a stream: cells, boundaries and samples with values derived by hand, and its size."""

import base64
import re
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

import raysim
from raysim.config import load
from raysim.data.builtin import digits
from raysim.reports.plots.data import read_holdings
from raysim.reports.stream.cells import StreamCell
from raysim.reports.stream.facts import StreamFacts, collect_facts, join_ranges
from raysim.reports.stream.picture import choose_rounds, draw_facts
from raysim.reports.stream.rows import find_boundaries

SVG = "{http://www.w3.org/2000/svg}"
BASE = {
    "name": "drawn",
    "dataset": {"name": "digits"},
    "scenario": {"kind": "class_incremental", "tasks": 2},
    "clients": {"count": 2},
    "model": {"name": "mlp", "hidden": [4]},
    "training": {"rounds_per_task": 4},
    "logging": {"tensorboard": False, "dispatches": True},
}
NUMBERS = {"name": "synthetic", "shape": [6], "classes": 4, "train": 40, "test": 8}
PERMUTED = {"kind": "domain_incremental", "tasks": 2, "shift": "permutation"}


def facts_of(overrides: Mapping[str, object] = {}) -> StreamFacts:
    return collect_facts(load(BASE, overrides))


def drawn(overrides: Mapping[str, object] = {}) -> ElementTree.Element:
    return ElementTree.fromstring(raysim.draw_stream(BASE, overrides).svg)


def of_class(root: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [found for found in root.iter() if found.get("class") == name]


def texts(root: ElementTree.Element) -> list[str]:
    return ["".join(found.itertext()) for found in root.iter(f"{SVG}text")]


def spans(cells: list[StreamCell]) -> list[tuple[int, int, dict[int, int]]]:
    return [(cell.first, cell.last, dict(cell.counts)) for cell in cells]


def test_every_client_has_a_cell_for_each_task_and_a_boundary_between_them() -> None:
    """Two tasks of four rounds: the boundary is in the middle of the time, between rounds 4 and 5."""
    root = drawn()
    cells, boundaries = of_class(root, "cell"), of_class(root, "boundary")
    assert (len(cells), len(boundaries)) == (4, 2)
    begin, middle = (float(cell.findall(f"{SVG}rect")[0].attrib["x"]) for cell in cells[:2])
    end = 560 - 12  # the picture is 560 wide, with a margin of 12
    assert middle == pytest.approx((begin + end) / 2, abs=0.1)
    assert [float(line.attrib["x1"]) for line in boundaries] == pytest.approx([middle - 0.6] * 2, abs=0.1)
    assert "client 0, rounds 1 to 4: " in (cells[0].findtext(f"{SVG}title") or "")
    assert {"drawn: the stream of 2 clients over 8 rounds", "1: classes 0–4", "2: classes 5–9"} <= {*texts(root)}


def test_windows_of_unknown_tasks_are_cells_with_the_tasks_by_their_shares() -> None:
    """Each client has 20 samples of each task, in windows of 15: 15 + 0, 5 + 10 and 0 + 10, for three rounds each."""
    windows = {"asynchronous": {"window": 15, "rounds_per_window": 3}}
    changes = {"dataset": NUMBERS, "scenario": {**PERMUTED, "boundaries": windows}, "training": {}}
    facts = facts_of(changes)
    for row in facts.rows:
        assert spans([*row.cells]) == [(1, 3, {0: 15}), (4, 6, {0: 5, 1: 10}), (7, 9, {1: 10})]
        assert find_boundaries(row) == [3, 6]
    mixed = of_class(ElementTree.fromstring(draw_facts(facts).svg), "cell")[1]
    heights = [float(box.attrib["height"]) for box in mixed.findall(f"{SVG}rect")]
    assert heights == [12.0, 12.0, 24.0, 24.0]  # field and edge of each task: a third and two thirds of 36
    assert "40 samples" not in texts(mixed)
    assert "15 samples" in texts(mixed)


def test_a_client_is_drawn_from_its_arrival_to_its_departure() -> None:
    changes = {
        "clients.arrive": {"at": [{"round": 3, "clients": [1]}]},
        "clients.leave": [{"round": 7, "clients": [0]}],
    }
    facts = facts_of(changes)
    found = [[(cell.first, cell.last) for cell in row.cells] for row in facts.rows]
    assert found == [[(1, 4), (5, 6)], [(3, 4), (5, 8)]]
    root = ElementTree.fromstring(draw_facts(facts).svg)
    marks = {kind: len(of_class(root, kind)) for kind in ("arrival", "departure", "absent")}
    assert marks == {"arrival": 2, "departure": 2, "absent": 2}  # a mark in the picture, and one in the legend


def test_boundaries_are_where_the_run_records_them(tmp_path: Path) -> None:
    """clients.json has the rounds in which each client's task changes, the first of which is its arrival."""
    changes: dict[str, object] = {
        "scenario.boundaries": {"jittered": {"rounds": 2}},
        "scenario.order": "per_client",
        "scenario.tasks": 3,
        "training.rounds_per_task": 6,
    }
    raysim.run(BASE, changes, out=tmp_path / "run", local=True)
    recorded = read_holdings(tmp_path / "run").at_tasks
    rows = facts_of(changes).rows
    assert [[(cell.first, cell.tasks[0] + 1) for cell in row.cells] for row in rows] == [
        [tuple(change) for change in of_client] for of_client in recorded
    ]


def test_images_are_those_of_the_window_as_the_client_sees_them() -> None:
    """Rotated by PIL: with one client, the first sample drawn in a cell for three is the window's row n // 6."""
    changes: dict[str, object] = {"scenario": {"kind": "domain_incremental", "tasks": 1}, "clients.count": 1}
    facts = facts_of(changes)
    shown = facts.samples.of_window(0, 0, 3)
    angle = float(facts.tasks[0].removeprefix("rotation "))
    rows = raysim_rows()
    for place, sample in enumerate(shown):
        original = digits(Path(), False).train.x[rows[(2 * place + 1) * len(rows) // 6], 0]
        expected = Image.fromarray(original).rotate(angle, Image.Resampling.NEAREST)
        found = Image.open(BytesIO(base64.b64decode(sample.image.partition(",")[2])))
        assert np.mean(np.asarray(found) != np.asarray(expected)) < 0.05  # the name has a rounded angle
    assert draw_facts(facts).svg.count("<image") == 5  # as many as a cell has at most


def raysim_rows() -> list[int]:
    """The rows of the only client, whose partition deals all rows at random."""
    from raysim.federation.federation import build_federation

    config = load(BASE, {"scenario": {"kind": "domain_incremental", "tasks": 1}, "clients.count": 1})
    return [int(row) for row in build_federation(config).streams[0].rows[0]]


def test_a_text_is_drawn_by_its_first_words(tmp_path: Path) -> None:
    animals = {"a": "cat", "b": "dog"}
    lines = [f'{{"text": "{word} mat on the floor", "label": "{label}"}}\n' for label, word in animals.items()]
    (tmp_path / "texts.jsonl").write_text("".join(lines * 10))
    changes = {
        "dataset": {"name": "text_jsonl", "path": str(tmp_path / "texts.jsonl"), "length": 4},
        "model": {"name": "bag_of_embeddings"},
    }
    root = drawn(changes)
    assert [texts(cell) for cell in of_class(root, "cell")] == [["cat mat on the"], ["dog mat on the"]] * 2
    assert {"1: a", "2: b"} <= {*texts(root)}


def test_custom_streams_have_no_known_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six windows, of three rounds each, and none of the samples is read."""
    (tmp_path / "flowing.py").write_text(
        "def stream(client, start):\n    raise AssertionError('it was opened')\n    yield\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    windows = {"window": 30, "windows": 6, "rounds_per_window": 3, "stream": "flowing:stream"}
    root = drawn({"scenario.boundaries": {"asynchronous": windows}, "training": {}})
    assert (len(of_class(root, "cell")), len(of_class(root, "boundary")), len(of_class(root, "task"))) == (12, 0, 1)
    assert "1: custom streams of the clients" in texts(root)


def test_without_the_files_it_has_no_samples_and_says_so(tmp_path: Path) -> None:
    changes = {"dataset": {"name": "mnist", "root": str(tmp_path)}, "model": {"name": "mlp", "hidden": [4]}}
    picture = raysim.draw_stream(BASE, changes)
    assert "<image" not in picture.svg
    (note,) = picture.notes
    assert note.startswith(f"The files of mnist are not in {tmp_path}.")


def test_many_clients_and_rounds_are_sampled_and_the_picture_says_so() -> None:
    """Each of 300 clients has 100 samples of each task, in windows of one sample: 200 windows of 25 rounds."""
    windows = {"asynchronous": {"window": 1, "rounds_per_window": 25}}
    changes = {
        "dataset": {**NUMBERS, "train": 30_000},
        "scenario": {**PERMUTED, "boundaries": windows},
        "clients": {"count": 300, "dropout": 0.1},
        "training": {},
        "participation": {"count": 30},
    }
    picture = raysim.draw_stream(BASE, changes)
    assert len(picture.svg) < 200_000
    assert [note.partition(".")[0] for note in picture.notes] == [
        "24 of 300 clients are drawn, evenly spaced",
        "A column is 36 rounds",  # 5,000 in at most 140 columns
        "Participation is that of 3,892 of 5,000 rounds",  # 28 of each of 139 columns
    ]
    root = ElementTree.fromstring(picture.svg)
    assert len(of_class(root, "trips")) == 24
    first, second = (share.attrib["d"] for share in of_class(root, "share"))  # an area for each task
    assert (first.count("H"), second.count("H")) == (120, 120)  # 60 steps forward and 60 back
    assert "clients by task, of 300 clients" in texts(root)


def test_all_clients_are_counted_by_task() -> None:
    """40 clients, 30 of which are there from the start, and all from round 3 on; the overview is 44 high."""
    arrive = {"at": [{"round": 3, "clients": [*range(30, 40)]}]}
    changes = {"dataset": NUMBERS, "scenario": PERMUTED, "clients": {"count": 40, "arrive": arrive}}
    facts = facts_of(changes)
    assert facts.overview is not None
    assert facts.overview.counts.tolist() == [[30, 30, 40, 40, 0, 0, 0, 0], [0, 0, 0, 0, 40, 40, 40, 40]]
    first, _ = (share.attrib["d"] for share in of_class(ElementTree.fromstring(draw_facts(facts).svg), "share"))
    heights = [float(y) for y in re.findall(r"V([\d.]+)", first)]
    assert heights[8] - heights[0] == pytest.approx(33, abs=0.1)  # 30 of 40 clients
    assert heights[8] - heights[2] == pytest.approx(44, abs=0.1)


def test_a_long_name_takes_several_lines() -> None:
    titles = [found for found in drawn({"name": "word " * 30 + "end"}).iter(f"{SVG}text") if found.get("font-weight")]
    assert len(titles) == 4  # a word and a space take 45 of 536 pixels: twelve words in a line, of 41
    assert texts(drawn({"name": "x" * 150}))[0].endswith("x…")


@pytest.mark.parametrize(("labels", "words"), [([3], "3"), ([0, 1], "0 1"), ([0, 1, 2, 5, 7, 8, 9], "0–2 5 7–9")])
def test_consecutive_classes_are_a_range(labels: list[int], words: str) -> None:
    assert join_ranges(labels) == words


def test_many_tasks_have_colors_in_a_row() -> None:
    root = drawn({"dataset": NUMBERS, "scenario": {**PERMUTED, "tasks": 40}, "training.rounds_per_task": 1})
    colors = [task.attrib["fill"] for task in of_class(root, "task")]
    assert len({*colors}) == 40
    assert {"task 1: permutation 1", "task 40: permutation 40"} <= {*texts(root)}


@pytest.mark.parametrize(
    ("rounds", "named"),
    [
        (1, [1]),
        (4, [1, 2, 3, 4]),
        (30, [1, 5, 10, 15, 20, 25, 30]),
        (40, [1, 10, 20, 30, 40]),
        (8000, [1, 2000, 4000, 6000, 8000]),
    ],
)
def test_rounds_are_named_at_round_numbers(rounds: int, named: list[int]) -> None:
    """On an axis of 330 pixels, with at least 46 between two names, there is room for seven."""
    assert choose_rounds(rounds, 330) == named


def test_it_is_shown_in_notebooks_and_written_to_files(tmp_path: Path) -> None:
    picture = raysim.draw_stream(BASE)
    assert picture.save(tmp_path / "a.svg").read_text() == picture._repr_svg_() == picture.svg
    assert ElementTree.fromstring(picture.svg).findtext(f"{SVG}desc") == picture.caption
    assert "prefers-color-scheme: dark" in picture.svg
    for path, said in (("a.png", "ends in .svg"), ("none/a.svg", "there is no folder")):
        with pytest.raises(raysim.ConfigError, match=re.escape(said)):
            picture.save(tmp_path / path)
