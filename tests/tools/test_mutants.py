"""Mutants: which lines are changed and how, the same ones with the same seed, and how a line is found by its text."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from mutants.__main__ import table
from mutants.drawing import draw_mutants
from mutants.mutant import DRAWN, Mutant, read_list, write_list
from mutants.running import nearest_tests

# eight lines can be changed: a signature, a docstring, an error, a module's constant and a repeated line cannot
MODULE = '''"""A module."""

LIMIT = 3 + 4


class Counter:
    """Counts."""

    def add(self, value: int = 1) -> int:
        """Add 1 + 1."""
        if value < 0 and not self.signed:
            raise ValueError(f"found {value + 1}")
        self.total += value
        self.tell()
        self.tell()
        return min(self.total, LIMIT)


def share(a: float, b: float) -> float:
    ready = b is not None
    while a > b:
        a = a - 2**b

    def inner() -> bool:
        return True

    return a if ready else b
'''
LINE = Mutant("x", "raysim/counter.py", "Counter.add", "self.total += value", "pass", "dropped statement")


def drawn_texts(seeds: range) -> Counter[tuple[str, str, str]]:
    drawn = (draw_mutants({"raysim/counter.py": MODULE}, seed, 1)[0] for seed in seeds)
    return Counter((one.function, one.before, one.after) for one in drawn)


def test_all_changes_of_a_small_module() -> None:
    found = drawn_texts(range(800))
    condition = "if value < 0 and not self.signed:"
    assert set(found) == {
        ("Counter.add", condition, "if value <= 0 and not self.signed:"),
        ("Counter.add", condition, "if value < 0 or not self.signed:"),
        ("Counter.add", condition, "if value < 0 and self.signed:"),
        ("Counter.add", condition, "if value < 1 and not self.signed:"),
        ("Counter.add", condition, "if True:"),
        ("Counter.add", condition, "if False:"),
        ("Counter.add", "self.total += value", "pass"),
        ("Counter.add", "return min(self.total, LIMIT)", "return max(self.total, LIMIT)"),
        ("share", "ready = b is not None", "ready = b is None"),
        ("share", "while a > b:", "while a >= b:"),
        ("share", "while a > b:", "while False:"),
        ("share", "a = a - 2**b", "a = a + 2**b"),
        ("share", "a = a - 2**b", "a = a - 3**b"),
        ("share.inner", "return True", "return False"),
        ("share", "return a if ready else b", "return a if True else b"),
        ("share", "return a if ready else b", "return a if False else b"),
    }
    by_line = Counter[str]()
    for (_, before, _), count in found.items():
        by_line[before] += count
    assert len(by_line) == 8
    assert min(by_line.values()) > 60  # each line is drawn with a probability of 1/8: 100 of 800


def test_the_same_seed_draws_the_same_mutants() -> None:
    sources = {f"raysim/{name}.py": MODULE for name in "ab"}
    drawn = draw_mutants(sources, 5, 7)
    assert drawn == draw_mutants(dict(reversed(sources.items())), 5, 7)
    assert drawn != draw_mutants(sources, 6, 7)
    assert [one.id for one in drawn] == ["01", "02", "03", "04", "05", "06", "07"]
    assert len({(one.file, one.before) for one in drawn}) == 7
    assert len(draw_mutants(sources, 5, 100)) == 16
    for one in draw_mutants(sources, 5, 100):
        one.apply(MODULE)


def test_a_line_is_found_where_it_moved_to() -> None:
    moved = MODULE.replace('    """Counts."""\n', '    """Counts."""\n\n    total = 0\n')
    assert LINE.apply(moved) == moved.replace("        self.total += value\n", "        pass\n")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"before": "self.total -= value"}, r"found 0 lines `self.total -= value` in Counter.add of raysim/counter.py"),
        ({"before": "self.tell()"}, "found 2 lines"),
        ({"function": "Counter.remove"}, "found 0 functions Counter.remove"),
        ({"function": "share"}, "found 0 lines"),
        ({"after": "self.total +="}, "no Python"),
    ],
)
def test_an_absent_line_is_refused(change: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        replace(LINE, **change).apply(MODULE)


def test_the_list_is_read_and_drawn_anew_without_the_chosen_ones(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text(json.dumps({"drawn": [], "chosen": [vars(LINE)]}))
    write_list(path, "abc", 5, [replace(LINE, id="01")])
    assert read_list(path) == [replace(LINE, id="01"), LINE]
    assert len(read_list(DRAWN)) == 64


def test_the_nearest_tests_come_first(tmp_path: Path) -> None:
    """Those that name module and function before those that name one of them, and only in the folder of the name."""
    texts = {
        "engine/test_a.py": "import raysim.engine.orders",
        "engine/test_b.py": "from raysim.engine.orders import Reply",
        "engine/test_c.py": "Reply; Replying",
        "engine/test_d.py": "Replying",
        "actors/test_e.py": "import raysim.engine.orders",
        "actors/test_f.py": "Reply",
    }
    for name, text in texts.items():
        path = tmp_path / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    near, importing = nearest_tests(tmp_path, replace(LINE, file="raysim/engine/orders.py", function="Reply.merge"))
    assert near == [f"tests/engine/test_{name}.py" for name in "bac"]
    assert importing == ["tests/actors/test_e.py", "tests/engine/test_a.py", "tests/engine/test_b.py"]


def test_the_table_has_a_column_for_each_file(tmp_path: Path) -> None:
    before, after = tmp_path / "before.jsonl", tmp_path / "after.jsonl"
    before.write_text(json.dumps({"id": "x", "result": "lives", "test": None}) + "\n")
    after.write_text(json.dumps({"id": "x", "result": "dead", "test": "tests/t.py::t"}) + "\n")
    lines = table([LINE, replace(LINE, id="y", after="a | b")], [before, after]).splitlines()
    assert lines[0] == "| id | function | line | changed to | before | after |"
    assert lines[2] == "| x | counter.py Counter.add | `self.total += value` | `pass` | lives | dead: tests/t.py::t |"
    assert lines[3].endswith("| `a \\| b` | not run | not run |")
    assert lines[4:] == ["", "before: 1 lives", "", "after: 1 dead"]
