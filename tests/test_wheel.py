"""The sdist, and the wheel that is built from it: they have all that raysim needs, and work where there is no tree."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from raysim.config import build_json_schema
from raysim.system.version import VERSION

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BESIDE = {"pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "CHANGELOG.md", "CITATION.cff", "constraints.txt"}
BESIDE |= {"LICENSE", "NOTICE"}
INPUTS = ("raysim", "configs", "results", "tests/test_wheel.py", *BESIDE)
SCHEMA = "raysim/config/raysim.schema.json"
BUILD = "import sys; from setuptools import build_meta; print(build_meta.build_{}(sys.argv[1]))"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = copied_tree(tmp_path_factory.mktemp("sdist") / "tree")
    return build(tree, tmp_path_factory.mktemp("made"), "sdist")[0]


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make wheel` builds it."""
    unpacked = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked, filter="data")
    (tree,) = unpacked.iterdir()
    return build(tree, tmp_path_factory.mktemp("wheel"))[0]


def copied_tree(tree: Path) -> Path:
    """Copy what a build reads of this tree, and a file of the tests, which no build may take."""
    for name in INPUTS:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, tree / name)
    return tree


def build(tree: Path, out: Path, kind: str = "wheel", **environment: str) -> tuple[Path, str]:
    """Return the file that this tree builds, and the text on stderr. An editable wheel is what pip -e makes."""
    command, variables = [sys.executable, "-c", BUILD.format(kind), out], {**os.environ, **environment}
    done = subprocess.run(command, cwd=tree, env=variables, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return out / done.stdout.splitlines()[-1], done.stderr


def sweeps_of_papers() -> set[str]:
    """The sweeps with rows of papers, whose packed results `raysim reproduce` shows."""
    papers = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in (ROOT / "raysim/published").glob("*.yaml")]
    return {sweep.removeprefix("sweeps/") for paper in papers for sweep in paper.get("sweeps", ())}


def files_of(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def files_of_the_package() -> set[str]:
    """Those of the tree, with the configs and the packed results of papers once."""
    files = {path.relative_to(ROOT) for path in (ROOT / "raysim").rglob("*") if path.is_file()}
    files |= {"raysim" / path.relative_to(ROOT) for path in (ROOT / "configs").rglob("*.yaml")}
    files |= {Path("raysim", "results", f"{name}.jsonl.gz") for name in sweeps_of_papers()}
    return {str(path) for path in files if "__pycache__" not in path.parts}


def test_it_has_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    own = {name for name in files_of(wheel) if not name.startswith(f"raysim_cfl-{PROJECT['version']}.dist-info/")}
    assert own == files_of_the_package() | {SCHEMA}


def test_the_sdist_has_the_package_and_what_builds_it(sdist: Path) -> None:
    """And files of setuptools' own. The tests are left out, as most of them need the rest of the repository."""
    name = f"raysim_cfl-{PROJECT['version']}"
    assert sdist.name == f"{name}.tar.gz"
    with tarfile.open(sdist) as archive:
        found = {member.name.removeprefix(f"{name}/") for member in archive.getmembers() if member.isfile()}
    own = {file for file in found if not file.startswith("raysim_cfl.egg-info/")}
    assert own == files_of_the_package() | BESIDE | {"PKG-INFO", "setup.cfg"}


def test_its_schema_is_of_its_components(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        assert json.loads(archive.read(SCHEMA)) == build_json_schema()


def test_a_build_without_the_dependencies_leaves_the_schema_out(tmp_path: Path) -> None:
    """As an isolated one, which has setuptools alone."""
    for name in ("without", "wheel"):
        (tmp_path / name).mkdir()
    (tmp_path / "without" / "torch.py").write_text("raise ImportError('there is no torch')")
    wheel, said = build(copied_tree(tmp_path / "tree"), tmp_path / "wheel", PYTHONPATH=str(tmp_path / "without"))
    assert SCHEMA not in files_of(wheel)
    assert "raysim.schema.json is left out of the wheel" in said
    assert "there is no torch" in said


def test_an_editable_install_is_a_path_that_editors_follow(tmp_path: Path) -> None:
    """Of setuptools' other way, a module that finds the package when it is imported, pyright resolves nothing."""
    (tmp_path / "wheel").mkdir()
    editable, _ = build(copied_tree(tmp_path / "tree"), tmp_path / "wheel", "editable")
    own = [name for name in files_of(editable) if ".dist-info/" not in name]
    assert own == [f"__editable__.raysim_cfl-{PROJECT['version']}.pth"]
    with zipfile.ZipFile(editable) as archive:
        assert archive.read(own[0]).decode().split() == [str(tmp_path / "tree")]


def test_its_configs_are_the_repositorys(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for path in (ROOT / "configs").rglob("*.yaml"):
            assert archive.read(f"raysim/{path.relative_to(ROOT)}") == path.read_bytes()


def test_it_has_the_licence_and_says_what_it_needs(wheel: Path) -> None:
    about = f"raysim_cfl-{PROJECT['version']}.dist-info"
    assert {f"{about}/licenses/LICENSE", f"{about}/licenses/NOTICE"} < files_of(wheel)
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(f"{about}/METADATA").decode()
    needed = {line.partition(": ")[2] for line in metadata.splitlines() if line.startswith("Requires-Dist")}
    assert {line for line in needed if "extra ==" not in line} == set(PROJECT["dependencies"])


def test_unpacked_elsewhere_it_brings_its_configs_and_runs_one(wheel: Path, tmp_path: Path) -> None:
    """As `pip install` would, less the dependencies, which are the tests' own: nothing of the tree is on the path."""
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    work = tmp_path / "work"
    work.mkdir()

    path = [tmp_path / "installed", tmp_path / "models"]

    def raysim(*words: str) -> str:
        without_tree = f"import sys; sys.path[:] = [path for path in sys.path if path != {str(ROOT)!r}]; "
        code = without_tree + "from raysim import cli; print(cli.__file__); sys.exit(cli.main())"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
        command = [sys.executable, "-P", "-c", code, *words]
        done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        where, _, said = done.stdout.partition("\n")
        assert Path(where).is_relative_to(tmp_path)
        return said

    assert len(raysim("configs").splitlines()) == len([*(ROOT / "configs").rglob("*.yaml")])
    raysim("new", "my.yaml", "--from", "quickstart")
    raysim("run", "my.yaml", "training.rounds_per_task=1", "--local", "--quiet", "--out", "run")
    assert (work / "run" / "model.pt").exists()

    # docs/mammoth.md: the example package is copied, and a folder of models is on the path
    copy = shutil.copytree(ROOT / "examples" / "mammoth", work / "examples" / "mammoth")
    with (copy / "__init__.py").open("a") as file:
        file.write("import pathlib; pathlib.Path('copied').touch()\n")
    path[1].mkdir()
    shutil.copy(ROOT / "tests" / "docs" / "mammoth_stand_in.py", path[1] / "er.py")
    methods = "{examples.mammoth:Mammoth: {model: 'er:Er', args: {buffer_size: 200, minibatch_size: 32}}}"
    raysim("run", "my.yaml", f"methods={methods}", "training.rounds_per_task=1", "--local", "--quiet", "--out", "ER")
    assert (work / "ER" / "model.pt").exists()
    assert (work / "copied").exists()


def test_what_is_imported_is_declared() -> None:
    """Every package that raysim imports is a dependency, or of the extra whose users need it."""
    names = {"yaml": "pyyaml", "PIL": "pillow", "annotated_types": "annotated-types"}
    found = set()
    for path in (ROOT / "raysim").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found |= {module.split(".")[0] for module in modules}
    found -= {"raysim", "IPython"}  # which a notebook has, and nothing else imports
    found -= {"pandas"}  # for types alone
    others = {names.get(name, name).replace("_", "-") for name in found - set(sys.stdlib_module_names)}
    declared = {re.split(r"[<>=\[]", line)[0] for line in PROJECT["dependencies"]}
    assert others <= declared, others - declared
    assert declared - others <= {"torchvision"}, "a dataset's name imports it"


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == PROJECT["version"] == VERSION
    assert citation["license"] == PROJECT["license"]
    assert {"cff-version", "message", "title", "authors", "abstract", "keywords"} < set(citation)
    assert citation["authors"] == PROJECT["authors"]
    assert citation["keywords"] == PROJECT["keywords"]
    assert f"version = {{{PROJECT['version']}}}" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert not {"url", "repository", "repository-code", "doi"} & set(citation)  # there is no such page yet
