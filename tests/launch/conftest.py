"""What `raysim check` says on a machine of 2 CPUs and 8 GiB whose every step takes a second."""

import pytest

from raysim.estimate.pace import Pace
from raysim.launch import check as checking
from raysim.system.capacity import GIB, Capacity


@pytest.fixture
def lines(tiny, monkeypatch):
    """A function that yields the lines about a config, as `raysim check` prints them."""
    seconds = Pace(step=1.0, beginning=2.0, sample=0.1, round=0.5, round_on_ray=1.0, call=0.25)
    monkeypatch.setattr(checking, "pace", lambda *_: seconds)
    monkeypatch.setattr("raysim.config.schema.CAN_FORK", True)

    def estimate(memory=8 * GIB, gpus=0, **overrides):
        monkeypatch.setattr(checking, "this_machine", lambda: Capacity(2, gpus, memory))
        return checking.estimate_run(tiny(**overrides))

    return estimate


@pytest.fixture
def check(lines):
    """A function that gives the lines about a config, by label."""
    return lambda **overrides: dict(lines(**overrides))
