"""A cluster that is cut off or starts, processes that are stopped, requests that nobody answers: a word, no waiting."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from ray.exceptions import ActorDiedError, GetTimeoutError

from raysim.actors import coordinator, joining, liveness, stalls
from raysim.actors.cluster import own_cluster
from raysim.actors.stalls import Patience
from raysim.system.capacity import Capacity
from raysim.system.errors import Lost, RunError


class Clock:
    """A clock that a test sets."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(liveness, "time", made)
    monkeypatch.setattr(stalls, "time", made)
    return made


# a joined cluster that does not answer


def test_a_cluster_that_is_cut_off_is_given_up_after_a_while_and_not_if_it_comes_back(clock: Clock) -> None:
    """Silent from 105 to 140 s and back at 141: nothing. Silent from 146 on: 40 s later the run ends."""
    with socket.create_server(("127.0.0.1", 0)) as there:
        port = there.getsockname()[1]
        there_yet = liveness.Contact(f"127.0.0.1:{port}")
        assert there_yet.check()
    assert not there_yet.silent
    for clock.now in (105, 120, 140):
        assert not there_yet.check()
        assert there_yet.silent
    with socket.create_server(("127.0.0.1", port)):
        clock.now = 141
        assert there_yet.check()
    clock.now = 145.9
    assert there_yet.check()  # it is not asked at every look
    for clock.now in (146, 186):
        assert not there_yet.check()
    clock.now = 186.5
    with pytest.raises(
        RunError, match=rf"^the cluster at 127.0.0.1:{port} has not answered for 40 s \(.*refused\): it "
    ):
        there_yet.check()


def test_whoever_waits_for_an_event_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    def check() -> bool:
        raise RunError("cut off")

    monkeypatch.setattr(liveness, "JOINED", [SimpleNamespace(check=check)])
    for waiting in (lambda: next(liveness.arriving("a stream")), lambda: liveness.wait(["an answer"]), liveness.reach):
        with pytest.raises(RunError, match="cut off"):
            waiting()


def test_before_a_start_the_cluster_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    answers, slept = iter([False, False, True]), list[float]()
    monkeypatch.setattr(liveness, "JOINED", [SimpleNamespace(check=lambda: next(answers))])
    monkeypatch.setattr(liveness, "time", SimpleNamespace(sleep=slept.append))
    liveness.reach()
    assert slept == [1, 1]


def test_a_request_that_is_not_answered_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the cluster ends meanwhile, or after a while; a request that fails says nothing."""
    for looks, limit in (([False, False, True], liveness.ANSWER), ([False] * 9, 0.0)):
        ended, never = iter(looks), threading.Event()
        monkeypatch.setattr(liveness, "ANSWER", limit)
        monkeypatch.setattr(liveness, "own_has_ended", lambda ended=ended: next(ended))
        liveness.ask(never.wait)
        never.set()
    monkeypatch.setattr(liveness, "own_has_ended", lambda: False)
    liveness.ask(lambda: 1 / 0)
    asked: list[bool] = []
    liveness.ask(lambda: asked.append(True))
    assert asked == [True]
    monkeypatch.setattr(liveness, "own_has_ended", lambda: True)
    liveness.ask(lambda: asked.append(False))
    monkeypatch.setattr(liveness, "own_has_ended", lambda: False)
    monkeypatch.setattr(liveness, "JOINED", [SimpleNamespace(silent=True)])
    liveness.ask(lambda: asked.append(False))
    assert asked == [True]


@pytest.mark.parametrize("seconds", ["0.1", "60"])
def test_an_actor_that_its_cluster_takes_along_is_one_loss(seconds: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The raylet ends its workers first: here, a tenth of a second before itself. If it stays, it was the actor."""

    def stream() -> Iterator[Any]:
        yield "an event"

    def get(_: Any) -> Any:
        raise ActorDiedError

    monkeypatch.setattr(coordinator, "ray", SimpleNamespace(get=get, kill=lambda _: None))
    monkeypatch.setattr(liveness, "ray", SimpleNamespace(wait=lambda references, timeout: (references, [])))
    call = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=stream))
    made = object.__new__(coordinator.Remote)
    made._notice = None
    made._actor = SimpleNamespace(events=call)
    made._places = SimpleNamespace(give_back=lambda: None)
    with subprocess.Popen(["sleep", seconds]) as raylet:
        monkeypatch.setattr(liveness, "OWN", [psutil.Process(raylet.pid)])
        with pytest.raises(Lost) as lost:
            list(made.events())
        assert lost.value.who == {"0.1": "the cluster", "60": "the coordinator"}[seconds]
        raylet.kill()


# processes that are stopped


@contextmanager
def sleeping() -> Iterator[int]:
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)


def test_a_host_that_is_stopped_or_on_a_silent_node_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two hosts here one is stopped; of two other nodes one does not answer, and the other says that it has one."""
    near, far = "a" * 56, "b" * 56
    asked: list[tuple[str, Any]] = []

    def options(**given: Any) -> Any:
        node = given["scheduling_strategy"].node_id
        return SimpleNamespace(remote=lambda pids: asked.append((node, pids)) or node)

    def get(reference: str, timeout: int) -> Any:
        if reference == far:
            raise GetTimeoutError
        return [51]

    ray = SimpleNamespace(remote=lambda _: SimpleNamespace(options=options), wait=lambda *_, **__: None, get=get)
    monkeypatch.setattr(stalls, "ray", ray)
    monkeypatch.setattr(stalls, "this_node", lambda: "here")
    with sleeping() as one, sleeping() as other:
        stop(other)
        awaited = [(0, "here", one), (1, "here", other), (2, near, 50), (3, near, 51), (4, far, 52)]
        assert stalls.silent(awaited) == [1, 3, 4]
        assert asked == [(near, [50, 51]), (far, [52])]
        assert stalls.silent([]) == []


def test_later_it_is_said_which_hosts_do_not_go_on_and_nothing_of_those_that_compute(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was heard since 100 s. At 130 all compute; at 190 host 1 is stopped; at 200 something was heard."""
    looks = {130: [], 190: [1], 230: [1], 290: [1]}
    ray = SimpleNamespace(
        wait=lambda references, timeout: (references, []),
        get=lambda look: looks[look],
        nodes=lambda: [{"NodeID": "beef" * 4, "NodeManagerAddress": "10.0.0.2"}],
    )
    monkeypatch.setattr(stalls, "ray", ray)
    waiting = Patience(["a host"] * 2, ["cafe" * 4, "beef" * 4])
    coordinator = SimpleNamespace(silent=SimpleNamespace(remote=lambda: clock.now))
    said = []
    for clock.now in range(100, 300):
        if clock.now == 200:
            waiting.heard()
        if line := waiting.line(coordinator):
            said.append((clock.now, line))
    assert [second for second, _ in said] == [190, 230, 290]
    assert all(
        line.startswith("waiting for 1 of 2 hosts to go on, 1 on the node 10.0.0.2 beefbeef: ") for _, line in said
    )


def test_a_coordinator_that_does_not_answer_is_named(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stalls, "ray", SimpleNamespace(wait=lambda references, timeout: ([], references)))
    waiting = Patience(["a host"], ["cafe"])
    coordinator = SimpleNamespace(silent=SimpleNamespace(remote=object))
    said = []
    for clock.now in range(100, 300):
        if line := waiting.line(coordinator):
            said.append((clock.now, line))
    first = 130 + stalls.LOOKING + stalls.MOMENT
    assert [second for second, _ in said] == [first, first + 60 + stalls.LOOKING + stalls.MOMENT]
    assert all(
        line.startswith("waiting for the coordinator, on this machine, which does not answer; ") for _, line in said
    )


def test_a_process_that_has_ended_is_not_stopped() -> None:
    with sleeping() as pid:
        assert stalls.stopped([pid]) == []
        stop(pid)
        assert stalls.stopped([pid]) == [pid]
        psutil.Process(pid).kill()
    assert stalls.stopped([pid]) == []


# a cluster that starts


@pytest.mark.parametrize(
    "begin",
    [own_cluster(Capacity(1, 0, None), forked=False).__enter__, lambda: joining.join("auto", [])],
    ids=["started", "joined"],
)
def test_a_termination_meanwhile_is_an_interrupt(begin: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray sets a handler of its own, which exits, and leaves it there."""

    def init(*_: Any, **__: Any) -> None:
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(number))
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(joining.ray, "init", init)
    with pytest.raises(KeyboardInterrupt):
        begin()
    assert signal.getsignal(signal.SIGTERM) is before
