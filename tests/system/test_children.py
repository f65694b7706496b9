"""Functions in processes of their own: their results, their errors, and a process that is killed."""

import os
import signal

import pytest

from raysim.system import children
from raysim.system.children import at_once, in_turn
from raysim.system.errors import ConfigError, RunError


@pytest.fixture
def forking(monkeypatch):
    """Pytest may have threads, which these functions do not share anything with."""
    monkeypatch.setattr(children.threading, "active_count", lambda: 1)


def own_id():
    return os.getpid()


def refuse():
    raise ConfigError("found 3, allowed: 2", "model.width")


def fail():
    raise RunError("no, way")


def leave():
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.skipif(not children.CAN_FORK, reason="needs fork")
def test_each_has_a_process(forking):
    ids = at_once([own_id, own_id])
    assert len({os.getpid(), *ids}) == 3
    assert in_turn([own_id]) == [os.getpid()]


def test_a_process_with_threads_is_not_forked(monkeypatch):
    monkeypatch.setattr(children.threading, "active_count", lambda: 2)
    assert at_once([own_id]) == [os.getpid()]


@pytest.mark.skipif(not children.CAN_FORK, reason="needs fork")
def test_errors_are_those_of_the_functions(forking, capfd):
    with pytest.raises(ConfigError, match=r"^model\.width: found 3, allowed: 2$") as found:
        at_once([own_id, refuse])
    assert found.value.place == "model.width"
    with pytest.raises(RunError, match=r"^no, way$"):
        at_once([fail, own_id])
    with pytest.raises(RunError, match="ended without a result"):
        at_once([lambda: 1 / 0])
    assert "ZeroDivisionError" in capfd.readouterr().err


@pytest.mark.skipif(not children.CAN_FORK, reason="needs fork")
def test_a_killed_process_is_one_line_about_memory(forking):
    with pytest.raises(RunError, match=r"killed by SIGKILL.*memory") as found:
        at_once([leave])
    assert "\n" not in str(found.value)
