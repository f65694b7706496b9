"""What the coordinator and the runner do when something is slow to start, is lost or is done with; without Ray."""

import math
import os
import re
import subprocess
import sys
import weakref
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from ray.exceptions import ActorDiedError, OutOfMemoryError, RayActorError, WorkerCrashedError

import raysim
from raysim.actors import (
    calls,
    coordinator,
    failures,
    joining,
    liveness,
    runner,
    runs,
    serialization,
    workers,
)
from raysim.actors.calls import CountRemembered, Evaluate, EvaluateClients, Give
from raysim.actors.coordinator import Coordinator, Remote, Start
from raysim.actors.deferred_sums import HeldSums
from raysim.actors.host import Host, Ready
from raysim.actors.rebalancing import Rebalancing
from raysim.actors.runner import RayRunner, _Call
from raysim.actors.runs import RunActor, RunProcess
from raysim.config.schema import Resources
from raysim.engine.events import Checkpoint, Finished, Notice, RolledBack, RoundDone, Started, StartStep, Waiting
from raysim.engine.orders import Call, Order, RoundInfo, Train
from raysim.engine.replies import Reply
from raysim.estimate import placement
from raysim.estimate.memory import MemoryNeed
from raysim.launch.recovery import STARTING, Recovery
from raysim.system.capacity import MOST_OF_MEMORY, Capacity
from raysim.system.errors import ConfigError, Lost, RunError

KILLED = "Task was killed due to the node running low on memory.\nMemory on the node was 31.1GB / 32.0GB (0.97)"


def fake_ray(answers: dict[Any, Any], unready: int = 0) -> Any:
    """Ray with its answers by reference, errors among them; for some waits only the first is there."""
    waits = []

    def get(reference: Any) -> Any:
        if isinstance(answers[reference], Exception):
            raise answers[reference]
        return answers[reference]

    def wait(references: Any, **options: Any) -> Any:
        waits.append(options)
        here = 1 if len(waits) <= unready else options.get("num_returns", 1)
        return references[:here], references[here:]

    return SimpleNamespace(get=get, wait=wait, waits=waits)


def runner_of(*clients: tuple[int, ...], apart: bool = False) -> RayRunner:
    made = object.__new__(RayRunner)
    made.placement = SimpleNamespace(clients=clients)
    made._hosts = [SimpleNamespace(ready=SimpleNamespace(remote=lambda n=n: f"ready {n}")) for n in range(len(clients))]
    made._under_way = {}
    made._shares_cpus, made._apart = False, apart
    made._rebalancing = Rebalancing(clients, lambda client, window: 1)
    return made


# the memory monitor


def test_a_host_that_ray_ended_for_memory_is_lost_and_named_by_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says nothing of an actor."""
    made = runner_of((0, 1), (2, 3))
    monkeypatch.setattr(runner, "ray", fake_ray({"x": OutOfMemoryError(KILLED)}))
    with pytest.raises(Lost) as lost:
        made._answer(1, "x")
    assert str(lost.value) == "the host of clients 2, 3 died: Ray killed it, because memory ran low"
    assert lost.value.advice == failures.LEAST_MEMORY


def test_where_clients_are_computed_apart_the_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    made = runner_of((0, 1), (2, 3), apart=True)
    for host, client in ((0, 1), (1, 3), (1, 2)):
        order = Order(Train(), (client,), {}, 1, None)
        made._under_way[f"call to {client}"] = _Call(host, order)
    monkeypatch.setattr(runner, "ray", fake_ray({"x": ActorDiedError()}))
    with pytest.raises(Lost, match=r"^the host of client 3 died: its process ended"):
        made._answer(1, "x")


def test_a_host_that_is_lost_is_named_by_its_clients_and_by_those_that_leave_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = runner_of((0,), (2, 3))
    made._under_way = {"a move": _Call(0, Give([1])), "another": _Call(1, Give([4]))}
    monkeypatch.setattr(runner, "ray", fake_ray({"x": ActorDiedError()}))
    with pytest.raises(Lost, match=r"^the host of clients 0, 1 died"):
        made._answer(0, "x")


def test_a_host_is_told_whether_it_has_an_order_for_the_same_update_to_come() -> None:
    made, order = runner_of((0, 1), (2, 3)), Order(Train(), (0,), {0: 0.25}, 4, None, update=7, later=(3, 2, 1))
    assert made._part(order, 0, [0]) == replace(order, later=(1,))
    assert made._part(replace(order, later=(3, 2)), 0, [0]).later == ()
    assert made._part(replace(order, clients=(2,), shares={2: 0.25}, later=(1, 3, 3)), 1, [2]).later == (3,)


def test_so_are_the_coordinator_and_a_sweeps_run() -> None:
    told = str(failures.failure(OutOfMemoryError(KILLED), "the coordinator"))
    assert told == "the coordinator died: Ray killed it, because memory ran low"
    assert str(failures.failure(OutOfMemoryError(KILLED), RunActor.who)).startswith(
        "the run's process died: Ray killed it"
    )


def test_a_method_that_ends_its_process_is_no_loss_of_an_actor() -> None:
    """Ray takes SystemExit for the wish to end the actor, and says no more."""
    made = object.__new__(Host)
    made._slot = nullcontext()
    made._sums = HeldSums()
    made._host = SimpleNamespace(perform=lambda order, message, broadcasts: sys.exit(3))
    with pytest.raises(
        RunError, match=r"^SystemExit: 3 \(.*<lambda>, .*\.py:\d+\); raysim run --local helps to debug it"
    ) as ended:
        made.perform(*serialization.seal(Order(Train(), (0,), {}, 1, None), serialization.store({}), ()))
    assert ended.value.__notes__[0].startswith("Traceback (most recent call last):")


def test_a_host_is_given_the_order_that_was_sealed_and_the_message_beside_it() -> None:
    made = object.__new__(Host)
    made._slot, made._sums, seen = nullcontext(), HeldSums(), []
    made._host = SimpleNamespace(perform=lambda *given: seen.append(given) or Reply(2), seconds={3: 0.5})
    sent = Order(Call("er", "count"), (3,), {3: 0.5}, 2, RoundInfo(1, 0, 0.1))
    answer = serialization.unpack(made.perform(*serialization.seal(sent, serialization.store({"a": 1}), ())))
    assert seen == [(sent, {"a": 1}, [])]
    assert (answer.reply.cohort_size, answer.seconds, answer.price) == (2, {3: 0.5}, None)


@pytest.mark.parametrize(
    ("asked", "answer"),
    [(Evaluate(("chunk",)), ("chunk",)), (EvaluateClients(("chunk",)), {0: ("chunk",)}), (CountRemembered(), 7)],
)
def test_a_host_answers_what_it_is_asked_for(asked: Any, answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = object.__new__(Host)
    made._slot = nullcontext()
    made._host = SimpleNamespace(
        evaluate=lambda chunks, broadcasts: chunks, evaluate_clients=lambda chunks, broadcasts: {0: chunks}
    )
    monkeypatch.setattr(calls, "count_remembered", lambda host: 7)
    assert serialization.unpack(made.count(*serialization.seal(asked, serialization.store(None), ()))) == answer


def test_a_host_that_cannot_open_its_slots_computes_without(monkeypatch: pytest.MonkeyPatch) -> None:
    made = object.__new__(Host)
    made._slot = nothing = nullcontext()
    monkeypatch.setattr("tempfile.tempdir", "/proc/0")
    made.take_slots("a run-0", 1)
    assert made._slot is nothing


def test_other_losses_are_as_they_were() -> None:
    assert str(failures.failure(RayActorError(), "a host")).startswith("a host died: its process ended (killed, ")
    assert str(failures.failure(WorkerCrashedError(), "a host")).startswith("a process died: its objects are lost")


# the start


def test_hosts_that_take_long_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first, then the second, then the third; of each event it is said once how many there are."""
    answers = {f"ready {n}": Ready(f"node {n}", "x86", forked=n < 2) for n in range(3)}
    ray = fake_ray(answers, unready=2)
    monkeypatch.setattr(runner, "ray", ray)
    asked = []
    places = SimpleNamespace(wait=lambda: asked.append(True))
    made = runner_of((0,), (1,), (2,))
    started = made.start(places)
    assert next(started) == "hosts: 0 of 3 ready"
    assert made.unanswered() == [0, 1, 2]
    assert next(started) == "hosts: 1 of 3 ready"
    assert made.unanswered() == [1, 2]
    assert [*started] == ["hosts: 2 of 3 ready"]
    assert made.machines == {f"node {n}": "x86" for n in range(3)}
    assert made.forked == 2
    assert len(asked) == 2
    assert all(options["timeout"] == 1 for options in ray.waits)


def test_a_stop_says_what_it_waits_for() -> None:
    """The start, again after a loss; the round that comes next; hosts that do not answer, until they do."""
    done = RoundDone(1, [1], [0], None, 0, 0, 0.0, [0], 0.0)
    late = "waiting for 1 of 3 hosts to go on, 1 on the node 10.0.0.2 beefbeef"
    attempts = iter(
        [
            [Waiting(f"{late}: see whether"), Started(None, 2), done, Waiting(f"{late}: see"), Lost("a host", "ended")],
            [Started(None, 2, done=1), replace(done, round=2)],
        ]
    )

    def events() -> Iterator[Any]:
        for event in next(attempts):
            if isinstance(event, Lost):
                raise event
            yield event
            said.append(recovery.doing())

    said: list[str] = []
    recorder = SimpleNamespace(saved=None, take=lambda event: None, go_back=lambda why: 1)
    attempt = SimpleNamespace(events=events, stop=lambda: None)
    recovery = Recovery(lambda saved, apart: said.append(recovery.doing()) or attempt, 3)
    found = [*recovery.events(recorder)]
    assert [event for event in found if isinstance(event, RolledBack)] == [RolledBack("a host died: ended", 1)]
    assert len(found) == 7
    start, first, second = STARTING, "finishing round 1 of 2", "finishing round 2 of 2"
    assert said == [start, late, first, second, late, start, second, second]


def test_a_resumed_run_that_is_lost_names_its_round() -> None:
    """It resumes after round 20, and its host dies twice in round 21, where one loss is allowed."""

    def events() -> Iterator[Any]:
        yield Started(None, 30, done=20)
        raise Lost("the host of client 3", "its process ended", "less memory")

    recorder = SimpleNamespace(saved=SimpleNamespace(round=20), take=lambda event: None, go_back=lambda why: 20)
    recovery = Recovery(lambda saved, apart: SimpleNamespace(events=events), 1)
    with pytest.raises(RunError) as failed:
        list(recovery.events(recorder))
    assert str(failed.value) == "the host of client 3 died 2 times in round 21: its process ended; less memory"


def test_hosts_that_must_be_forked_and_are_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(sys, "breakpointhook", sys.breakpointhook)
    monkeypatch.setattr(coordinator, "set_torch", lambda *_: None)
    monkeypatch.setattr(coordinator, "ray", SimpleNamespace(get=lambda _: SimpleNamespace(streams=())))
    started = SimpleNamespace(start=lambda *_: [], machines={}, forked=1)
    monkeypatch.setattr(coordinator, "RayRunner", lambda *_: started)
    monkeypatch.setattr(coordinator, "Simulation", Rounds)
    said = "2 of 3 hosts were not forked, because no fork server answered them"

    def first(workers: str) -> Any:
        config = SimpleNamespace(resources=Resources(address=None, workers=workers))
        start = Start(config, [None], [None] * 3, SimpleNamespace(placement=None), b"", [], False, 3)
        return next(Coordinator(start).events())

    assert first("auto") == Notice(said)
    with pytest.raises(RunError, match=rf"^resources\.workers: found forked, but {said}; allowed: auto or spawned$"):
        first("forked")


def test_a_host_that_died_before_the_coordinator_watched_is_explained_by_the_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stream() -> Iterator[Any]:
        yield "an event"

    def get(_: Any) -> Any:
        raise lost

    monkeypatch.setattr(coordinator, "ray", SimpleNamespace(get=get, kill=lambda _: None))
    monkeypatch.setattr(liveness, "ray", SimpleNamespace(wait=lambda references, timeout: (references, [])))
    monkeypatch.setattr(failures, "killed_for_memory", lambda what: f"the kernel killed {what}")
    for how, said in ((failures.ENDED, "the kernel killed it"), ("its node was lost", "its node was lost")):
        lost = Lost("the host of client 3", how)
        made = object.__new__(Remote)
        made._first, made.coming, made._actor = (), stream(), None
        made._places = SimpleNamespace(give_back=lambda: None)
        with pytest.raises(Lost, match=rf"^the host of client 3 died: {said}$"):
            list(made.events())


def test_a_coordinator_and_a_sweeps_process_say_that_they_compute_before_the_first_evaluation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The driver's limit for the start then ends. A run that resumes does not evaluate its initial model."""
    evaluated: list[bool] = []
    evaluating = SimpleNamespace(events=lambda: iter([evaluated.append(True) or Started(None, 2)]))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(sys, "breakpointhook", sys.breakpointhook)
    monkeypatch.setattr(coordinator, "set_torch", lambda *_: None)
    monkeypatch.setattr(coordinator, "ray", SimpleNamespace(get=lambda _: SimpleNamespace(streams=())))
    started = SimpleNamespace(start=lambda *_: ["one"], machines={}, forked=0, placement=SimpleNamespace(actors=0))
    monkeypatch.setattr(coordinator, "RayRunner", lambda *_: started)
    monkeypatch.setattr(coordinator, "Simulation", lambda *_: evaluating)
    monkeypatch.setattr(runs, "simulate_here", lambda *_: evaluating)
    config = SimpleNamespace(resources=Resources(address=None), callbacks={})
    computes = StartStep("evaluating the initial model", computes=True)

    def events(server: bytes | None) -> Iterator[Any]:
        return Coordinator(Start(config, [None], [], started, server, [], False, 0)).events()

    events_of_a_run = events(None)
    assert [next(events_of_a_run), next(events_of_a_run)] == [StartStep("one"), computes]
    assert not evaluated
    assert [*events(b"")] == [StartStep("one"), Started(None, 2, actors=1)]
    evaluated.clear()
    event, _ = next(RunProcess(config, None, (None, None)).events())
    assert (event, evaluated) == (computes, [])


def test_a_sweeps_run_that_does_not_start_ends_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its events are asked for while the other run has none. Once it has started, it may be silent for long."""

    def attempt(name: str) -> RunActor:
        made = object.__new__(RunActor)
        made.coming, made._actor, made._first = name, None, ()
        made._patience, made._latest, made._note_peak = 7, now[0] + 7, lambda nbytes: None
        return made

    now = [100.0]
    monkeypatch.setattr(coordinator, "ray", SimpleNamespace(kill=lambda _: None))  # Ray itself would start a cluster
    monkeypatch.setattr(runs, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(liveness, "wait_a_second", lambda coming: now.insert(0, now[0] + 1) or [])
    other, late = attempt("the other"), attempt("the late one")
    assert other._completed(("an event", 1)) == "an event"
    assert runs.wait_for_any([other, late]) == 1
    assert now[0] == 108
    with pytest.raises(RunError, match=r"^the run's process has not started for 7 s \(resources\.patience\); run "):
        next(late.events())
    now.insert(0, 10_000.0)
    assert [*other._silence()] == []


def test_one_whose_node_is_gone_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room() -> None:
        raise Lost("a node", "the others have no room")

    ray = fake_ray({"ready 0": ("node", "x86")}, unready=9)
    monkeypatch.setattr(runner, "ray", ray)
    with pytest.raises(Lost, match="a node died"):
        list(runner_of((0,), (1,)).start(SimpleNamespace(wait=no_room)))
    assert len(ray.waits) == 1


def test_one_that_cannot_start_says_so_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    error = RayActorError("id", "no such module", actor_init_failed=True)
    monkeypatch.setattr(runner, "ray", fake_ray({"ready 0": error}, unready=9))
    with pytest.raises(RunError, match="the host of client 0 could not start: no such module"):
        list(runner_of((0,), (1,)).start(SimpleNamespace(wait=lambda: None)))


# the loss of the cluster


def test_the_loss_of_the_own_cluster_is_noticed_while_an_answer_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray itself takes a minute. Its processes are this one's children, and Ray does not ask how they ended.

    It is looked for every second; a signal is heard after every tenth of one, so that two of them are two.
    """
    waits: list[float] = []

    def wait(references: Any, timeout: float) -> Any:
        waits.append(timeout)
        assert len(waits) <= 20
        if len(waits) == 20:
            process.kill()
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        return [], references

    with subprocess.Popen(["sleep", "60"]) as process:
        monkeypatch.setattr(liveness, "CURRENT", liveness.Cluster([psutil.Process(process.pid)]))
        monkeypatch.setattr(liveness, "ray", SimpleNamespace(wait=wait))
        with pytest.raises(Lost, match=r"^the cluster died: one of Ray's own processes ended"):
            liveness.wait(["an answer"])
        assert waits == [0.1] * 20
    assert liveness.CURRENT.ended  # nor is there a process any more


# what the object store would keep


class Record:
    """Stands for a reference to a host's records."""


class Rounds:
    """A simulation that makes a checkpoint, and looks in the next round whether anyone still has it."""

    left: list[Any]

    def __init__(self, *_: Any) -> None:
        pass

    def events(self) -> Any:
        record = Record()
        kept = weakref.ref(record)
        yield Checkpoint(1, b"", [record])
        del record
        Rounds.left = [kept()]
        yield RoundDone(2, [1], [0], 0.5, 1, 1, 0.1, [0], None)


def test_the_coordinator_drops_records_once_they_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray holds what a generator yielded until it yields again, as `held` does here."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(coordinator, "set_torch", lambda *_: None)
    monkeypatch.setattr(coordinator, "ray", SimpleNamespace(get=lambda _: SimpleNamespace(streams=())))
    monkeypatch.setattr(
        coordinator,
        "RayRunner",
        lambda *_: SimpleNamespace(start=lambda *_: ["one"], machines={}, forked=0, peaks=list),
    )
    monkeypatch.setattr(coordinator, "Simulation", Rounds)
    config = SimpleNamespace(resources=Resources(address=None))
    restored = [Record()]
    kept = weakref.ref(restored[0])
    places = SimpleNamespace(placement=None)
    made = Coordinator(Start(config, [None], [], places, b"", restored, False, 0))
    del restored
    events = made.events()
    assert next(events) == StartStep("one")
    held = next(events)
    assert isinstance(held, Checkpoint)
    assert len(list(held.clients)) == 1
    assert kept() is None
    made.heard(False)
    held = next(events)
    assert Rounds.left == [None]


def test_a_sweeps_process_drops_records_once_it_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(sys, "breakpointhook", sys.breakpointhook)
    evaluating = SimpleNamespace(events=lambda: iter([Started(None, 2, done=1)]))
    monkeypatch.setattr(runs, "simulate_here", lambda *_: evaluating)
    server, clients = Record(), Record()
    kept = weakref.ref(server), weakref.ref(clients)
    made = RunProcess(SimpleNamespace(resources=Resources(address=None), callbacks={}), None, (server, clients))
    del server, clients
    events = made.events()
    assert isinstance(next(events)[0], StartStep)
    assert isinstance(next(events)[0], Started)
    assert [each() for each in kept] == [None, None]


@pytest.mark.parametrize(
    ("error", "words"),
    [(RuntimeError("a traceback\nand its last line\n"), "and its last line"), (TimeoutError(), "TimeoutError")],
)
def test_a_node_without_forks_is_told_in_a_word(error: Exception, words: str) -> None:
    assert workers.last_line(error) == words


def test_the_driver_drops_a_checkpoint_once_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    class Reference:
        def __init__(self, event: Any) -> None:
            self.event = event

    left = []

    def stream() -> Any:
        first = Reference(Checkpoint(1, b"", []))
        kept = weakref.ref(first), weakref.ref(first.event)
        yield first
        del first
        left.extend(each() for each in kept)
        yield Reference(Finished({}, False))

    made = object.__new__(Remote)
    made._first, made.coming = (), stream()
    made._paced = made._stopping = False
    made._actor = SimpleNamespace(heard=SimpleNamespace(remote=lambda stopping: None))
    made._places = SimpleNamespace(give_back=lambda: None)
    made._stalls = SimpleNamespace(heard=lambda event: None)
    monkeypatch.setattr(coordinator, "ray", SimpleNamespace(get=lambda reference: reference.event, kill=lambda _: None))
    monkeypatch.setattr(liveness, "ray", SimpleNamespace(wait=lambda references, timeout: (references, [])))
    for event in made.events():
        del event
    assert left == [None, None]


# before Ray starts


@pytest.mark.parametrize(
    ("address", "connected", "joins"),
    [
        ("auto", "10.9.9.9:6379", True),
        ("10.9.9.9:6379", "10.9.9.9:6379", True),
        ("localhost:6379", "127.0.0.1:6379", True),
        ("10.9.9.9:6380", "10.9.9.9:6379", False),
        ("10.9.9.9:6379", "127.0.0.1:6379", False),
    ],
)
def test_a_process_connected_to_another_cluster_is_refused(
    address: str, connected: str, joins: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = SimpleNamespace(gcs_address=connected)
    ray = SimpleNamespace(is_initialized=lambda: True, get_runtime_context=lambda: context)
    monkeypatch.setattr(joining, "ray", ray)
    there = Capacity(2, 0, None)
    monkeypatch.setattr(joining, "present", lambda: there)
    if joins:
        with joining.joined_cluster(address) as found:
            assert found is there
    else:
        said = f"resources.address: found {address}, but this process is connected to the cluster at {connected}, "
        with pytest.raises(ConfigError, match=f"^{re.escape(said)}allowed: "), joining.joined_cluster(address):
            pass


def test_a_run_asks_once_where_its_hosts_go_and_is_refused_for_memory_before_ray_starts(
    tiny: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The processes alone fit; a byte more for the data, which are read by then, does not."""
    asked = []
    place, need = placement.place, MemoryNeed(data=1, clients=[0] * 3)
    processes = MemoryNeed().total(actors=2, at_once=2)
    machine = Capacity(2, 0, math.ceil(processes / MOST_OF_MEMORY))
    monkeypatch.setattr("raysim.launch.run.this_machine", lambda: machine)
    monkeypatch.setattr("raysim.launch.starting.estimate_memory", lambda *_: need)
    monkeypatch.setattr(placement, "place", lambda *given: asked.append(given) or place(*given))
    monkeypatch.setattr("raysim.actors.cluster.cluster_of", lambda *_: pytest.fail("Ray was to be started"))
    with pytest.raises(ConfigError, match=r"resources\.clients_per_actor: 2 actors would take about"):
        raysim.run(tiny(resources__clients_per_actor="auto"), out=tmp_path / "out")
    assert len(asked) == 1
    assert not (tmp_path / "out").exists()


def test_a_lost_node_is_no_process_that_was_killed() -> None:
    """With the words of Ray's (2.60) where a node has not answered for long enough."""
    words = "The actor died because its node has died. Node Id: 0a\n\tthe actor's node was terminated unexpectedly: "

    class Died(ActorDiedError):
        def __str__(self) -> str:
            return f"{words}health check failed due to missing too many heartbeats"

    lost = failures.death("the host of client 3", Died())
    assert str(lost) == "the host of client 3 died: its node was lost (it ended, or the network to it was cut)"
    assert "killed, crashed" in str(failures.death("the host of client 3", ActorDiedError()))
