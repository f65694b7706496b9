"""The result on a terminal: a matrix in colors, and no number twice."""

import re
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import raysim
from raysim.api import Method, Server, ServerHalf
from raysim.config import load
from raysim.evaluation.accuracy_matrix import summarise
from raysim.launch.bar import open_run_display
from raysim.launch.display import show_result

MATRIX = [[0.9, 0.1], [0.2, 0.8]]


@dataclass(frozen=True, kw_only=True)
class Nobody(Method):
    class Server(ServerHalf):
        def select(self, server: Server) -> list[int]:
            return []


@pytest.fixture
def result(tiny, tmp_path: Path) -> raysim.Result:
    done = raysim.run(tiny(), out=tmp_path / "run", local=True)
    return replace(done, evaluation={"class_il": summarise(MATRIX, [0.1, 0.1])})


def shown(result: raysim.Result, **console: Any) -> str:
    output = StringIO()
    config = load(result.directory / "config.yaml")
    show_result(result, Console(file=output, width=100, **console), config, local=True)
    return output.getvalue()


def test_cells_are_colored_by_value_and_future_tasks_are_dim(result: raysim.Result) -> None:
    text = shown(result, force_terminal=True, color_system="truecolor")
    assert re.search(r"\x1b\[30;48;2;\d+;\d+;\d+m90\.0", text)  # black on light green
    assert re.search(r"\x1b\[37;48;2;\d+;\d+;\d+m20\.0", text)  # white on dark blue
    assert "\x1b[2m10.0" in text


def test_a_terminal_with_few_colors_gets_no_background(result: raysim.Result) -> None:
    text = shown(result, force_terminal=True, color_system="standard")
    assert "\x1b[32m90.0" in text
    assert "\x1b[31m20.0" in text
    assert not re.search(r"\x1b\[[\d;]*4\dm", text)


def test_a_file_gets_no_colors(result: raysim.Result) -> None:
    assert "\x1b" not in shown(result)


def test_forgetting_since_the_end_of_a_task_is_shown_only_if_it_is_new(result: raysim.Result) -> None:
    line = "average accuracy 50.0, forgetting 70.0, backward transfer -70.0, forward transfer 0.0, average"
    assert line in shown(result)
    values: Any = {**result.evaluation["class_il"], "final_forgetting": 0.5}
    assert "final forgetting 50.0" in shown(replace(result, evaluation={"class_il": values}))


def test_metrics_over_samples_are_shown_only_if_test_sets_differ_in_size(result: raysim.Result) -> None:
    """(0.9 + 0.5) / 2 = 0.7 by task. Of 10 and 30 samples: (0.2 * 10 + 0.8 * 30) / 40 = 0.65, and (0.9 + 0.65) / 2."""

    def line(samples: list[int]) -> str:
        found = summarise(MATRIX, [0.1, 0.1], samples=samples)
        return next(
            text for text in shown(replace(result, evaluation={"x": found})).splitlines() if "forgetting" in text
        )

    assert line([20, 20]).endswith("forward transfer 0.0, average incremental accuracy 70.0")
    by_task, over_samples = "average incremental accuracy by task 70.0", "average incremental accuracy 77.5"
    assert line([10, 30]).endswith(f"forward transfer 0.0, {by_task}, {over_samples}, final accuracy 65.0")


def test_the_second_reading_of_class_il_is_shown_if_it_differs(result: raysim.Result) -> None:
    both = {"class_il": summarise(MATRIX, [0.1, 0.1]), "class_il_seen": summarise(MATRIX, None)}
    text = shown(replace(result, evaluation=both))
    assert "accuracy in %, class-IL (seen classes): the same\n" in text
    assert text.count("forgetting") == 1
    both["class_il_seen"] = summarise([[0.95, 0.0], MATRIX[1]], None)
    text = shown(replace(result, evaluation=both))
    assert "accuracy in %, class-IL (seen classes): row t is after task t" in text
    assert text.count("forgetting") == 2


def test_the_end_says_what_to_do_next(result: raysim.Result) -> None:
    assert f"report:        raysim report {result.directory}\n" in shown(result)
    assert f"evaluate:      raysim evaluate {result.directory}\n" in shown(result)
    assert "resume" not in shown(result)
    stopped = shown(replace(result, status="interrupted"))
    assert f"to resume:     raysim run --resume --out {result.directory} --local\n" in stopped
    assert "raysim report" not in stopped


def test_a_run_that_was_stopped_in_its_first_task_says_so(result: raysim.Result) -> None:
    nothing = {"class_il": summarise([], [0.1, 0.1]), "task_il": summarise([], [0.1, 0.1])}
    text = shown(replace(result, status="interrupted", evaluation=nothing, rounds=1))
    assert text.startswith("no task was finished, so the accuracy matrix is empty\ninterrupted: 1 round in ")
    assert "average accuracy" not in text
    later = shown(replace(result, status="interrupted"))
    assert "average accuracy 50.0" in later
    assert "no task was finished" not in later


def test_words_are_not_broken_on_a_terminal(result: raysim.Result) -> None:
    output = StringIO()
    config = load(result.directory / "config.yaml")
    show_result(result, Console(file=output, force_terminal=True, width=50), config, local=True)
    lines = re.sub(r"\x1b\[[\d;]*m", "", output.getvalue()).splitlines()
    first = lines.index("average accuracy 50.0, forgetting 70.0, backward")
    assert lines[first + 1] == "transfer -70.0, forward transfer 0.0, average"
    assert f"report:        raysim report {result.directory}" in lines  # a command stays one line


def test_what_reads_the_directory_of_custom_code_has_trust(tiny, tmp_path: Path) -> None:
    done = raysim.run(tiny(methods={"probes:Watchful": {}}), out=tmp_path / "run", local=True)
    assert f"evaluate:      raysim evaluate {done.directory} --trust\n" in shown(done)
    assert f"--resume --out {done.directory} --local --trust\n" in shown(replace(done, status="interrupted"))


def test_a_run_without_a_client_is_warned_of_unless_it_is_quiet(tiny, tmp_path: Path) -> None:
    """Nobody selects no client. `filterwarnings = error` makes any other warning an error."""
    config = tiny(methods={f"{__name__}:Nobody": {}})
    with pytest.warns(UserWarning, match="no client took part in any round") as warned:
        raysim.run(config, out=tmp_path / "run", local=True)
    assert [one.filename for one in warned] == [__file__]  # where raysim was called
    with open_run_display(config, quiet=True) as quiet:
        assert raysim.run(config, out=tmp_path / "quiet", local=True, display=quiet).updates == 0
