"""Somebody else's run directory: what its config names is imported, or called, only with --trust."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from small_configs import SMALL

import raysim
from raysim.cli import main
from raysim.config import ConfigError

CONFIG = SMALL | {
    "model": {"name": "theirs:model"},
    "participation": {"count": 1, "sampler": "theirs:sampler"},
    "checkpoint": {"every_rounds": 1},
}
THEIRS = """
from pathlib import Path
from torch import nn


Path("imported").touch()

def model(shape, classes):
    return nn.Linear(shape[0], classes)

def sampler(server, count, draws):
    return [0]
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run in DIR and the module of its components beside it."""
    folder = tmp_path_factory.mktemp("theirs")
    (folder / "theirs.py").write_text(THEIRS)
    (folder / "own.yaml").write_text(json.dumps(CONFIG))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", [*sys.path])
        raysim.run(CONFIG, out="DIR", local=True)
    return folder


@pytest.fixture
def here(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder, and a process that has imported nothing of it."""
    monkeypatch.chdir(made)
    monkeypatch.setattr(sys, "path", [*sys.path])
    sys.modules.pop("theirs", None)
    Path("imported").unlink(missing_ok=True)


RESUME = ["run", "--resume", "--out", "DIR", "--local", "--quiet"]
READS = {"evaluate": ["evaluate", "DIR"], "resume": RESUME}


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("read", READS)
def test_reading_a_run_imports_nothing_of_its_own(read: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(READS[read]) == 2
    said = capsys.readouterr().err
    assert said.startswith("DIR/config.yaml:")
    assert said.count("\n") == 1
    assert "'theirs:model' is code" in said
    assert "add --trust" in said
    assert not Path("imported").exists()
    assert "theirs" not in sys.modules
    assert main([*READS[read], "--trust"]) == 0
    assert Path("imported").exists()


@pytest.mark.usefixtures("here")
def test_reports_and_results_import_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Who holds what is drawn as the run recorded it."""
    assert raysim.load("DIR").status == "done"
    assert main(["report", "DIR", "--out", "report"]) == 0
    assert "left out" not in capsys.readouterr().out
    assert Path("report/plots/1-who-holds-what.svg").exists()
    assert not Path("imported").exists()


@pytest.mark.usefixtures("here")
def test_from_python_too() -> None:
    with pytest.raises(ConfigError, match="add --trust"):
        raysim.evaluate("DIR")
    with pytest.raises(ConfigError, match="add --trust"):
        raysim.run(None, out="DIR", resume=True, local=True)
    assert not Path("imported").exists()
    assert raysim.evaluate("DIR", trust=True).tasks
    assert raysim.run(None, out="DIR", resume=True, local=True, trust=True).status == "done"


@pytest.mark.usefixtures("here")
def test_what_ones_own_config_names_needs_no_trust() -> None:
    """A job queue's command, which names the config, goes on; and with another config theirs is still not imported."""
    assert main(["run", "own.yaml", *RESUME[1:]]) == 0
    with pytest.raises(ConfigError, match="'theirs:model' is code"):
        raysim.run(CONFIG, {"model": {"name": "mlp"}, "participation": {"count": 1}}, out="DIR", resume=True)


@pytest.mark.usefixtures("here")
def test_a_sweep_imports_only_what_it_names(made: Path) -> None:
    """A sweep whose own runs name nothing meets a directory that does."""
    own = {**CONFIG, "model": {"name": "mlp"}, "participation": {"count": 1}}
    Path("sweep/seed-0").mkdir(parents=True, exist_ok=True)
    Path("sweep/seed-0/config.yaml").write_text(Path("DIR/config.yaml").read_text())
    with pytest.raises(ConfigError, match="'theirs:model' is code"):
        raysim.sweep({"name": "many", "base": own, "grid": {"seed": [0]}}, out="sweep")
    assert not Path("imported").exists()


def test_the_working_directory_comes_after_installed_modules(tmp_path: Path) -> None:
    """Own components are found in it. With -P, as in the command `raysim`, Python itself does not search it first."""
    for name in ("yaml", "signal", "pandas", "argparse"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('run')\n")
    (tmp_path / "theirs.py").write_text(THEIRS)
    (tmp_path / "own.yaml").write_text(json.dumps(CONFIG))
    command = [sys.executable, "-P", "-m", "raysim", "check", "own.yaml"]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert (tmp_path / "imported").exists()
