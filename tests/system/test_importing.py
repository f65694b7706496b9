"""Imports without the garbage collector."""

import gc

from raysim.system.importing import uncollected


def test_nothing_is_collected_meanwhile_and_what_was_made_is_never_looked_at() -> None:
    before = gc.get_freeze_count()
    try:
        with uncollected():
            assert not gc.isenabled()
            made: list[list[int]] = [[] for _ in range(1000)]
        assert gc.isenabled()
        assert gc.get_freeze_count() >= before + len(made)
    finally:
        gc.unfreeze()
