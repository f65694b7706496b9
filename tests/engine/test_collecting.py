"""Rounds in which clients send what a method collects, and do not train."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from costs import cost_of

from raysim.api import Broadcast, ClientHalf, Method, RunError, ServerHalf
from raysim.engine.compatibility import check_methods
from raysim.engine.events import Checkpoint
from raysim.engine.host_evaluation import HostEvaluation
from raysim.engine.simulation import simulate_here
from raysim.federation.federation import build_federation
from raysim.launch.check import estimate_run
from raysim.system.errors import ConfigError

MODEL = 4 * 59
TERMS = 8 * (6 + 4) + 8  # the sum of 6 features and 4 columns, in float64, and a number in int64
SCALE = 4  # the message
NEVER = {"methods": {"grams:NoModel": {}}}
LATER = {"methods": {"grams:Statistics": {"training": 1}}}
FEDBUFF = {"kind": "asynchronous", "concurrency": 3, "buffer_size": 2, "speeds": {"kind": "log_normal"}}
FEDASYNC = FEDBUFF | {"buffer_size": 1, "mixing": "models", "rate": 0.5}


def record(run, name):
    return [done.records.get(name) for done in run.rounds]


def test_a_method_in_which_no_client_trains_sends_its_messages_alone(tiny, simulate):
    """Of 3 clients in 4 rounds, each with a message of 4 bytes: twice the sum of all rows, in two rounds of a task."""
    run = simulate(tiny(**NEVER))
    assert [(done.bytes_up, done.bytes_down) for done in run.rounds] == [(3 * TERMS, 3 * SCALE)] * 4
    assert [done.steps for done in run.rounds] == [0] * 4
    assert [done.loss for done in run.rounds] == [None] * 4
    assert record(run, "clients") == [3] * 4
    assert run.simulation.server.version == 0
    federation, expected = run.simulation.federation, 0
    for task in federation.tasks:
        x = federation.dataset.train.x[task.train].astype(np.float64)
        x = np.round((x if task.pixels is None else x[:, task.pixels]) * 1024) / 1024
        columns = np.eye(4)[federation.dataset.train.y[task.train]]
        expected = expected + 2 * 2 * np.concatenate([x, columns], 1).sum(0)
    assert np.array_equal(run.simulation.exchange.halves["NoModel"].rows.numpy(), expected)


def test_check_says_that_there_are_no_steps_and_which_bytes(tiny):
    said = dict(estimate_run(tiny(**NEVER)))
    assert said["model"] == "mlp: 59 trained parameters, never sent"
    assert said["steps"] == "about 0 gradient steps"  # of any method that is not raysim's, they are about
    assert said["bytes up"].startswith(f"about {4 * 3 * TERMS:,} (")
    assert said["bytes down"].startswith(f"about {4 * 3 * SCALE:,} (")


ASYNC = [
    {"schedule": schedule, "training__rounds_per_task": 5, "clients__dropout": 0.2} for schedule in (FEDBUFF, FEDASYNC)
]


@pytest.mark.parametrize(
    ("methods", "config"),
    [
        (NEVER, {"clients__dropout": 0.4}),
        (NEVER, ASYNC[0]),
        (LATER, {"clients__dropout": 0.4}),
        (LATER, {"participation": {"count": 2}}),
        (LATER, ASYNC[0]),
        (LATER, ASYNC[1]),
    ],
)
def test_bytes_and_steps_are_known_before(tiny, simulate, methods, config):
    config = tiny(**methods, **config)
    run, cost = simulate(config), cost_of(config)
    traffic = run.simulation.exchange.traffic
    assert (sum(cost.up.values()), sum(cost.down.values())) == (traffic.up, traffic.down)
    assert cost.steps == run.simulation.exchange.steps
    assert cost.updates == sum(len(done.cohort) for done in run.rounds)


def test_the_model_is_sent_while_it_changes_and_once_afterwards(tiny, simulate):
    """Two rounds train. The third one's clients lack the second one's model; the fourth one's have it."""
    run = simulate(tiny(**LATER))
    up, down = 3 * MODEL, 3 * (MODEL + SCALE)
    assert [done.bytes_up for done in run.rounds] == [up, up, 3 * TERMS, 3 * TERMS]
    assert [done.bytes_down for done in run.rounds] == [down, down, down, 3 * SCALE]
    assert [done.steps for done in run.rounds] == [9, 9, 0, 0]
    models = record(run, "model")
    assert len({*models[:3]}) == 3
    assert models[3] == models[2]
    assert run.simulation.server.version == 2


@pytest.mark.parametrize("other", ["fedprox", "fedavgm", "scaffold"])
def test_other_methods_wait(tiny, simulate, other):
    """Momentum would move the model, and SCAFFOLD's control variate would be divided by no steps."""
    run = simulate(tiny(methods={**LATER["methods"], other: {}}))
    alone = simulate(tiny(methods={other: {}}))
    models = record(run, "model")
    assert models[3] == models[2] != models[1]
    assert run.rounds[1].loss == alone.rounds[1].loss
    assert run.rounds[2].bytes_up == 3 * TERMS


@pytest.mark.parametrize("schedule", [{"kind": "synchronous"}, FEDBUFF, FEDASYNC], ids=["sync", "fedbuff", "fedasync"])
def test_no_packing_and_no_resume_changes_a_bit(tiny, simulate, schedule):
    """Some client updates of the later task's first rounds are of the earlier ones, which trained."""
    config = tiny(
        methods={"grams:Statistics": {"training": 1}},
        schedule=schedule,
        training__rounds_per_task=3 if schedule["kind"] == "synchronous" else 4,
        clients__count=5,
        clients__dropout=0.2,
        checkpoint__every_rounds=1,
        model={"name": "mlp", "hidden": [5], "dropout": 0.2},
    )
    whole = simulate(config)
    models = record(whole, "model")
    assert len({*models[:4]}) == 4
    assert models[-1] == models[-2]
    assert whole.rounds[-1].records["digest"] != whole.rounds[-2].records["digest"]
    if schedule["kind"] == "synchronous":
        for places in ([[0], [1], [2], [3], [4]], [[4, 1, 0], [3, 2]]):
            parts = simulate(config, places=places)
            assert [done.records for done in parts.rounds] == [done.records for done in whole.rounds]
            assert parts.sha256 == whole.sha256
    federation, resumed = build_federation(config), 0
    for event in whole.events:
        if isinstance(event, Checkpoint):
            (clients,) = event.clients
            rest = simulate_here(config, federation, event.server, clients).events()
            found = [done.records for done in rest if hasattr(done, "records")]
            assert found == [done.records for done in whole.rounds[event.round :]]
            resumed += 1
    assert resumed == len(whole.rounds) - 1


def test_an_update_that_collects_takes_nothing_from_the_mean_of_those_that_train(tiny, simulate):
    """Every client that trains sends ones, so each update of a buffer with such a client adds 1, and no other does."""
    run = simulate(
        tiny(
            methods={"grams:Statistics": {"training": 1, "ones": True}},
            schedule=FEDBUFF | {"staleness": {"kind": "constant"}},
            training__rounds_per_task=5,
        )
    )
    first, clients = record(run, "first"), record(run, "clients")
    added = [round(after - before, 5) for before, after in pairwise(first)]
    assert list(zip(added, clients, strict=False))[3:7] == [(1.0, None), (1.0, None), (1.0, 1.0), (0.0, 2.0)]


def test_clients_that_train_together_collect_the_same(tiny, simulate):
    together = simulate(tiny(**LATER, training__vectorise=3))
    assert record(together, "digest") == record(simulate(tiny(**LATER)), "digest")


class Reader(Method):
    """Its clients read what the server announces: a host has the version of its clients' last cohort."""

    class Client(ClientHalf):
        seen = 0.0

        def begin_task(self, client):
            self.seen = self.seen + client.from_server(self.name)

    class Server(ServerHalf):
        def announce(self, server):
            return None, [Broadcast(self.name, server.round, torch.tensor(float(server.round)))]


class Receiver(Reader):
    class Client(ClientHalf):
        def receive(self, client):
            client.model.parameters.add_(client.from_server(self.name))


class Starter(Reader):
    class Client(ClientHalf):
        def start(self, client, message):
            client.record("seen", client.from_server(self.name))


@pytest.mark.parametrize(("name", "hook"), [("Reader", "begin_task"), ("Receiver", "receive")])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_method_whose_broadcasts_a_task_may_begin_without_is_refused(tiny, name, hook, is_first):
    pair = [(f"test_collecting:{name}", {}), ("grams:Statistics", {"training": 1})]
    words = (
        rf"^methods: found Statistics with rounds without training \(trains\) and {name}, whose {hook} may "
        r"read what is not announced in them, allowed: one of the two; leave the other out$"
    )
    with pytest.raises(ConfigError, match=words):
        check_methods(tiny(methods=dict(pair if is_first else reversed(pair))))
    check_methods(tiny(methods=dict(pair[:1])))


def test_a_method_that_reads_its_broadcasts_in_training_only_is_allowed(tiny, simulate):
    """Of four rounds, two train; the broadcast of each is the round's number."""
    config = tiny(methods={"test_collecting:Starter": {}, "grams:Statistics": {"training": 1}})
    check_methods(config)
    whole, parts = simulate(config), simulate(config, places=[[0], [1, 2]])
    assert record(whole, "seen") == record(parts, "seen") == [1.0, 2.0, None, None]


@pytest.mark.parametrize(
    ("methods", "schedule", "expected"),
    [
        (LATER, {"kind": "synchronous"}, 1 + 3 + 3),  # the first model, then three clients after rounds 1 and 2
        (NEVER, {"kind": "synchronous"}, 1),
        (LATER, FEDBUFF, None),
        (NEVER, FEDBUFF, 1),
    ],
)
def test_a_personalized_model_is_tested_again_only_after_training(
    tiny, simulate, monkeypatch, methods, schedule, expected
):
    """The models are tested after each of four rounds, of which the last two collect, or all."""
    config = tiny(**methods, evaluation__model="local", evaluation__every_rounds=1, schedule=schedule)
    tests = 0
    original = HostEvaluation._test_weights

    def test_weights(self, *arguments):
        nonlocal tests
        tests += 1
        return original(self, *arguments)

    monkeypatch.setattr(HostEvaluation, "_test_weights", test_weights)
    simulate(config)
    assert tests == cost_of(config).evaluations
    assert expected in (tests, None)


def test_what_makes_no_sense_is_refused_in_one_line(tiny, simulate):
    with pytest.raises(
        ConfigError, match=r"^methods: NoModel and Statistics each override the hook trains, allowed: one"
    ):
        check_methods(tiny(methods={"grams:NoModel": {}, "grams:Statistics": {}}))
    words = r"^methods\.Undecided: Undecided\.Server\.trains \(.*\) returned NoneType, allowed: True or False; server, "
    with pytest.raises(RunError, match=words):
        simulate(tiny(methods={"grams:Undecided": {}}))
    words = (
        r"^methods\.Statistics: Statistics\.Server\.update \(.*\) returned a change of the model, allowed: the delta "
        "that it receives, as no client trained; see the hook evaluated; server, round 1$"
    )
    with pytest.raises(RunError, match=words):
        simulate(tiny(methods={"grams:Statistics": {"moves": True}}))
