"""Requests to forget with methods that train: what is forgotten is dropped, left out later, and the model stays."""

import itertools
from dataclasses import asdict

import numpy as np
import pytest
import torch

from raysim.engine.events import Checkpoint, RoundDone
from raysim.engine.forgetting import follow_requests
from raysim.engine.runner import LocalRunner
from raysim.engine.simulation import Simulation, simulate_here
from raysim.evaluation.forgotten_samples import attack_auc, make_probe
from raysim.federation.federation import build_federation
from raysim.memory import Memory, MemoryKind

DATA = {"name": "synthetic", "classes": 4, "shape": [5], "train": 72, "test": 40}
RUN = {"dataset": DATA, "model": {"name": "mlp", "hidden": [4]}, "clients__count": 4, "training__rounds_per_task": 3}
RUN |= {"scenario": {"kind": "class_incremental", "tasks": 2}}
REQUESTS = [{"round": 2, "clients": [2]}, {"round": 4, "classes": [1]}]
DROPOUT = {"name": "mlp", "hidden": [4], "dropout": 0.3}
MOMENTUM = {"training__keep_optimizer": True, "training__optimizer": {"lr": 0.1, "momentum": 0.9}}
FEDBUFF = {"kind": "asynchronous", "concurrency": 3, "buffer_size": 1, "speeds": {"kind": "log_normal", "sigma": 1.5}}


def config_of(tiny, methods, requests=REQUESTS, **keys):
    return tiny(**RUN | keys, methods=methods, clients__forget=requests)


def told(run):
    """What the requests did, without measured times."""
    return [{**each, "seconds": 0} for done in run.rounds for each in done.forgotten or ()]


def named(federation, requests, until):
    """By client: the positions that requests up to a round name."""
    found = []
    for client, stream in enumerate(federation.streams):
        y = federation.dataset.train.y[np.concatenate(stream.rows)]
        mask = np.zeros(len(y), dtype=bool)
        for request in requests:
            if request["round"] <= until:
                mask |= np.isin(y, request.get("classes", ())) | (client in request.get("clients", ()))
        found.append(set(np.flatnonzero(mask).tolist()))
    return found


@pytest.mark.parametrize("fill", ["arrival", "boundary"])
def test_memories_drop_what_is_forgotten_and_never_hold_it_again(tiny, simulate, fill):
    """In rounds 1 to 3 clients 0 to 3 have the classes of task 1, in 4 to 6 those of task 2."""
    requests = [*REQUESTS, {"round": 5, "classes": [3]}]
    config = config_of(tiny, {"er": {}}, requests, memory__capacity=9, memory__fill=fill, checkpoint__every_rounds=1)
    run, plain = simulate(config), simulate(config_of(tiny, {"er": {}}, (), memory__capacity=9, memory__fill=fill))
    federation = run.simulation.federation
    assert told(run)[0]["samples"] == len(federation.streams[2].rows[0])  # of task 1
    states = [event for event in run.events if isinstance(event, Checkpoint)]
    for event in states:
        gone = named(federation, requests, event.round)
        (clients,) = event.clients
        runner = simulate_here(config, federation, event.server, clients).runner
        for number, client in runner.host.clients.items():
            assert not gone[number] & set(client.memory.entries().positions.tolist())
            assert not gone[number] & set(client.arrived.tolist())
    now, last = run.simulation.runner.host.clients, named(federation, requests, 5)
    assert all(not last[number] & set(client.arrived.tolist()) for number, client in now.items())
    assert len(now[0].memory) > 0  # what is not forgotten stays
    assert now[2].phases == 0 < now[0].phases  # a forgotten client has begun anew
    assert [done.cohort for done in run.rounds] == [[0, 1, 2, 3]] * 2 + [[0, 1, 3]] * 4
    assert run.rounds[1].loss == plain.rounds[1].loss  # nothing before the request is other


def test_the_model_stays_and_the_rest_of_the_run_is_without_the_client(tiny, simulate):
    """After round 2 the model is that of the run without requests; later the weights are those of 3 clients."""
    run, plain = (simulate(config_of(tiny, {}, of, checkpoint__every_rounds=2)) for of in (REQUESTS[:1], ()))
    models = []
    for each in (run, plain):
        saved = next(event for event in each.events if isinstance(event, Checkpoint))
        (clients,) = saved.clients
        federation = each.simulation.federation
        models.append(simulate_here(each.simulation.config, federation, saved.server, clients).server.parameters)
    assert torch.equal(*models)
    assert run.sha256 != plain.sha256
    assert run.simulation.server.shares.keys() == {0, 1, 3}


@pytest.mark.parametrize(
    ("methods", "keys"),
    [
        pytest.param({"er": {}}, {"memory__capacity": 8, "model": DROPOUT}, id="er"),
        pytest.param({"er": {}}, {"memory__capacity": 8, "schedule": FEDBUFF}, id="fedbuff"),
        pytest.param({"ditto": {}}, {"evaluation__model": "local"}, id="ditto", marks=pytest.mark.soak),
        pytest.param({"ewc": {}}, MOMENTUM, id="ewc", marks=pytest.mark.soak),
        pytest.param(
            {"er": {}}, {"memory__capacity": 8, "training__vectorise": 2}, id="together", marks=pytest.mark.soak
        ),
    ],
)
def test_hosts_and_checkpoints_make_no_difference(tiny, simulate, methods, keys):
    config = config_of(tiny, methods, checkpoint__every_rounds=1, **keys)
    whole = simulate(config)
    for places in ([[0], [1], [2], [3]], [[3, 1], [2, 0]]):
        parts = simulate(config, places=places)
        assert parts.sha256 == whole.sha256
        assert told(parts) == told(whole)
    federation = follow_requests(config, build_federation(config))
    for event in whole.events:
        if isinstance(event, Checkpoint):
            (clients,) = event.clients
            rest = [*simulate_here(config, federation, event.server, clients).events()]
            mine = [each.evaluation for each in rest if isinstance(each, RoundDone)]
            assert mine == [done.evaluation for done in whole.rounds[event.round :]]
            assert rest[-1].state.keys() == whole.state.keys()
            assert all(torch.equal(rest[-1].state[name], value) for name, value in whole.state.items())


def test_personalized_models_and_optimizers_begin_anew(tiny, simulate):
    """Client 0 holds class 1, of task 1, and has trained in all rounds: after round 6 it has no model of its own."""
    keys = MOMENTUM | {"evaluation__model": "local"}
    run = simulate(config_of(tiny, {"ditto": {}}, [{"round": 6, "classes": [1]}], **keys))
    (done,) = told(run)
    of_class = named(run.simulation.federation, [{"round": 6, "classes": [1]}], 6)
    holders = [client for client, positions in enumerate(of_class) if positions]
    assert done["clients"] == len(holders) > 0
    assert done["dropped"] == {"personalized models": len(holders), "optimizers": len(holders)}
    for client in run.simulation.runner.host.clients.values():
        forgets = client.id in holders
        assert (
            (client.halves["ditto"].own is None) == (client.personalized == ()) == (client.optimizer == {}) == forgets
        )


def test_states_that_stay_are_said(tiny, simulate):
    """EWC's Fisher matrices, at clients and server, are of task 1, which class 1 is in. ER has no state."""
    said = [told(simulate(config_of(tiny, methods, [REQUESTS[1]])))[0] for methods in ({"ewc": {}}, {"er": {}})]
    assert said[0]["stays"] == ["ewc at the clients", "ewc at the server"]
    assert said[0]["said"].endswith("was not changed, nor was the state of ewc at the clients, ewc at the server.")
    assert said[1]["stays"] == []
    assert said[1]["said"].endswith("The model, which was trained on them, was not changed.")
    assert said[1]["said"].startswith(f"After round 4, class 1: {said[1]['samples']} samples of ")


def test_updates_under_way_are_dropped(tiny, simulate):
    """No update that is used was sent before a request and comes after it, if its client had what is forgotten."""
    requests = [{"round": n, "classes": [0, 1]} for n in (3,)] + [{"round": 8, "clients": [1]}]
    keys = {"schedule": FEDBUFF, "training__rounds_per_task": 8, "logging__dispatches": True}
    run = simulate(config_of(tiny, {}, requests, **keys))
    schedule, federation = run.simulation.schedule, run.simulation.federation
    dropped = 0
    for update in schedule._timetable:
        for dispatch in [*update.arrivals, *update.discarded]:
            sent, came = dispatch.version + 1, update.number
            window = federation.availability._attendance[dispatch.client].last_window(sent)
            had = set(range(federation.streams[dispatch.client].end(window)))
            between = [
                named(federation, [each], each["round"])[dispatch.client] & had
                for each in requests
                if sent <= each["round"] < came
            ]
            assert any(between) == dispatch.forgotten == (dispatch.fate == "discarded")
            dropped += dispatch.forgotten
    assert dropped > 0
    assert sum(each["dropped"].get("updates under way", 0) for each in told(run)) == dropped
    fates = [trip.fate for done in run.rounds for trip in done.dispatches]
    assert fates.count("discarded") == dropped


def test_an_update_under_way_is_dropped_once(tiny, simulate):
    """All requests of round 3 name what all clients had; each update counts for the first of them."""
    requests = [{"round": 3, "classes": [label]} for label in range(4)]
    run = simulate(config_of(tiny, {}, requests, schedule=FEDBUFF, training__rounds_per_task=8))
    dispatches = [each for update in run.simulation.schedule._timetable for each in update.dispatched]
    dropped = sum(dispatch.forgotten for dispatch in dispatches)
    assert dropped > 0
    assert sum(each["dropped"].get("updates under way", 0) for each in told(run)) == dropped


def test_a_client_begins_anew_if_all_its_samples_were_forgotten_before(tiny, simulate):
    """After round 4 no sample is left; what client 1 has not sent yet, by top-k, stays until it is forgotten."""
    requests = [{"round": 4, "classes": [0, 1, 2, 3]}, {"round": 5, "clients": [1]}]
    run = simulate(config_of(tiny, {"top_k": {"fraction": 0.5}}, requests))
    clients = run.simulation.runner.host.clients
    assert told(run)[1]["dropped"] == {"states of clients": 1}
    assert clients[1].phases == 0 < clients[0].phases
    assert not len(clients[1].stream.span(0, 2))


def test_measuring_leaves_the_servers_network_as_it_was(tiny):
    """A method of the server may use it, and in a resumed run no request has changed it."""
    network = {"name": "mlp", "hidden": [4], "dropout": 0.3, "batch_norm": True}
    config = config_of(tiny, {}, [{"round": 1, "classes": [1]}], model=network)
    federation = follow_requests(config, build_federation(config))
    simulation = Simulation(config, federation, LocalRunner(config, federation))
    model = simulation.server.network
    model.module.train()
    before = model.copy()
    assert any(isinstance(event, RoundDone) and event.forgotten for event in itertools.islice(simulation.events(), 2))
    assert all(torch.equal(*pair) for pair in zip(model.vectors, before.vectors, strict=True))
    assert [layer.training for layer in model.module.modules()] == [True] * len([*model.module.modules()])


def test_a_client_without_other_data_is_absent(tiny, simulate):
    """With all classes of task 1 forgotten in round 1, no one is there in rounds 2 and 3."""
    first = [*build_federation(config_of(tiny, {}, ())).tasks[0].classes]
    config = config_of(tiny, {}, [{"round": 1, "classes": first}])
    assert [len(done.cohort) for done in simulate(config).rounds] == [4, 0, 0, 4, 4, 4]


def test_what_is_measured_is_of_the_tested_model(tiny, simulate):
    """The accuracy on class 1 is the share of its arrived training samples with the largest output at class 1."""
    run = simulate(config_of(tiny, {}, [{"round": 6, "classes": [1]}]))
    (done,), federation = told(run), run.simulation.federation
    rows = np.unique(np.concatenate([part for stream in federation.streams for part in stream.rows]))
    y, model = federation.dataset.train.y, run.simulation.model
    for rest, key in ((False, "accuracy_forgotten"), (True, "accuracy_rest")):
        of = rows[(y[rows] != 1) == rest]
        source = federation.source("train", torch.device("cpu"))
        with torch.no_grad():
            best = model.module(source.fetch(torch.from_numpy(of.astype(np.int64)), 0)).argmax(1).numpy()
        assert done[key] == [pytest.approx((best == y[of]).mean())] * 2
    probe = make_probe(federation, federation.forgetting[6][0], 0)
    assert {*federation.dataset.test.y[probe.test.rows]} == {1}
    assert {*y[probe.rest.rows]} == {0, 2, 3}
    assert asdict(probe)["arrived"] == done["samples"] == (y[rows] == 1).sum()


def test_the_attack_counts_pairs():
    """Losses .1, .4 against .2, .4: .1 is below both, .4 below none and equal to one: (2 + 1/2) / 4."""
    assert attack_auc(np.array([0.4, 0.1]), np.array([0.4, 0.2])) == 0.625
    assert attack_auc(np.array([0.4]), np.zeros(0)) is None
    assert attack_auc(np.array([np.inf]), np.ones(1)) is None


@pytest.mark.parametrize(
    "policy", ["reservoir", "class_balanced", "class_ring", "task_ring", "sliding_window", "random"]
)
@pytest.mark.parametrize("per_task", [False, True])
def test_a_refilled_memory_goes_on_as_one_that_was_offered_the_rest(policy, per_task):
    """40 samples of 2 tasks and 4 classes fill 12 slots; after every third is dropped, 40 more are offered."""
    kind = MemoryKind(policy, capacity=12, per_task=per_task)
    labels, tasks = np.arange(80) // 20, np.arange(80) // 40
    memory, draws = Memory(kind), np.random.default_rng(0)
    memory.offer(torch.arange(40), labels[:40], tasks[:40], draws, torch.arange(120).view(40, 3))
    entries = memory.entries()
    rest = memory.entries((entries.positions % 3 != 0).nonzero().view(-1))
    rows = rest.positions.numpy()
    memory.refill(rest, labels[rows], tasks[rows], draws)
    kept = memory.entries()
    assert {*kept.positions.tolist()} == {*rest.positions.tolist()}
    assert torch.equal(kept.draws[:, 0], 3 * kept.positions)
    memory.offer(torch.arange(40, 80), labels[40:], tasks[40:], draws, torch.arange(120, 240).view(40, 3))
    held = memory.entries().positions
    assert len({*held.tolist()}) == len(held) == sum(len(part.positions) for part in memory.parts.values())
    assert all(len(part.positions) <= 12 for part in memory.parts.values())
    assert len(held) >= 12
    assert not {*held.tolist()} & {*entries.positions[entries.positions % 3 == 0].tolist()}
