"""A cluster that is cut off or starts, processes that are stopped, requests that nobody answers: a word, no waiting."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from ray.exceptions import ActorDiedError

from raysim.actors import coordinator, joining, liveness, stalls, workers
from raysim.actors.starting import own_cluster
from raysim.engine.events import Notice, StartStep
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
        there_yet = liveness.JoinedCluster(f"127.0.0.1:{port}")
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

    monkeypatch.setattr(liveness, "CURRENT", SimpleNamespace(check=check))
    for waiting in (lambda: next(liveness.arriving("a stream")), lambda: liveness.wait(["an answer"]), liveness.reach):
        with pytest.raises(RunError, match="cut off"):
            waiting()


def test_a_call_of_ray_that_blocks_is_given_up_with_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray would end the process after a minute, without a message."""

    class Silent(liveness.JoinedCluster):
        checks = 0

        def check(self) -> bool:
            self.checks += 1
            if self.checks == 3:
                raise RunError("cut off")
            return False

    never = threading.Event()
    monkeypatch.setattr(liveness, "CURRENT", Silent("127.0.0.1:1"))
    with pytest.raises(RunError, match="cut off"):
        liveness.answer(never.wait)
    never.set()
    monkeypatch.setattr(liveness, "CURRENT", Silent("127.0.0.1:1"))
    assert liveness.answer(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        liveness.answer(lambda: 1 / 0)


def test_before_a_start_the_cluster_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    answers, slept = iter([False, False, True]), list[float]()
    monkeypatch.setattr(liveness, "CURRENT", SimpleNamespace(check=lambda: next(answers)))
    monkeypatch.setattr(liveness, "time", SimpleNamespace(sleep=slept.append))
    liveness.reach()
    assert slept == [1, 1]


def test_a_request_that_is_not_answered_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the cluster ends meanwhile, or after a while; a request that fails says nothing."""

    class Ending(liveness.Cluster):
        looks = iter([False, False, True])
        ended = property(lambda self: next(self.looks))

    class Staying(liveness.Cluster):
        ended = False

    for current, limit in ((Ending(), liveness.ANSWER), (Staying(), 0.0)):
        never = threading.Event()
        monkeypatch.setattr(liveness, "ANSWER", limit)
        monkeypatch.setattr(liveness, "CURRENT", current)
        liveness.ask(never.wait)
        never.set()
    monkeypatch.setattr(liveness, "ANSWER", 5)
    liveness.ask(lambda: 1 / 0)
    asked: list[bool] = []
    liveness.ask(lambda: asked.append(True))
    assert asked == [True]
    for ended, silent in ((True, False), (False, True)):
        monkeypatch.setattr(liveness, "CURRENT", SimpleNamespace(ended=ended, silent=silent))
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
    made = object.__new__(coordinator.Remote)
    made._first, made.coming = (), stream()
    made._actor = SimpleNamespace()
    made._places = SimpleNamespace(give_back=lambda: None)
    with subprocess.Popen(["sleep", seconds]) as raylet:
        monkeypatch.setattr(liveness, "CURRENT", liveness.Cluster([psutil.Process(raylet.pid)]))
        with pytest.raises(Lost) as lost:
            list(made.events())
        assert lost.value.who == {"0.1": "the cluster", "60": "the coordinator"}[seconds]
        raylet.kill()


# hosts that do not answer


def stalls_of(hosts: int, monkeypatch: pytest.MonkeyPatch, late: Callable[[float], Any], clock: Clock) -> list[Any]:
    """What is said from 100 s to 300 s, where `late` gives the hosts that are late when they are asked for."""
    ray = SimpleNamespace(
        wait=lambda references, timeout, num_returns=1: ([], references) if "never" in references else (references, []),
        get=lambda answer: answer,
        nodes=lambda: [{"NodeID": "beef" * 4, "NodeManagerAddress": "10.0.0.2"}],
    )
    monkeypatch.setattr(stalls, "ray", ray)
    monkeypatch.setattr(liveness, "ray", ray)
    waiting = stalls.Stalls(["cafe" * 4, "beef" * 4][:hosts], 600)
    coordinator = SimpleNamespace(unanswered=SimpleNamespace(remote=lambda: late(clock.now)))
    said = []
    for clock.now in range(100, 300):
        if clock.now == 200:
            waiting.heard(StartStep("hosts: 1 of 2 ready"))
        if line := waiting.line(coordinator):
            said.append((clock.now, line))
    return said


def test_later_it_is_said_again_and_again_which_hosts_do_not_answer(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was heard since 100 s. At 130 none is late; from 190 on host 1 is; at 200 something was heard."""
    said = stalls_of(2, monkeypatch, lambda now: [1] if now >= 190 else [], clock)
    assert [second for second, _ in said] == [190, 230, 290]
    assert all(
        line.startswith("waiting for 1 of 2 hosts to answer, 1 on the node 10.0.0.2 beefbeef: ") for _, line in said
    )


def test_a_coordinator_that_does_not_answer_is_named(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    said = stalls_of(1, monkeypatch, lambda now: "never", clock)
    assert [second for second, _ in said] == [130, 190, 230, 290]
    assert all(line.startswith("waiting for the coordinator, on this machine, to answer: ") for _, line in said)


def test_a_silence_is_reported_if_it_is_much_longer_than_any_before(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After silences of 3 s the limit is 30 s, after one of 20 s it is 100 s. The start, of 900 s, does not count."""
    ray = SimpleNamespace(wait=lambda references, timeout: (references, []), get=lambda answer: answer, nodes=list)
    monkeypatch.setattr(stalls, "ray", ray)
    monkeypatch.setattr(liveness, "ray", ray)
    coordinator = SimpleNamespace(unanswered=SimpleNamespace(remote=lambda: [0]))
    for ends, limit in (((1000, 1003, 1006), 1036), ((1000, 1003, 1023), 1123)):
        clock.now = 100
        waiting = stalls.Stalls(["cafe" * 4], 600)
        waiting.heard(StartStep("hosts: 0 of 1 ready"))
        for clock.now in ends:
            waiting.heard(Notice("a round"))
        clock.now = limit - 0.1
        assert waiting.line(coordinator) is None
        clock.now = limit
        assert waiting.line(coordinator).startswith("waiting for 1 of 1 hosts to answer, 1 on the node cafecafe: ")


BEGUN = StartStep("hosts: 0 of 1 ready")


def one_stall(
    late: Any, patience: float, monkeypatch: pytest.MonkeyPatch, last: Any = BEGUN
) -> Callable[[], str | None]:
    """What is said of one host since the last event, now: `late` are the hosts that are late, or "never"."""
    ray = SimpleNamespace(
        wait=lambda references, timeout: ([], references) if "never" in references else (references, []),
        get=lambda answer: answer,
        nodes=list,
    )
    monkeypatch.setattr(stalls, "ray", ray)
    monkeypatch.setattr(liveness, "ray", ray)
    made = stalls.Stalls(["cafe" * 4], patience)
    made.heard(last)
    coordinator = SimpleNamespace(unanswered=SimpleNamespace(remote=lambda: late))
    return lambda: made.line(coordinator)


@pytest.mark.parametrize(
    ("late", "missing"),
    [
        ([0], "1 of 1 hosts to answer, 1 on the node cafecafe: run `top` on these nodes"),
        ("never", "the coordinator, on this machine, to answer: see"),
        ([], "the hosts, which restore their clients"),
    ],
)
@pytest.mark.parametrize("patience", [7, 45])
def test_a_start_without_progress_ends_after_a_while(
    late: Any, missing: str, patience: int, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether that is before the first report, after 30 s, or later."""
    line = one_stall(late, patience, monkeypatch)
    clock.now = 100 + patience - 0.5
    line()
    clock.now = 100 + patience
    with pytest.raises(RunError) as ended:
        line()
    waited = f"the run has not started: it waited {patience} s (resources.patience) for {missing}"
    assert str(ended.value).startswith(waited)


def test_an_initial_model_whose_evaluation_takes_long_is_waited_for(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All hosts have started, and one evaluates for 10,000 s, where the start may take 7 s."""
    line = one_stall([0], 7, monkeypatch, StartStep("evaluating the initial model", computes=True))
    clock.now = 10_100
    assert (line() or "").startswith("waiting for 1 of 1 hosts to answer, 1 on the node cafecafe: ")


def test_a_coordinator_that_never_answers_is_lost_and_a_slow_host_is_not(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of a run, at 130 s and every minute from then on: the third miss in a row is one of 180 s."""
    for late in ("never", [0]):
        clock.now = 100
        line = one_stall(late, 150, monkeypatch, Notice("a round"))
        for clock.now in (130, 190):
            assert line() is not None
        clock.now = 250
        if late == "never":
            with pytest.raises(
                Lost, match=r"^the coordinator died: it has not answered for 150 s \(resources\.patience"
            ):
                line()
        else:
            assert line() is not None


def test_while_the_cluster_is_silent_ray_is_not_asked(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its calls would block until Ray ends this process after a minute, so that the 40 s rule did not act."""
    line = one_stall([0], 600, monkeypatch)
    monkeypatch.setattr(stalls, "ray", SimpleNamespace())
    monkeypatch.setattr(liveness, "CURRENT", SimpleNamespace(silent=True))
    clock.now = 200
    assert line() is None


def test_a_cluster_that_is_lost_while_fork_servers_start_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are waited for by the second."""
    waits: list[float] = []

    def check() -> None:
        if len(waits) == 3:
            raise RunError("cut off")

    def wait(references: Any, num_returns: int, timeout: float) -> Any:
        waits.append(timeout)
        return [], references

    task = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda _: "an answer"))
    context = SimpleNamespace(get_job_id=lambda: "01000000")
    ray = SimpleNamespace(wait=wait, remote=lambda _: task, get_runtime_context=lambda: context)
    monkeypatch.setattr(workers, "ray", ray)
    monkeypatch.setattr(liveness, "CURRENT", SimpleNamespace(check=check))
    with pytest.raises(RunError, match="cut off"):
        workers._serve_nodes(["cafe" * 14])
    assert waits == [1, 1, 1]


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
