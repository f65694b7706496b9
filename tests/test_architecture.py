"""The structure that ARCHITECTURE.md promises, read off the imports: which way they point, and what a name means."""

import ast
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from doctest import DocTestParser
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "raysim"
LAYERS = (
    ("system",),
    ("config",),
    ("objectives",),
    ("data", "memory", "models"),
    ("federation",),
    ("api",),
    ("evaluation",),
    ("algorithms",),
    ("engine",),
    ("records",),
    ("callbacks",),
    ("estimate",),
    ("actors",),
    ("launch",),
    ("sweeps",),
    ("reports", "live"),
    ("reproducing",),
    ("cli", "command_line", "reproduce_command", "shell_completion", "__init__", "__main__"),
)
"""From the ground up: a module imports from its own folder and from those below it, never from beside or above."""

FILES = [file.relative_to(ROOT) for file in sorted(PACKAGE.rglob("*.py"))]
LONGEST = 400  # lines of a file


def module_of(file: Path) -> str:
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(file) for file in FILES}


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse((ROOT / file).read_text(encoding="utf-8"))


def imports(file: Path) -> Iterator[str]:
    """Yield the modules of raysim that a file imports, those for types alone and those inside functions included."""
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "raysim")
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "raysim":
            for alias in node.names:
                below = f"{node.module}.{alias.name}"
                yield below if below in MODULES else node.module


def layer(module: str) -> int:
    folder = module.split(".")[1] if "." in module else "__init__"
    return next(number for number, folders in enumerate(LAYERS) if folder in folders)


def folder(module: str) -> str:
    return ".".join(module.split(".")[:2])


def test_every_folder_has_a_layer_and_says_what_it_is():
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert folders == {name for names in LAYERS[:-1] for name in names}
    for name in folders:
        said = ast.get_docstring(tree_of(Path("raysim", name, "__init__.py")))
        assert said, f"raysim/{name}/__init__.py says nothing"


def test_imports_point_downward():
    upward = []
    for file in FILES:
        own = module_of(file)
        for other in imports(file):
            inside = folder(other) == folder(own) and layer(own) < len(LAYERS) - 1
            downward = layer(other) < layer(own) or layer(own) == len(LAYERS) - 1
            if not (inside or downward):
                upward.append(f"{own} imports {other}, which is not below it")
    assert upward == []


def test_no_files_import_each_other_in_a_circle():
    graph = {module_of(file): set(imports(file)) - {module_of(file)} for file in FILES}
    left = dict(graph)
    while free := [module for module, used in left.items() if not used & left.keys()]:
        for module in free:
            del left[module]
    assert not left, f"in or above a circle: {sorted(left)}"


def test_a_public_class_has_a_name_of_its_own():
    """Of classes at the top of a module. A name that begins with _ is private to its module."""
    places = defaultdict(list)
    for file in FILES:
        for node in tree_of(file).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(file))
    # contract: Ray's actors are called Host and Coordinator; a method's class may be called as its paper calls it
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_a_file_has_one_subject():
    lines = {str(file): len((ROOT / file).read_text(encoding="utf-8").splitlines()) for file in FILES}
    assert {file: count for file, count in lines.items() if count > LONGEST} == {}


MODES = ("raysim.engine.one_at_a_time", "raysim.engine.vectorised.together", "raysim.engine.vectorised.block")


def test_only_the_choice_of_a_trainer_knows_the_modes_of_local_training():
    """The host and all that it is made of know the interface. A mode's own folder knows the mode."""
    knowing = {str(file) for file in FILES if set(imports(file)) & {*MODES}}
    assert knowing == {"raysim/engine/trainer_choice.py", "raysim/engine/vectorised/together.py"}


def packages(file: Path) -> Iterator[str]:
    """Yield the top packages that a file imports."""
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").split(".")[0]


def test_only_actors_know_ray():
    knowing = {file for file in FILES if "ray" in packages(file)}
    assert knowing
    assert {file for file in knowing if file.parts[1] != "actors"} == set()


FENCE = Path("raysim/actors/compat.py")
OUTSIDE = [
    file.relative_to(ROOT)
    for folder in ("tests", "benchmarks")
    for file in sorted((ROOT / folder).rglob("*.py"))
    if re.search(r"\bray\b", file.read_text(encoding="utf-8"))
]
INTERNAL = re.compile(
    r"\bRAY_\w|RAYSIM_PLAIN|\bray\._|_private\b|py_executable|\b_(system_config|temp_dir|node_ip_address)\b|gcs_server|raylet|"
    r"monitor\.py|ray::|plasma|node has died|low on memory|ersion mismatch|InvalidAuthToken|ENABLE_RAY_CLUSTER"
)
"""Names, variables, processes, and texts of Ray that its public interface does not have."""


def root_of(node: ast.expr) -> str:
    """Return the name with which an expression such as `ray.remote(f).options` begins, or nothing."""
    while isinstance(node, ast.Attribute | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def goes_around_the_fence(tree: ast.AST, texts: bool) -> list[str]:
    """Return what a file uses of Ray's internals: modules, attributes, options, and with `texts` also strings."""
    documented = {
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    used = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            used += [alias.name for alias in node.names if re.match(r"ray\.(_|core)", alias.name)]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ray":
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            used += [name for name in names if re.search(r"\._|^ray\.core", name)]
        elif isinstance(node, ast.Attribute) and root_of(node) == "ray" and "ray._" in ast.unparse(node):
            used.append(ast.unparse(node))
        elif isinstance(node, ast.Call) and root_of(node.func) == "ray":
            used += [f"{word.arg}=" for word in node.keywords if word.arg and word.arg.startswith("_")]
        elif texts and isinstance(node, ast.Constant) and node not in documented and INTERNAL.search(str(node.value)):
            used.append(repr(node.value))
    return used


@pytest.mark.parametrize(("files", "texts"), [(FILES, True), (OUTSIDE, False)], ids=["raysim", "outside"])
def test_one_file_names_rays_internals(files: list[Path], texts: bool):
    """raysim/actors/compat.py; tests and benchmarks use it, and may name Ray's processes in texts."""
    found = {str(file): goes_around_the_fence(tree_of(file), texts) for file in files if file != FENCE}
    assert {file: used for file, used in found.items() if used} == {}


def test_the_fence_is_where_rays_internals_are():
    assert goes_around_the_fence(tree_of(FENCE), texts=True) != []


@pytest.mark.parametrize(("marker", "asked"), [("ray", "ray and not soak"), ("(grid|soak)", "grid or soak")])
def test_make_looks_for_marked_tests_where_they_are(marker: str, asked: str):
    """Not in all of tests/, which takes long to collect. A mark in a file that is no test's is not found."""
    said = subprocess.run(["make", "-n", "test-all"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (line,) = [line for line in said.splitlines() if f' -m "{asked}" ' in line]
    marked = [path for path in (ROOT / "tests").rglob("*.py") if re.search(rf"mark\.{marker}\b", path.read_text())]
    assert marked
    assert all(path.name.startswith("test_") for path in marked)
    given = [word for word in line.split() if word.endswith(".py")]
    assert given == sorted(str(path.relative_to(ROOT)) for path in marked)


def test_a_method_knows_the_api_alone():
    """No host, no config block of another subject, no estimator: only raysim.api and what methods share."""
    for file in FILES:
        if file.parts[1] == "algorithms":
            shared = {"raysim.data", "raysim.models", "raysim.system"} if "parts" in file.parts else set()
            beyond = {folder(module) for module in imports(file)} - {"raysim.api", "raysim.algorithms"} - shared
            assert beyond == set(), file
            text = (ROOT / file).read_text(encoding="utf-8")
            assert not re.search(r"\bclient\.host\b|\bhost\.|\bserver\._|\bconfig\.", text), file


def read_files(page: str, heading: str) -> list[Path]:
    """Return the files that a page tells a method's author to read, from the line that begins with a heading."""
    (line,) = re.findall(rf"^{re.escape(heading)}.*?(?:\n\n|\Z)", page, re.MULTILINE | re.DOTALL)
    return [Path(name) for name in re.findall(r"`(raysim/[\w/]+\.py)`", line)]


def count_lines(text: str) -> int:
    """Return the lines of a file without the examples in its docstrings, each of which follows an empty line."""
    examples = DocTestParser().get_examples(text)
    lines = sum((one.source + one.want).count("\n") for one in examples)
    return text.count("\n") - lines - len(re.findall(r"\n\n *>>> ", text))


@pytest.mark.parametrize(("heading", "most"), [("Like FedProx:", 560), ("Like Fed-A-GEM:", 1100)])
def test_what_an_author_reads_is_short(heading: str, most: int):
    page = (ROOT / "docs" / "writing_a_method.md").read_text(encoding="utf-8")
    own = Path("raysim/algorithms/fedprox.py" if "Prox" in heading else "raysim/algorithms/fed_a_gem.py")
    files = read_files(page, heading)
    assert own in files
    known = {module_of(file) for file in files} | {"raysim.api", "raysim.algorithms.parts"}
    unread = {module for module in imports(own) if module not in known}
    assert not unread, f"{own} uses {sorted(unread)}, which the page does not name"
    lines = Counter({str(file): count_lines((ROOT / file).read_text(encoding="utf-8")) for file in files})
    assert lines.total() <= most, lines


def test_the_picture_is_the_folder_tree():
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    tree = re.search(r"```text\nraysim/\n(.*?)```", page, re.DOTALL)
    assert tree, "ARCHITECTURE.md begins with the folder tree"
    drawn = re.findall(r"^  (\w+)/ ", tree.group(1), re.MULTILINE)
    order = [name for names in reversed(LAYERS[:-1]) for name in names]
    assert sorted(drawn) == sorted(order)
    assert [layer(f"raysim.{name}") for name in drawn] == sorted(
        (layer(f"raysim.{name}") for name in drawn), reverse=True
    )
