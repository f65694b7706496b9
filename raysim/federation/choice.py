"""Check a round's clients, as chosen by a sampler or a method."""

import operator
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from raysim.system.custom_code import place_of
from raysim.system.errors import WrongResult


def check_chosen(
    chosen: object, present: Sequence[int], key: str, chooser: Callable[..., Any], least: int = 0
) -> list[int]:
    """Return the clients that `chooser` chose for a round, at least `least`. `key` is its config key.

    Raises:
        WrongResult: the result is not ids of different clients that are present.
    """
    ids: list[int] | None = None
    if isinstance(chosen, Iterable):
        chosen = [*chosen]
        with suppress(TypeError):
            ids = [*map(operator.index, chosen)]
    if ids is None or len({*ids} & {*present}) < max(len(ids), least):
        allowed = "ids of different clients with data now, whole numbers out of server.present"
        raise WrongResult(f"{key}: {place_of(chooser)} returned {chosen!r:.60}, allowed: {allowed}")
    return ids
