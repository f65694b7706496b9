"""What a group is called: its methods, with the knobs only where two groups of the setting differ in them.

Names that somebody else gives to runs would come in here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from raysim.config.messages import show

Methods = Mapping[str, Mapping[str, object]]


def labels_of(groups: Sequence[Methods]) -> list[str]:
    """Return a label for each methods block of a setting, such as `der + fed_a_gem` or `special lam=0.1`."""
    return [_label(methods, groups) for methods in groups]


def _label(methods: Methods, groups: Sequence[Methods]) -> str:
    return " + ".join(_with_knobs(name, knobs, groups) for name, knobs in methods.items()) or "FedAvg"


def _with_knobs(name: str, knobs: Mapping[str, object], groups: Sequence[Methods]) -> str:
    others = [methods[name] for methods in groups if name in methods]
    keys = dict.fromkeys(key for other in others for key in other)
    telling = [key for key in keys if any(other.get(key) != knobs.get(key) for other in others)]
    return " ".join([name, *(f"{key}={_short(knobs.get(key))}" for key in telling)])


def _short(value: object) -> str:
    return value if isinstance(value, str) else show(value)
