"""The live page in Chromium: it equals summary.json, fills while a run is written, and its button works."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from browser import IN_CHROMIUM, Browser

import raysim
from raysim.live import run_course
from raysim.live.http_server import serve
from raysim.live.watched import Watched
from raysim.system.files import lock_directory

Copy = Callable[..., Path]
HOSTILE = "<img src=x onerror=document.title=1><script>document.title=2</script>"
TEXT = "document.getElementById({!r})?.textContent"
ROWS = "[...document.querySelectorAll('.matrix [data-row]')].map((c) => [+c.dataset.row, c.textContent, c.className])"
ROUND = TEXT.format("n-round")
PIXELS = """(() => {
  const sheet = document.querySelector("#matrix canvas"), pen = sheet.getContext("2d");
  return Array.from({ length: sheet.height }, (_, row) => {
    const red = [...pen.getImageData(0, row, sheet.width, 1).data].filter((_, i) => i % 4 === 0);
    return [182, 80].map((value) => red.filter((v) => v === value).length);  // 94 + 0.6 * 146 and 94 - 0.4 * 35
  });
})()"""
POINT = """(() => {
  const sheet = document.querySelector("#matrix canvas"), box = sheet.getBoundingClientRect();
  sheet.onpointermove({ clientX: box.left + 1, clientY: box.top + (%s + 0.5) * box.height / sheet.height });
})()"""
FAULTS = """(() => {
  const light = (color) => {
    const most = color.startsWith("color(srgb") ? 1 : 255;
    const parts = color.match(/[\\d.]+/g).slice(0, 3).map((part) => part / most);
    const [r, g, b] = parts.map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let around = element; around; around = around.parentElement) {
      const color = getComputedStyle(around).backgroundColor;
      if (!/, 0\\)$/.test(color)) return color;
    }
  };
  const faults = [];
  if (document.documentElement.scrollWidth > innerWidth) faults.push("wider than the window");
  for (const element of document.body.querySelectorAll("*")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !element.checkVisibility() || element.closest("script, :disabled, #spoken")) continue;
    const svg = element.closest("svg"), color = getComputedStyle(element)[svg ? "fill" : "color"];
    const [high, low] = [light(color), light(behind(svg ? svg.parentElement : element))].sort((a, b) => b - a);
    if ((high + 0.05) / (low + 0.05) < 4.5) faults.push("hard to read: " + element.textContent);
    const box = element.getBoundingClientRect();
    if (element.closest(".scroll")) continue;
    if (box.right > innerWidth + 1 || box.left < -1) faults.push("sticks out: " + element.textContent);
  }
  for (const svg of document.querySelectorAll(".draw svg"))
    if (svg.getBoundingClientRect().height < 50) faults.push("not seen: " + svg.getAttribute("aria-label"));
  return faults;
})()"""

CELLS = (
    "[...document.querySelectorAll('#table tbody tr')].map((row) => [...row.cells].slice(1).map((c) => c.textContent))"
)
pytestmark = IN_CHROMIUM


def figures(rows: list[list[float]]) -> list[list[object]]:
    """The cells of a whole matrix as the page shows them: by row, the text, and whether a task was not trained yet."""
    return [[t, f"{100 * v:.1f}", "later" if i > t else ""] for t, row in enumerate(rows) for i, v in enumerate(row)]


def test_a_run_that_is_written_while_it_is_shown(browser: Browser, two_tasks: Path, copied: Copy) -> None:
    summary = raysim.load(two_tasks).evaluation["class_il"]
    directory = copied(two_tasks, 0, name=HOSTILE)
    browser.errors.clear()
    browser.requests.clear()
    with lock_directory(directory, "run"), serve(Watched(directory), 0) as server:
        browser.open(server.address)
        browser.wait(TEXT.format("word"), lambda text: text == "No round is done yet.")
        assert browser.find(TEXT.format("name")) == HOSTILE
        assert browser.find("document.images.length") == 0
        copied(two_tasks, 3, name=HOSTILE)
        browser.wait(ROUND, lambda text: text == "3 / 8")
        cells = browser.find(ROWS)
        assert [cell[2] for cell in cells] == ["part", "part"]
        copied(two_tasks, 7, name=HOSTILE)
        browser.wait(ROUND, lambda text: text == "7 / 8")
        cells = browser.find(ROWS)
        assert cells[:2] == figures(summary["accuracy"])[:2]
        assert [cell[2] for cell in cells[2:]] == ["part", "part"]
        assert browser.find("document.querySelectorAll('[data-shaded]').length") == 2
        assert browser.find("document.querySelectorAll('#trips [data-fate]').length") == 7 * 3
        browser.find("document.getElementById('stop').click()")
        browser.wait(TEXT.format("word"), lambda text: text.startswith("The run ends after the round in progress"))
        assert (directory / "stop").exists()
        assert browser.find("document.getElementById('stop').disabled")
    browser.wait(TEXT.format("word"), lambda text: "The command that served this page has ended" in text)
    browser.find("document.dispatchEvent(new Event('visibilitychange'))")  # the page is hidden, and shown again
    assert browser.find("source") is None
    assert "The command that served this page has ended" in browser.find(TEXT.format("word"))
    assert browser.errors == []
    assert {address.partition("?")[0] for address in browser.requests} == {
        server.address.partition("?")[0] + path for path in ("", "events", "stop")
    }


def test_what_is_shown_equals_the_summary_and_may_be_replayed(browser: Browser, two_tasks: Path) -> None:
    summary = raysim.load(two_tasks)
    with serve(Watched(two_tasks), 0) as server:
        browser.open(server.address)
        browser.wait(ROUND, lambda text: text == "8 / 8")
        for protocol, metrics in summary.evaluation.items():
            browser.find(f"document.querySelector('[data-protocol={protocol}]').click()")
            browser.wait(f"document.querySelector('[data-protocol={protocol}]').ariaPressed === 'true'")
            mean = f"{100 * (metrics['average_accuracy'] or 0):.1f}%"
            browser.wait(TEXT.format("n-mean"), lambda text, mean=mean: text == mean)
            assert browser.find(ROWS) == figures(metrics["accuracy"])
            shown = {
                "forgetting": metrics["forgetting"],
                "average_incremental_accuracy": metrics["average_incremental_accuracy"],
                "backward_transfer": metrics["backward_transfer"],
                "forward_transfer": metrics["forward_transfer"],
            }
            for key, value in shown.items():
                assert browser.find(TEXT.format(f"n-{key}")) == (None if value is None else f"{100 * value:.1f}%")
        assert browser.find(TEXT.format("n-up")) == f"{summary.bytes_up / 1024:.1f} KiB"
        assert browser.find(TEXT.format("n-updates")) == str(summary.updates)
        accuracy = summary.evaluation["task_il"]["accuracy"]
        lost = accuracy[0][0] - accuracy[1][0]
        tip = browser.find('document.querySelector(\'[data-row="1"][data-task="0"]\').dataset.tip')
        change = f"lost since its best: {100 * lost:.1f}" if lost > 0 else f"its best so far, by {-100 * lost:.1f}"
        assert tip == f"round 8, on task 1: {100 * accuracy[1][0]:.1f}%\n{change}"
        browser.find("{const s = document.getElementById('slider'); s.value = 4; s.dispatchEvent(new Event('input'))}")
        browser.wait(ROUND, lambda text: text == "5 / 8")
        assert browser.find(ROWS)[:2] == figures(accuracy)[:2]
        assert len(browser.find(ROWS)) == 2
        browser.find("document.getElementById('play').click()")
        browser.wait(ROUND, lambda text: text == "8 / 8")


def test_it_can_be_read_at_every_width_light_and_dark(
    browser: Browser, apart: Path, two_tasks: Path, tmp_path: Path
) -> None:
    """A run with FedBuff, and a sweep of two runs, of which one is chosen."""
    (tmp_path / "sweep.yaml").write_text(json.dumps({"name": "s", "runs": {"a": {}, HOSTILE.replace("/", ""): {}}}))
    shutil.copytree(two_tasks, tmp_path / "a")
    browser.errors.clear()
    for path in (apart, tmp_path):
        with serve(Watched(path), 0) as server:
            for width in (400, 1400):
                for scheme in ("light", "dark"):
                    browser.open(server.address, width, 900, scheme)
                    if path == tmp_path:
                        browser.wait(
                            "document.querySelectorAll('#table tbody button').length", lambda number: number == 2
                        )
                        browser.find("document.querySelector('#table tbody button').click()")
                    browser.wait(f"!!{ROUND}")
                    assert browser.find(FAULTS) == [], (path, width, scheme)
                    back = browser.find("getComputedStyle(document.body).backgroundColor")
                    assert (back == "rgb(255, 255, 255)") == (scheme == "light")
    assert browser.errors == []


def test_of_many_tasks_some_rows_and_columns_are_shown(
    browser: Browser, two_tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 tasks of two rounds, in the second round of task 152. Only the tasks so far are good.

    Every second task is shown: 1, 3, 5, ... The shown row k from 0 is after task 2k + 1, so k + 1 of its columns are
    good, up to the row after task 151, and 24 are not. The row of task 152 so far has the same columns. Evaluations
    between rows have the numbers 0, 2, 4, ...; of more than 100, those that 4 divides are drawn.
    """
    monkeypatch.setattr(run_course, "MOST_EVALUATIONS", 100)
    config = (two_tasks / "config.yaml").read_text()
    config = config.replace("rounds_per_task: 4", "rounds_per_task: 2").replace("tasks: 2", "tasks: 200")
    (tmp_path / "config.yaml").write_text(config)
    lines = []
    for round in range(1, 304):
        task = (round + 1) // 2
        line = {"round": round, "tasks": [task], "so_far": task, "cohort": [0], "bytes_up": 1, "bytes_down": 1}
        lines.append(json.dumps({**line, "evaluation": {"domain_il": [0.9] * task + [0.1] * (200 - task)}}) + "\n")
    (tmp_path / "rounds.jsonl").write_text("".join(lines))
    with serve(Watched(tmp_path), 0) as server:
        browser.open(server.address)
        browser.wait(ROUND, lambda text: text == "303 / 400")
        rows = [[k + 1, 99 - k] for k in range(76)] + [[76, 24]] + [[0, 0]] * 23
        assert browser.find(PIXELS) == rows
        for row, words in (
            (1, "round 6, on task 1: 90.0%\nits best so far, by 0.0"),
            (76, "so far, round 303, on task 1: 90.0%\nits best so far, by 0.0"),
            (77, ""),
        ):
            browser.find(POINT % row)
            assert browser.find(TEXT.format("tip")) == words
        assert "One of 4 evaluations is drawn." in browser.find(TEXT.format("curves-note"))


def test_a_row_keeps_its_focus_and_may_be_clicked_while_rounds_are_written(
    browser: Browser, two_tasks: Path, copied: Copy, tmp_path: Path
) -> None:
    (tmp_path / "sweep.yaml").write_text('{"name": "s", "runs": {"run": {}}}')
    written = f"{CELLS}[0]?.[4]"
    copied(two_tasks, 2)
    with serve(Watched(tmp_path), 0) as server:
        browser.open(server.address)
        browser.wait(written, lambda text: text == "2/8")
        browser.find("document.querySelector('#table tbody button').focus()")
        copied(two_tasks, 3)
        browser.wait(written, lambda text: text == "3/8")
        assert browser.find("document.activeElement.closest('tr').dataset.run") == "0"
        x, y = browser.find(
            "(({x, y}) => [x + 9, y + 9])(document.querySelector('#table tbody button').getBoundingClientRect())"
        )
        where = {"x": x, "y": y, "button": "left", "clickCount": 1}
        browser.call("Input.dispatchMouseEvent", type="mousePressed", **where)
        copied(two_tasks, 4)
        browser.wait(written, lambda text: text == "4/8")
        browser.call("Input.dispatchMouseEvent", type="mouseReleased", **where)
        browser.wait(ROUND, lambda text: text == "4 / 8")


def test_a_run_that_is_deleted_while_it_is_shown(browser: Browser, two_tasks: Path, copied: Copy) -> None:
    directory = copied(two_tasks, 7)
    with serve(Watched(directory), 0) as server:
        browser.open(server.address)
        browser.wait(ROUND, lambda text: text == "7 / 8")
        shutil.rmtree(directory)
        browser.wait(TEXT.format("state"), lambda text: text == "deleted")
        assert browser.find(ROUND) == "7 / 8"


def test_a_run_that_failed_says_why(browser: Browser, two_tasks: Path, copied: Copy) -> None:
    directory = copied(two_tasks, 7)
    (directory / "summary.json").write_text(json.dumps({"status": "failed", "problem": "client 1 <b>diverged</b>"}))
    with serve(Watched(directory), 0) as server:
        browser.open(server.address)
        browser.wait(TEXT.format("state"), lambda text: text == "failed")
        assert browser.find(TEXT.format("word")) == "The run failed. It says: client 1 <b>diverged</b>"
