"""Names of groups and settings.

A group is named after its methods as their papers spell them, with the hyperparameters in which groups of the setting
differ. A setting is named after its runs. A sweep's names take precedence, for groups if they are all different.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from unicodedata import normalize

from raysim.config.error_text import show
from raysim.config.lookup import resolve, table
from raysim.config.reference import first_line
from raysim.reports.reading import FinishedRun, Methods
from raysim.system.errors import single_line

# how a method's docstring begins: `Fed-A-GEM: ...`, `GLFC, FCIL: ...` or `DER (DER++ with beta > 0): ...`
SPELLING = re.compile(r"(?P<name>[^:,(]+?)(?: \((?P<other>\S+) with (?P<knob>\w+) > 0\))?[:,]")

LONGEST_FILE = 80  # letters of a page's name


def derive_label(methods: Methods, among: Sequence[Methods], spelled: bool = True) -> str:
    """Return a label made of the methods, such as `FedAvg`, `DER + Fed-A-GEM` or `SPECIAL lam=0.1`.

    Args:
        methods: the methods of a group.
        among: the methods of every group of the setting.
        spelled: as papers spell the methods, or as a config names them, which tells all apart.
    """
    return " + ".join(_with_knobs(name, knobs, among, spelled) for name, knobs in methods.items()) or "FedAvg"


def spell_method(name: str, knobs: Mapping[str, object] = {}) -> str:
    """Return the name of a method in its paper, from its docstring; for a custom method the name of its class."""
    if name not in table("method"):
        return name.rpartition(":")[2]
    found = SPELLING.match(first_line(resolve("method", name)))
    if found is None:
        return name
    value = knobs.get(found["knob"])
    return found["other"] if isinstance(value, int | float) and value > 0 else found["name"]


def join_names(names: Iterable[str]) -> str:
    """Return the different names in a line, three at most."""
    found = sorted(set(names))
    more = f" and {len(found) - 3} more name{'s' * (len(found) > 4)}" if len(found) > 3 else ""
    return ", ".join(found[:3]) + more


def name_files(titles: Iterable[str]) -> list[str]:
    """Return different names of files, without endings, in letters, digits and hyphens that every system allows."""
    names: list[str] = []
    for title in titles:
        letters = normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
        name = re.sub(r"[^a-z0-9]+", "-", letters)[:LONGEST_FILE].strip("-") or "setting"
        others = (f"{name}-{number}" for number in count(2))
        names.append(name if name not in names else next(other for other in others if other not in names))
    return names


def unique_names(names: Sequence[str | None]) -> list[str]:
    """Return the names if none is missing and all are different, else an empty list."""
    given = [name for name in names if name is not None]
    return given if len(set(given)) == len(names) else []


def row_axes(settings: Sequence[Sequence[FinishedRun]]) -> set[str]:
    """Return the sweep axes that name rows: methods, and user-defined choices that differ within a setting."""
    axes = {axis for runs in settings for run in runs for axis in run.names if axis != "seed" and "." not in axis}
    return {"methods"} | {axis for axis in axes if any(len({run.names.get(axis) for run in r}) > 1 for r in settings)}


def sweep_label(runs: Sequence[FinishedRun], rows: set[str]) -> str | None:
    """Return a sweep's name for a group, from its names on the axes of `rows`, or None."""
    found = {tuple(name for axis, name in run.names.items() if axis in rows) for run in runs}
    return ", ".join(found.pop()) or None if len(found) == 1 else None


def entitle(runs: Sequence[FinishedRun], rows: set[str], several: bool) -> str:
    """Return the title of a setting, from its runs' names on the sweep's other axes, or else from the runs' names.

    With runs of `several` sweeps in the report, the sweep's name comes first.
    """
    sweeps = {run.sweep for run in runs}
    found = {tuple(item for item in run.names.items() if item[0] not in {"seed", *rows}) for run in runs}
    title = ", ".join(_say(axis, name) for axis, name in found.pop()) if len(found) == 1 else ""
    sweep = sweeps.pop() if several and len(sweeps) == 1 else ""
    return ": ".join(filter(None, (sweep, title or join_names(run.summary.name for run in runs))))


def show_bare(value: object) -> str:
    """Return a config's value in one line, texts without quotes."""
    return single_line(value) if isinstance(value, str) else show(value)


def _say(axis: str, name: str) -> str:
    """Return a name on an axis, with the config key in front of a number."""
    return name if "." not in axis or name[:1].isalpha() else f"{axis.rpartition('.')[2]} {name}"


def _with_knobs(name: str, knobs: Mapping[str, object], among: Sequence[Methods], spelled: bool) -> str:
    others = [methods[name] for methods in among if name in methods]
    keys = dict.fromkeys(key for other in others for key in other)
    telling = [key for key in keys if any(other.get(key) != knobs.get(key) for other in others)]
    title = spell_method(name, knobs) if spelled else name
    return " ".join([title, *(f"{key}={show_bare(knobs.get(key))}" for key in telling)])
