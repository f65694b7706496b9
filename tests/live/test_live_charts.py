"""The live page's charts and runs in Chromium: marks, runs laid over each other, the table, and values by keyboard."""

import json
import shutil
from functools import partial
from operator import eq
from pathlib import Path

import pytest
import site_check
from browser import IN_CHROMIUM, Browser

from raysim.live import run_folder
from raysim.live.http_server import serve
from raysim.live.watched import Watched

pytestmark = IN_CHROMIUM
MARKS = """[...document.querySelectorAll('#{} .marks')].map((path) =>
  [...path.getAttribute('d').matchAll(/M([\\d.]+)/g)].map((found) => +found[1]))"""
CORNERS = """[...document.querySelectorAll('#{} .curve')].map((path) =>
  [...path.getAttribute('d').matchAll(/[ML]([\\d.]+)/g)].map((found) => +found[1]))"""
CARDS = "[...document.querySelectorAll('#one .card')].filter((c) => c.checkVisibility()).map((c) => c.id)"
COLUMN = "[...document.querySelectorAll('#table tbody tr:not([hidden])')].map((row) => row.cells[{}].textContent)"
HEADS = "[...document.querySelectorAll('#table thead button')].map((button) => button.textContent)"
PRESSED = "[...document.querySelectorAll('#legend button')].map((button) => button.ariaPressed)"
SPOKEN = "document.getElementById('spoken').textContent"
DIFFERENCE = """[...document.querySelectorAll('#difference tbody tr')].map((row) =>
  [...row.cells].map((cell) => cell.textContent))"""
# what is over the middle of each text that is in the window: the text's own element, or something inside it
COVERED = """(() => {
  const covered = [];
  for (const element of document.querySelectorAll("h1, h2, dt, dd, .note, .matrix td, #bar button, label")) {
    const box = element.getBoundingClientRect();
    if (!element.checkVisibility() || !box.height || box.top < 0 || box.bottom > innerHeight) continue;
    const over = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
    if (!element.contains(over) && !over.contains(element)) covered.push(element.textContent);
  }
  return covered;
})()"""


@pytest.fixture
def three(tmp_path: Path, two_tasks: Path) -> Path:
    """A folder with three runs, two levels down, which differ in learning rate, methods and accuracies."""
    for name, lr, accuracy in (("b", 0.1, 0.5), ("a", 0.02, 0.9), ("c", 0.003, 0.7)):
        run = tmp_path / "runs" / "seed-0" / name
        shutil.copytree(two_tasks, run)
        config = (run / "config.yaml").read_text().replace("lr: 0.1\n", f"lr: {lr}\n")
        if name == "c":
            config = config.replace("methods:\n  er:\n    sample_size: null\n", "methods: {}\n")
        (run / "config.yaml").write_text(config)
        lines = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
        for line in lines:
            if "evaluation" in line:
                line["evaluation"] = {"class_il": [accuracy] * 2}
        (run / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path / "runs"


def press(browser: Browser, key: str) -> None:
    browser.call(
        "Input.dispatchKeyEvent", type="keyDown", key=key, code=key, **({"text": "\r"} if key == "Enter" else {})
    )
    browser.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key)


def click(browser: Browser, selector: str) -> None:
    browser.find(f"document.querySelector({selector!r}).click()")


def test_marks_are_at_measured_points_and_lines_between_them(browser: Browser, two_tasks: Path) -> None:
    """Evaluated after rounds 3, 4, 6 and 8 of 8: with round r at x0 + r * step, the marks are at these four."""
    with serve(Watched(two_tasks), 0) as server:
        browser.open(server.address)
        curves = browser.wait(MARKS.format("curves"), lambda found: len(found) == 2)
        for line in curves:
            step = (line[3] - line[0]) / 5
            assert line == pytest.approx([line[0] + step * since for since in (0, 1, 3, 5)], abs=0.2)
        assert browser.find(CORNERS.format("curves")) == curves
        assert [len(line) for line in browser.find(MARKS.format("loss"))] == [8]


def test_what_has_no_data_has_no_card(browser: Browser, two_tasks: Path, tmp_path: Path) -> None:
    """Before the first evaluation, in round 3, there are losses and bytes; then the rest, of what the run records."""
    run = tmp_path / "run"
    shutil.copytree(two_tasks, run)
    config = (run / "config.yaml").read_text().replace("dispatches: true", "dispatches: false")
    (run / "config.yaml").write_text(config.replace("memory: true", "memory: false"))
    lines = (run / "rounds.jsonl").read_text().splitlines()
    (run / "summary.json").unlink()
    (run / "rounds.jsonl").write_text("\n".join(lines[:2]) + "\n")
    with serve(Watched(run), 0) as server:
        browser.open(server.address)
        browser.wait(CARDS, lambda cards: cards == ["loss-card", "bytes-card"])
        without = [{key: value for key, value in json.loads(line).items() if key != "memory"} for line in lines]
        (run / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in without))
        browser.wait(CARDS, lambda cards: cards == ["matrix-card", "curves-card", "loss-card", "bytes-card"])
        assert "logging.dispatches=true" in browser.find("document.getElementById('absent').textContent")
    with serve(Watched(two_tasks), 0) as server:
        browser.open(server.address)
        browser.wait(CARDS, lambda cards: {"trips-card", "memory-card"} <= {*cards})


def test_equal_bytes_are_one_line_and_others_are_two(browser: Browser, two_tasks: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(two_tasks, run)
    lines = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    names = "[...document.querySelectorAll('#bytes .key')].map((text) => text.textContent)"
    for down, expected in ((100, ["up and down"]), (101, ["up", "down"])):
        changed = [{**line, "bytes_up": 100, "bytes_down": down} for line in lines]
        (run / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in changed))
        with serve(Watched(run), 0) as server:
            browser.open(server.address)
            browser.wait(names, partial(eq, expected))


def test_runs_are_laid_over_each_other_and_the_legend_filters(browser: Browser, three: Path) -> None:
    browser.errors.clear()
    with serve(Watched(three), 0) as server:
        browser.open(server.address)
        browser.wait(MARKS.format("overlay"), lambda lines: [len(line) for line in lines] == [4, 4, 4])
        names = browser.find("[...document.querySelectorAll('#legend span')].map((name) => name.textContent)")
        assert names == ["er, lr 0.02", "er, lr 0.1", "FedAvg, lr 0.003"]
        click(browser, "#legend button:nth-child(2)")
        browser.wait(PRESSED, lambda pressed: pressed == ["true", "false", "true"])
        browser.wait(MARKS.format("overlay"), lambda lines: len(lines) == 2)
        browser.find("document.querySelector('#legend button:nth-child(3)').focus()")
        press(browser, "Enter")
        browser.wait(PRESSED, lambda pressed: pressed == ["true", "false", "false"])
        press(browser, "Enter")
        browser.wait(PRESSED, lambda pressed: pressed == ["true", "false", "true"])
        click(browser, "#table tbody tr:nth-child(1) input")  # out of the chart
        browser.wait(PRESSED, lambda pressed: pressed == ["false", "true"])
        click(browser, "#table tbody tr:nth-child(1) input")
        browser.wait(MARKS.format("overlay"), lambda lines: len(lines) == 2)
    assert browser.errors == []


def test_the_table_is_sorted_by_its_headings_and_filtered(browser: Browser, three: Path) -> None:
    with serve(Watched(three), 0) as server:
        browser.open(server.address)
        browser.wait(COLUMN.format(1), lambda runs: runs == ["seed-0/a", "seed-0/b", "seed-0/c"])
        heads = browser.find(HEADS)
        assert heads == ["run", "accuracy so far", "forgetting", "state", "round", "time", "methods", "lr"]
        rate = heads.index("lr") + 2
        sort = f"document.querySelector('#table thead th:nth-child({rate})').ariaSort"
        button = f"#table thead th:nth-child({rate}) button"
        for order, rates in (("ascending", ["0.003", "0.02", "0.1"]), ("descending", ["0.1", "0.02", "0.003"])):
            browser.find(f"document.querySelector({button!r}).focus()")
            press(browser, "Enter")
            browser.wait(sort, partial(eq, order))
            browser.wait(COLUMN.format(rate - 1), partial(eq, rates))
        assert browser.find("document.querySelectorAll('#table [aria-sort]').length") == 1
        click(browser, "#table thead th:nth-child(3) button")  # the best first
        browser.wait(COLUMN.format(2), lambda found: found == ["90.0%", "70.0%", "50.0%"])
        browser.find("document.getElementById('filter').value = 'er done'")
        browser.find("document.getElementById('filter').dispatchEvent(new Event('input'))")
        browser.wait(COLUMN.format(1), lambda runs: runs == ["seed-0/a", "seed-0/b"])


def change_run(run: Path, replaced: dict[str, str], evaluation: dict[str, list[float]]) -> None:
    """Give a run other lines in its config, and these values in all evaluations."""
    config = (run / "config.yaml").read_text()
    for old, new in replaced.items():
        assert old in config
        config = config.replace(old, new)
    (run / "config.yaml").write_text(config)
    lines = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    for line in lines:
        if "evaluation" in line:
            line["evaluation"] = evaluation
    (run / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_metrics_and_protocols_are_not_mixed(browser: Browser, three: Path) -> None:
    """The mean of 2.5 and 1.5 is 2, and no percentage; a run with one protocol of two has no value by the other."""
    objective = {"objective: classification\n": "objective: next_token\n"}
    change_run(three / "seed-0" / "a", objective, {"class_il": [2.5, 1.5]})
    change_run(three / "seed-0" / "c", {}, {"class_il": [0.7, 0.7], "task_il": [0.8, 0.8]})
    browser.errors.clear()
    selector, title = "document.getElementById('measure')", "document.getElementById('overlay-title').textContent"
    choose = f"{selector}.selectedIndex = {{}}; {selector}.dispatchEvent(new Event('change'))"
    legend = "[...document.querySelectorAll('#legend b')].map((value) => value.textContent)"
    sort = "document.querySelector('#table thead th:nth-child(3)').ariaSort"
    with serve(Watched(three), 0) as server:
        browser.open(server.address)
        browser.wait(HEADS)  # before that, the page may have no selector
        measures = ["perplexity, class-IL", "accuracy, class-IL", "accuracy, task-IL"]
        browser.wait(f"[...{selector}.options].map((option) => option.textContent)", partial(eq, measures))
        heads = ["perplexity so far, class-IL", "accuracy so far, class-IL"]
        heads += ["forgetting, perplexity, class-IL", "forgetting, accuracy, class-IL"]
        browser.wait(HEADS, lambda found: found[1:5] == heads)
        for column, values in ((2, ["2.000", "–", "–"]), (3, ["–", "50.0%", "70.0%"])):
            assert browser.find(COLUMN.format(column)) == values
        browser.wait(legend, partial(eq, ["2.000"]))
        assert browser.find(title).endswith("far, class-IL")
        browser.find(choose.format(1))
        browser.wait(legend, lambda values: sorted(values) == ["50.0%", "70.0%"])
        assert browser.find(title).endswith("far, class-IL (%)")
        click(browser, "#table thead th:nth-child(4) button")  # the highest accuracy first, others last
        browser.wait(COLUMN.format(1), partial(eq, ["seed-0/c", "seed-0/b", "seed-0/a"]))
        click(browser, "#table thead th:nth-child(3) button")  # a lower perplexity is better
        browser.wait(sort, partial(eq, "ascending"))
        browser.find(choose.format(2))
        browser.wait(legend, partial(eq, ["80.0%"]))
        heads = ["perplexity so far, class-IL", "accuracy so far, task-IL"]
        browser.wait(HEADS, lambda found: found[1:3] == heads)
        assert browser.find(COLUMN.format(3)) == ["–", "–", "80.0%"]
    assert browser.errors == []


def test_keys_that_end_alike_have_different_headings(browser: Browser, three: Path) -> None:
    for run, name, lr in (("a", "one", 0.02), ("b", "two", 0.1)):
        other = {"name: two\n": f"name: {name}\n", "dataset:\n  name: synthetic\n": f"dataset:\n  name: {name}s\n"}
        change_run(three / "seed-0" / run, other, {"class_il": [lr, lr]})
    with serve(Watched(three), 0) as server:
        browser.open(server.address)
        browser.wait(HEADS, lambda heads: sorted(heads[7:]) == ["dataset.name", "lr", "name"])
        names = browser.find("[...document.querySelectorAll('#legend span')].map((name) => name.textContent)")
        assert "er, name one, dataset.name ones, lr 0.02" in names


def test_a_search_that_stopped_early_is_on_the_page(
    browser: Browser, three: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_folder, "MOST_FOLDERS", 4)  # of 5: runs, seed-0, and three runs
    with serve(Watched(three), 0) as server:
        browser.open(server.address)
        browser.wait(HEADS)
        note = browser.find("document.getElementById('folder-note').textContent")
        assert note.startswith("2 runs: 2 done. ")
        assert "looked at the first 4 folders" in note


def test_the_difference_of_two_configs(browser: Browser, three: Path) -> None:
    with serve(Watched(three), 0) as server:
        browser.open(server.address)
        browser.wait(DIFFERENCE, lambda rows: rows == [["training.optimizer.lr", "0.02", "0.1"]])
        browser.wait("document.getElementById('right').options.length === 3")
        browser.find(
            "{const r = document.getElementById('right'); r.selectedIndex = 2; r.dispatchEvent(new Event('change'))}"
        )
        browser.wait(
            DIFFERENCE,
            lambda rows: (
                rows
                == [
                    ["methods", "er", "FedAvg"],
                    ["training.optimizer.lr", "0.02", "0.003"],
                    ["methods.er.sample_size", "null", "–"],
                ]
            ),
        )


@pytest.mark.skipif(site_check.AXE is None, reason=site_check.WITHOUT_AXE)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(browser: Browser, three: Path, two_tasks: Path, scheme: str) -> None:
    assert site_check.AXE is not None
    for folder, seen in ((three, "#table tbody tr"), (two_tasks, ".matrix td")):
        with serve(Watched(folder), 0) as server:
            browser.open(server.address, width=400, scheme=scheme)
            browser.wait(f"document.querySelectorAll('{seen}').length > 1")
            browser.find(site_check.AXE.read_text(encoding="utf-8") + ";0")
            ask = f"(async () => {{ const faults = []; {site_check.ASK_AXE} return faults; }})()"
            assert browser.find(ask) == []


def test_values_are_read_by_keyboard_and_pointer(browser: Browser, three: Path, two_tasks: Path) -> None:
    with serve(Watched(three), 0) as server:
        browser.open(server.address)
        browser.wait(MARKS.format("overlay"), lambda lines: len(lines) == 3)
        browser.find("document.getElementById('overlay').focus()")
        press(browser, "ArrowRight")
        press(browser, "ArrowRight")
        said = "round 4, 90.0%  er, lr 0.02, 70.0%  FedAvg, lr 0.003, 50.0%  er, lr 0.1"
        browser.wait(SPOKEN, lambda text: text == said)
        press(browser, "Escape")
        browser.wait("document.getElementById('tip').hidden")
        x, y = browser.find(
            "(({x, y, width}) => [x + width - 20, y + 50])(document.getElementById('overlay').getBoundingClientRect())"
        )
        for kind in ("touchStart", "touchEnd"):
            points = [{"x": x, "y": y}] if kind == "touchStart" else []
            browser.call("Input.dispatchTouchEvent", type=kind, touchPoints=points)
        browser.wait("document.getElementById('tip').textContent", lambda text: text.startswith("round 8\n90.0%"))
    with serve(Watched(two_tasks), 0) as server:
        browser.open(server.address)
        browser.wait("!!document.querySelector('.matrix [data-row]')")
        browser.find("document.getElementById('matrix').focus()")
        for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
            press(browser, key)
        last = browser.find('document.querySelector(\'[data-row="1"][data-task="1"]\').dataset.tip')
        assert browser.find(SPOKEN) == last.replace("\n", ", ")


@pytest.mark.parametrize("which", ["one", "several"])
def test_nothing_is_covered_on_a_phone(which: str, browser: Browser, three: Path, two_tasks: Path) -> None:
    with serve(Watched(two_tasks if which == "one" else three), 0) as server:
        browser.open(server.address, 400, 800)
        browser.wait("!!document.querySelector('.draw svg')")
        high = browser.wait("document.documentElement.scrollHeight", lambda height: height > 800)
        for top in range(0, high, 400):
            browser.find(f"scrollTo(0, {top})")
            assert browser.find(COVERED) == []
        assert browser.find("document.documentElement.scrollWidth") == 400
