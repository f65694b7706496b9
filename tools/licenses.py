"""Write docs/licenses.md: the licenses of the packages that raysim installs, from the metadata of those installed here.

Run `python tools/licenses.py` in an environment with all extras.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "licenses.md"
OWN = "raysim-cfl"
EXTRAS = ("vision", "detection", "parquet", "transformers", "timm", "pretrained", "pandas", "hugging_face")
# what torch's CUDA build needs
CUDA = re.compile(r"(nvidia|cuda)-.*")
LONGEST = 60  # characters of a license's name: some packages put the whole text there
HEAD = """# Licenses of dependencies

raysim itself is under [Apache-2.0](../LICENSE). `python tools/licenses.py` writes these tables from the metadata of
the installed packages. A package may contain parts under further licenses: its own files say so. The extras
`dashboard`, `wandb` and `mlflow` are not in the tables, and neither are tools for developers.
"""


def requirements(name: str, extras: Iterable[str] = ()) -> Iterator[tuple[str, set[str]]]:
    """Yield what a distribution requires here, and with which extras of it. One that is not installed needs nothing."""
    found = _find(name)
    for line in (found.requires if found else None) or ():
        required = Requirement(line)
        marker = required.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield canonicalize_name(required.name), set(required.extras)


def stated(lines: Iterable[str]) -> Iterator[tuple[str, set[str]]]:
    """Yield the names and extras of requirements, raysim's own extras as what they require."""
    for line in lines:
        required = Requirement(line)
        if canonicalize_name(required.name) == OWN:
            yield from stated(one for extra in sorted(required.extras) for one in _extras()[extra])
        else:
            yield canonicalize_name(required.name), set(required.extras)


def closure(first: Iterable[tuple[str, set[str]]]) -> set[str]:
    """Return the names of these distributions and of all that they require here."""
    names: set[str] = set()
    open_: list[tuple[str, set[str]]] = [*first]
    while open_:
        name, extras = open_.pop()
        if name not in names:
            names.add(name)
            open_ += requirements(name, extras)
    return names


def name_license(name: str) -> str:
    """Return the license that a distribution states: its expression, its classifiers, or its field."""
    found = _find(name)
    if found is None:
        return "not installed here"
    expression, field = (next(iter(found.metadata.get_all(key) or ()), "") for key in ("License-Expression", "License"))
    if expression:
        return str(expression)
    of_license = [line for line in found.metadata.get_all("Classifier") or () if line.startswith("License :: ")]
    classified = [line.rpartition(" :: ")[2] for line in of_license if line != "License :: OSI Approved"]
    short = "" if field == "UNKNOWN" or len(field) > LONGEST or "\n" in field else field.strip()
    return ", ".join(classified) or short or "see its files"


def tabulate(names: Iterable[str], direct: Mapping[str, str]) -> Iterator[str]:
    """Yield a table of packages. NVIDIA's are one row, as they differ between versions of CUDA."""
    yield "| package | license | needed by |"
    yield "|---|---|---|"
    for name in sorted(name for name in names if not CUDA.fullmatch(name)):
        yield f"| {name} | {name_license(name)} | {direct.get(name, 'others of these')} |"
    if any(CUDA.fullmatch(name) for name in names):
        yield "| nvidia-\\*, cuda-\\* | NVIDIA's own, not open source: see their files | torch's CUDA build |"


def write_page() -> str:
    """Return the page."""
    core = [*stated(_project()["dependencies"])]
    needed = closure(core)
    of_extras = {
        name: ", ".join(f"`{extra}`" for extra in EXTRAS if name in {one for one, _ in stated(_extras()[extra])})
        for extra in EXTRAS
        for name, _ in stated(_extras()[extra])
    }
    more = closure([found for extra in EXTRAS for found in stated(_extras()[extra])]) - needed
    direct = dict.fromkeys((name for name, _ in core), "raysim")
    parts = [HEAD, "## Always installed\n", *tabulate(needed, direct), "", "## Installed by extras\n"]
    return "\n".join([*parts, *tabulate(more, of_extras)]) + "\n"


def _project() -> Mapping[str, list[str]]:
    project: Mapping[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project


def _extras() -> Mapping[str, list[str]]:
    extras: object = _project()["optional-dependencies"]
    assert isinstance(extras, dict)
    return extras


def _find(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


if __name__ == "__main__":
    PAGE.write_text(write_page(), encoding="utf-8")
