"""Ray's dashboard: off unless it is asked for, on the loopback interface then, and said where it is not installed."""

from collections.abc import Callable
from typing import Any

import pytest

from raysim.actors import starting
from raysim.system.capacity import Capacity
from raysim.system.errors import ConfigError


@pytest.fixture
def started_with(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """A function that gives what Ray is started with; it is not."""
    given: dict[str, Any] = {}
    monkeypatch.setattr(starting.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(starting.ray, "init", lambda *args, **more: given.update(more))
    monkeypatch.setattr(starting.ray, "shutdown", lambda: None)
    monkeypatch.setattr(starting, "check_loopback", lambda folder: None)
    monkeypatch.setattr(starting.compat, "raylet_of", lambda processes: 1)

    def start(**how: bool) -> dict[str, Any]:
        with starting.own_cluster(Capacity(1, 0, None), forked=False, **how):
            return given

    return start


def test_it_is_off_unless_it_is_asked_for(started_with: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "find_spec", lambda name: object())
    assert started_with()["include_dashboard"] is False
    given = started_with(dashboard=True)
    assert (given["include_dashboard"], given["dashboard_host"]) == (True, "127.0.0.1")


def test_where_it_is_not_installed_a_line_says_how(started_with: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"^resources\.dashboard: found true, but it is not installed; pip install"):
        started_with(dashboard=True)
