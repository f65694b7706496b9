"""What a person finds who types `raysim.` and presses tab, or asks for help."""

import pydoc
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import raysim

ROOT = Path(__file__).parents[1]


def test_dir_lists_what_is_public() -> None:
    assert {*raysim.__all__, "__version__"} <= {*dir(raysim)}
    assert all(hasattr(raysim, name) for name in dir(raysim))
    assert not {"TYPE_CHECKING", "Any", "import_module"} & {*dir(raysim)}


def test_help_documents_it() -> None:
    text = pydoc.plain(pydoc.render_doc(raysim))
    for name in ("run(config", "sweep(", "load = load_result(", "frame(", "class Result("):
        assert f"    {name}" in text


@pytest.mark.slow
def test_dir_and_version_need_no_torch() -> None:
    code = "import raysim, sys; dir(raysim); raysim.__version__; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_the_version_is_written_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" in project["project"]["dynamic"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "raysim.system.version.VERSION"}
    assert f"version: {raysim.__version__}\n" in (ROOT / "CITATION.cff").read_text()
