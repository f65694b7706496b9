"""What an exception of custom code is described as."""

from collections.abc import Iterator

import pytest

from raysim.system.errors import describe_error, locate_errors


def exhausted() -> None:
    next(iter(()))


def test_an_exhausted_iterator_is_named_and_not_the_generator_that_ran_it() -> None:
    """Python raises `RuntimeError: generator raised StopIteration` in its place. The note may be on either."""

    def noted_inside() -> Iterator[None]:
        with locate_errors("client 0, round 1"):
            exhausted()
        yield

    def noted_outside() -> Iterator[None]:
        exhausted()
        yield

    place = f"{__file__}:{exhausted.__code__.co_firstlineno + 1}"
    for run in (noted_inside, noted_outside):
        with pytest.raises(RuntimeError) as caught, locate_errors("client 0, round 1"):
            next(run())
        assert describe_error(caught.value) == f"StopIteration ({run.__qualname__}, {place}); client 0, round 1"
    other = RuntimeError("no batch is left")
    other.__cause__ = StopIteration()
    assert describe_error(other) == "RuntimeError: no batch is left"
