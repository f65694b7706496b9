"""raysim where Matplotlib, Jinja and MarkupSafe are missing: runs work, and what needs them says so in one line."""

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_configs import TINY
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from raysim.cli import main
from raysim.records.figures import describe_undrawn
from raysim.system.importing import DRAWING, drawing

# an import of a module that is None in sys.modules fails as that of a missing one does
WITHOUT = f"""
import json, sys, raysim
for name in {DRAWING}:
    sys.modules[name] = None
from raysim.cli import main
statuses = [main(given) for given in json.loads(sys.argv[1])]
for name in ("report", "figures"):
    try:
        getattr(raysim, name)
    except raysim.ConfigError as error:
        print(error)
print(statuses)
"""


@pytest.mark.slow
def test_a_run_works_and_a_report_says_what_is_missing(tmp_path: Path) -> None:
    """The run has both kinds of images: matrices in TensorBoard, and boundaries that differ between clients."""
    boundaries = {"asynchronous": {"window": 4, "rounds_per_window": 1}}
    config = TINY | {"logging": {"tensorboard": True}, "scenario": {**TINY["scenario"], "boundaries": boundaries}}
    config["training"] = {"batch_size": 4}
    (tmp_path / "tiny.yaml").write_text(json.dumps(config))
    out, report = tmp_path / "run", ["report", str(tmp_path / "run"), "--out", str(tmp_path / "report")]
    given = [["run", str(tmp_path / "tiny.yaml"), "--local", "--out", str(out)], report]
    command = [sys.executable, "-c", WITHOUT, json.dumps(given)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines()[-1] == "[0, 2]"
    left_out = "this run has no image of the matrices in TensorBoard and clients_at_tasks.png; pip install matplotlib"
    assert done.stdout.count(left_out) == 1
    names = ("matplotlib", "jinja2", "markupsafe")
    needed = f"found no {', '.join(names)}, and reports and figures need them; pip install {' '.join(names)}"
    assert done.stderr.splitlines() == [needed]
    assert done.stdout.splitlines()[-3:-1] == [needed] * 2
    assert not (out / "clients_at_tasks.png").exists()
    assert not any(tag.endswith("_matrix") for tag in tags(out))
    assert any(tag.startswith("average/") for tag in tags(out))
    assert main(report) == 0  # here, where they are installed


def tags(run: Path) -> Iterator[str]:
    """Yield the tags of what a run has written for TensorBoard."""
    (file,) = run.glob("events.out.*")
    for event in EventFileLoader(str(file)).Load():
        yield from (value.tag for value in event.summary.value)


@pytest.mark.parametrize(
    ("board", "boundaries", "named"),
    [(True, "synchronous", "the matrices in TensorBoard;"), (False, "synchronous", None)],
)
def test_only_what_a_run_would_draw_is_named(tiny, monkeypatch, board, boundaries, named) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    lines = [*describe_undrawn(tiny(logging__tensorboard=board, scenario__boundaries=boundaries))]
    assert [line.partition("no image of ")[2].split(" pip")[0] for line in lines] == [named] * (named is not None)


def test_nothing_is_said_where_it_is_installed(tiny) -> None:
    assert not [*describe_undrawn(tiny(logging__tensorboard=True))]


def test_another_missing_module_is_not_explained() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module"), drawing():
        importlib.import_module("no_such_module")
