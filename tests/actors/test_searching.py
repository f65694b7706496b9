"""Workers look for modules in the driver's folders last."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.ray

MINE = """
from torch import nn

def model(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], classes))
"""


SCRIPT = """
import json, sys
import raysim

result = raysim.run("config.yaml", {"resources": json.loads(sys.argv[1])}, out="out")
print(result.status, result.actors)
"""


@pytest.mark.parametrize("workers", ["auto", "spawned"])  # forked where they can be, and not
def test_a_module_beside_the_script_is_found_and_none_where_one_stands_hides_installed_ones(
    small: dict[str, Any], tmp_path: Path, workers: str
) -> None:
    """Of a run that is started where files have the names of modules that every worker imports."""
    for name in ("numpy", "psutil", "torch", "pydantic"):
        (tmp_path / f"{name}.py").write_text("raise SystemError('hidden')\n")
    (tmp_path / "config.yaml").write_text(json.dumps(small | {"model": {"name": "mine:model"}}))
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    (scripts / "mine.py").write_text(MINE)
    (scripts / "run.py").write_text(SCRIPT)
    resources = json.dumps({"clients_per_actor": 4, "workers": workers})
    command = [sys.executable, str(scripts / "run.py"), resources]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "done 2\n", "")
