"""One line of rounds.jsonl, as far as the page shows it. The file may be anybody's, so every value is checked."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

LONGEST, LONGEST_SENTENCE = 200, 1000  # characters of what a request names, and of what it did
FATES = ("used", "discarded", "unused", "dropped")


class Trip(NamedTuple):
    """One client's way: it received the model, trained, and returned."""

    client: int
    sent: float
    back: float
    fate: str


class RequestLine(NamedTuple):
    """A request to forget. Pairs are before and after it."""

    what: str
    samples: int
    accuracy_forgotten: list[float | None]
    accuracy_rest: list[float | None]
    attack: list[float | None]
    nbytes: int
    said: str


@dataclass(frozen=True)
class RoundLine:
    """What a round's line says; the attributes are its keys."""

    round: int
    tasks: list[int]
    so_far: int
    updates: int
    loss: float | None
    bytes_up: int
    bytes_down: int
    seconds: float
    virtual_time: float | None
    evaluation: dict[str, list[float | None]] | None
    """By protocol: the value on each task; None is one that is not finite."""
    memory: list[int] | None
    """The samples in all memories, by task."""
    dispatches: list[Trip] | None
    forgotten: Sequence[RequestLine] = ()


def parse_round(line: bytes, expected: int) -> RoundLine:
    """Return what a line says. Raises ValueError if raysim did not write it, or it is of another round."""
    try:
        values = json.loads(line, parse_constant=lambda name: None)
        if int(values["round"]) != expected:
            raise ValueError("another round")
        tasks = [int(task) for task in values["tasks"]]
        evaluation, memory, dispatches = (values.get(key) for key in ("evaluation", "memory", "dispatches"))
        return RoundLine(
            round=expected,
            tasks=tasks,
            so_far=int(values.get("so_far") or max(tasks, default=1)),
            updates=len(values["cohort"]),
            loss=as_number(values.get("loss")),
            bytes_up=int(values["bytes_up"]),
            bytes_down=int(values["bytes_down"]),
            seconds=as_number(values.get("seconds")) or 0.0,
            virtual_time=as_number(values.get("virtual_time")),
            evaluation=None
            if evaluation is None
            else {str(key): [*map(as_number, row)] for key, row in evaluation.items()},
            memory=None if memory is None else [sum(map(int, classes)) for classes in memory],
            dispatches=None if dispatches is None else [_trip(*trip) for trip in dispatches],
            forgotten=[_request(each) for each in values.get("forgotten") or ()],
        )
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError) as error:
        raise ValueError(f"rounds.jsonl:{expected}: found no round {expected} ({type(error).__name__})") from None


def _trip(client: Any, sent: Any, back: Any, fate: Any) -> Trip:
    times = as_number(sent), as_number(back)
    if fate not in FATES or None in times:
        raise ValueError(fate)
    return Trip(int(client), float(sent), float(back), fate)


def _request(values: Mapping[str, Any]) -> RequestLine:
    accuracy_forgotten, accuracy_rest, attack = (
        [as_number(values[key][0]), as_number(values[key][1])]
        for key in ("accuracy_forgotten", "accuracy_rest", "attack")
    )
    nbytes = int(values["bytes_up"]) + int(values["bytes_down"])
    what, said = str(values["what"])[:LONGEST], str(values["said"])[:LONGEST_SENTENCE]
    return RequestLine(what, int(values["samples"]), accuracy_forgotten, accuracy_rest, attack, nbytes, said)


def as_number(value: Any) -> float | None:
    """Return a number as a float, or None if there is none or it is not finite."""
    return float(value) if value is not None and math.isfinite(value) else None
