"""What a group is called: its methods, with the knobs only where two groups of the setting differ in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from raysim.config.error_text import show
from raysim.report.reading import Run
from raysim.system.errors import single_line

Methods = Mapping[str, Mapping[str, object]]


def label_of(run: Run, among: Sequence[Run]) -> str:
    """Return the label of a run's group; `among` has one run of each group of its setting.

    It is the name that a sweep gave to its methods, where all groups have such names and no two the same.
    """
    names = [other.names.get("methods") for other in among]
    if None not in names and len(set(names)) == len(names):
        return run.names.get("methods", "")
    return derived(run.methods, [other.methods for other in among])


def title(runs: Sequence[Run]) -> str | None:
    """Return what a sweep calls the setting of these runs: their names on its axes but seed and methods; None where
    they have none in common.
    """
    found = {tuple((axis, name) for axis, name in run.names.items() if axis not in ("seed", "methods")) for run in runs}
    return ", ".join(name for _, name in found.pop()) or None if len(found) == 1 else None


def derived(methods: Methods, among: Sequence[Methods]) -> str:
    """Return a label made of the methods, such as `FedAvg`, `der + fed_a_gem` or `special lam=0.1`."""
    return " + ".join(_with_knobs(name, knobs, among) for name, knobs in methods.items()) or "FedAvg"


def _with_knobs(name: str, knobs: Mapping[str, object], among: Sequence[Methods]) -> str:
    others = [methods[name] for methods in among if name in methods]
    keys = dict.fromkeys(key for other in others for key in other)
    telling = [key for key in keys if any(other.get(key) != knobs.get(key) for other in others)]
    return " ".join([name, *(f"{key}={shown(knobs.get(key))}" for key in telling)])


def shown(value: object) -> str:
    """Return a config's value in one line, texts without quotes."""
    return single_line(value) if isinstance(value, str) else show(value)
