"""What a person finds who types `raysim.` and presses tab, or asks for help."""

import pydoc
import re
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


def test_the_version_and_the_name_are_the_distributions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == raysim.__version__
    assert project["name"] == "raysim-cfl"
    assert project["scripts"] == {"raysim": "raysim.__main__:command"}
    assert {"authors", "keywords"} < project.keys()
    assert "urls" not in project  # the project has no page yet


def test_no_file_names_the_host_of_a_package_index() -> None:
    """The distribution is on no index, so an address there would be of a page that does not exist, or of another's."""
    names = r"\b(?:py" + r"pi|python" + r"hosted|ana" + r"conda)\.(?:org|com)\b|download\.pytorch\.org/" + r"whl\b"
    hosts = re.compile(names, re.IGNORECASE)
    folders = (".ci", "benchmarks", "configs", "docs", "examples", "raysim", "tests", "tools")
    files = [
        *(path for path in ROOT.glob("*") if path.is_file()),
        *(path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()),
    ]
    naming = [str(path) for path in files if hosts.search(path.read_text(encoding="utf-8", errors="ignore"))]
    assert hosts.search("https://test.py" + "pi.org/simple")
    assert len(files) > 1000
    assert naming == []


def test_what_is_installed_by_name_has_the_distributions_name() -> None:
    """On the package index, raysim is another project."""
    files = [
        *ROOT.glob("*.*"),
        *(path for name in ("docs", "examples", "raysim") for path in (ROOT / name).rglob("*.*")),
    ]
    texts = [path.read_text() for path in files if path.suffix in (".md", ".py", ".toml", ".txt", ".yaml", ".ipynb")]
    named = [found for text in texts for found in re.findall(r"pip install (?:--[\w-]+ )*['\"]?(raysim[\w-]*)", text)]
    assert named
    assert {*named} == {"raysim-cfl"}
