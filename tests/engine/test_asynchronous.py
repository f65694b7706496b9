"""Runs under an asynchronous schedule, under asynchronous boundaries, and with clients that come and go; float64."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from softmax_oracle import batch_order, local_phase

from raysim.api.method import ClientHalf, Method
from raysim.api.server import Server
from raysim.engine import samplers
from raysim.engine.attendance import Participants
from raysim.engine.compatibility import check_methods
from raysim.engine.virtual_time import discount
from raysim.federation.federation import build_federation
from raysim.models.building import build_model
from raysim.system.errors import ConfigError

SOFTMAX = {"name": "probes:softmax"}
BUFFER_OF_ALL = {"kind": "asynchronous", "concurrency": 3, "buffer_size": 3}


def vector(state):
    return torch.cat([t.reshape(-1) for t in state.values()]).numpy()


def windows(size=10, rounds=2, **more):
    """Asynchronous boundaries."""
    return {"boundaries": {"asynchronous": {"window": size, "rounds_per_window": rounds, **more}}}


def domains(**more):
    return {"kind": "domain_incremental", "tasks": 2, "shift": "permutation", **more}


def replayed(config, federation, updates):
    """The run in NumPy, from the timetable: w += rate/K sum_i s(a_i) delta_i, or w += rate s (w_i + delta_i - w)."""
    model = build_model(config, federation.shape, federation.classes)
    versions = [torch.cat([p.detach().reshape(-1) for p in model.parameters()]).numpy()]
    phases, schedule = [0] * config.clients.count, config.schedule
    deltas = {}
    for update in updates:
        for sent in update.dispatched:
            if sent.dropped:
                continue
            k = sent.client
            phases[k] += 1
            stream, window = federation.streams[k], federation.availability.window(k, sent.version + 1)
            rows, task = stream.locate(stream.span(window, window + 1))
            x = federation.dataset.train.x[rows][:, federation.tasks[task].pixels].astype(np.float64)
            y = federation.dataset.train.y[rows]
            order = batch_order(config.seed, k, phases[k], len(y), config.training.local_epochs, 4)
            deltas[sent.number] = local_phase(versions[-1], x, y, order, config.training.optimizer.lr, 4)[0]
        now, change = versions[-1], 0
        for arrival in update.arrivals:
            s = discount(arrival.staleness, schedule.staleness)
            old = 0 if schedule.mixing == "deltas" else versions[arrival.version] - now
            change = change + s * (deltas[arrival.number] + old) / len(update.arrivals)
        versions.append(now + schedule.rate * change)
    return versions


@pytest.mark.parametrize(
    "schedule",
    [
        {"concurrency": 2, "buffer_size": 2, "rate": 0.7, "speeds": {"kind": "log_normal"}},
        {"concurrency": 3, "buffer_size": 1, "mixing": "models", "rate": 0.6, "speeds": {"kind": "pareto"}},
        {"concurrency": 3, "buffer_size": 2, "max_staleness": 0, "speeds": {"kind": "pareto"}},
    ],
    ids=["fedbuff", "fedasync", "discarding"],
)
def test_a_run_is_the_timetable_in_numpy(tiny, simulate, schedule):
    """Unequal speeds, so updates are old and a client may be twice in a buffer; drop-outs; two tasks of 4 updates."""
    config = tiny(
        model=SOFTMAX, schedule={"kind": "asynchronous", **schedule}, training__rounds_per_task=4, clients__dropout=0.2
    )
    federation = build_federation(config)
    run = simulate(config, federation)
    updates = run.simulation.schedule._timetable
    ages = [d.staleness for update in updates for d in update.arrivals]
    assert max(ages) > 0 or any(update.discarded for update in updates)
    wanted = replayed(config, federation, updates)
    np.testing.assert_allclose(vector(run.state), wanted[-1], rtol=0, atol=1e-11)
    assert [list(r.staleness) for r in run.rounds] == [[d.staleness for d in update.arrivals] for update in updates]
    assert [r.virtual_time for r in run.rounds] == pytest.approx([update.time for update in updates], rel=1e-12)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"model__dropout": 0.3, "methods": {"fedavgm": {}, "der": {}}},
        {"model__batch_norm": True, "aggregation__weights": "samples", "methods": {"er": {}}},
    ],
)
def test_a_buffer_of_all_equals_is_fedavg_bit_for_bit(tiny, simulate, more):
    """Equal speeds and sizes, full participation: s(0) = 1 and every buffer is the round's cohort."""
    rounds = simulate(tiny(**more))
    buffered = simulate(tiny(schedule=BUFFER_OF_ALL, **more))
    assert buffered.sha256 == rounds.sha256
    assert [r.evaluation for r in buffered.rounds] == [r.evaluation for r in rounds.rounds]
    assert [r.virtual_time for r in buffered.rounds] == [r.virtual_time for r in rounds.rounds]
    assert [r.bytes_up for r in buffered.rounds] == [r.bytes_up for r in rounds.rounds]


def test_one_client_at_a_time_without_discount_is_sequential_training(tiny, simulate):
    """FedAsync with rate 1: w <- the client's model, so each trains on from where the last one stopped."""
    schedule = {"kind": "asynchronous", "concurrency": 1, "buffer_size": 1, "mixing": "models"}
    config = tiny(model=SOFTMAX, schedule=schedule, training__rounds_per_task=6, scenario__tasks=1)
    federation = build_federation(config)
    run = simulate(config, federation)
    w = vector(build_model(config, federation.shape, federation.classes).state_dict())
    phases = [0, 0, 0]
    for (k,) in (r.cohort for r in run.rounds):
        phases[k] += 1
        rows = federation.streams[k].rows[0]
        x = federation.dataset.train.x[rows][:, federation.tasks[0].pixels].astype(np.float64)
        order = batch_order(0, k, phases[k], 12, 1, 4)
        w = w + local_phase(w, x, federation.dataset.train.y[rows], order, 0.1, 4)[0]
    np.testing.assert_allclose(vector(run.state), w, rtol=0, atol=1e-6)
    assert all(r.staleness == [0] for r in run.rounds)


def test_an_update_counts_by_what_its_client_had_when_it_was_sent_the_model(tiny, simulate):
    """Three equals are sent out at once and taken one by one; by then, at rounds 2 and 3, two of them are gone."""
    config = tiny(
        schedule={"kind": "asynchronous", "concurrency": 3, "buffer_size": 1},
        aggregation__weights="samples",
        clients__leave=[{"round": 2, "clients": [0, 1]}],
    )
    run = simulate(config)
    assert sorted(client for round in run.rounds[:3] for client in round.cohort) == [0, 1, 2]
    assert run.simulation.server.shares == {2: 1.0}


def test_a_client_that_is_twice_in_a_buffer_has_both_weights(tiny, simulate):
    """Three clients of unequal speeds train at a time, and a buffer has three of their updates."""
    speeds = {"kind": "log_normal", "sigma": 2.0}
    schedule = {"kind": "asynchronous", "concurrency": 3, "buffer_size": 3, "speeds": speeds}
    run = simulate(tiny(schedule=schedule, training__rounds_per_task=4))
    last = run.rounds[-1].cohort
    assert len({*last}) < len(last) == 3
    assert run.simulation.server.shares == {client: last.count(client) / 3 for client in sorted({*last})}


def test_the_idle_share_by_hand(tiny, simulate):
    """12 samples each; a client three times as slow: the round lasts 36, the others wait 24 of it: 48/108 idle."""
    run = simulate(tiny(schedule={"kind": "synchronous", "speeds": {"seconds_per_sample": 1}}))
    assert [(r.virtual_time, r.idle_share) for r in run.rounds] == [(12, 0), (24, 0), (36, 0), (48, 0)]
    clock = run.simulation.schedule._clock
    clock._per_sample[1] = 3.0
    participants = Participants(4, (0, 1, 2), seed=0, dropout=0.0)
    outcome = run.simulation.schedule._outcome(participants, {})
    assert outcome.seconds == 36
    assert outcome.idle == pytest.approx(48 / 108)


def test_bandwidth_counts_what_was_sent_and_received(tiny, simulate):
    """mlp 6-5-4: 59 parameters, 236 bytes down and up; at 236 bytes a second 2 s, besides 12 samples of 1 ms."""
    run = simulate(tiny(schedule={"kind": "synchronous", "bandwidth": 236}))
    assert [r.virtual_time for r in run.rounds] == pytest.approx([2.012, 4.024, 6.036, 8.048])


def test_requests_at_a_tasks_end_take_virtual_time(tiny, simulate):
    """Every client sends and receives a third of all bytes, at 236 a second, and trains 12 samples of 1 ms in a round.

    So the time is the bytes' third over 236, and 12 ms for each of 4 rounds. EWC's requests are at both tasks' ends.
    """
    run = simulate(tiny(methods={"ewc": {}}, schedule={"kind": "synchronous", "bandwidth": 236}))
    nbytes = [r.bytes_up + r.bytes_down for r in run.rounds]
    assert nbytes[1] > nbytes[0]
    assert [r.virtual_time for r in run.rounds] == pytest.approx(
        [0.012 * n + sum(nbytes[:n]) / 3 / 236 for n in range(1, 5)]
    )


def test_who_drops_out_is_sent_the_model_and_does_not_train(tiny, simulate, log):
    config = tiny(clients__dropout=0.5, training__rounds_per_task=8, methods={"probes:Observer": {}})
    run = simulate(config)
    sizes = [len(r.cohort) for r in run.rounds]
    assert 0 in sizes  # p = 1/8 in each of 16 rounds; an empty cohort leaves the model alone
    assert 3 in sizes
    assert [r.bytes_up for r in run.rounds] == [236 * size for size in sizes]
    # the model is sent once per version: after an empty round nobody needs it again
    assert all(r.bytes_down <= 3 * 236 for r in run.rounds)
    first = run.rounds[0]
    assert first.bytes_down == 3 * 236
    assert run.simulation.server.version == sum(size > 0 for size in sizes)


def test_of_a_discarded_update_nothing_is_kept(tiny, simulate):
    schedule = {"kind": "asynchronous", "concurrency": 3, "buffer_size": 1, "mixing": "models", "max_staleness": 0}
    run = simulate(tiny(schedule=schedule, training__rounds_per_task=8)).simulation.schedule
    assert any(update.discarded for update in run._timetable)
    assert run._sent.keys() == run._tickets.keys()


def test_clients_that_leave_while_they_train_are_not_idle(tiny, simulate):
    """All three train, two leave at once, and an update needs one: until it, as many trained as there were."""
    schedule = {"kind": "asynchronous", "concurrency": 3, "buffer_size": 1, "speeds": {"kind": "log_normal"}}
    leave = [{"round": 2, "clients": [0, 1]}]
    run = simulate(tiny(schedule=schedule, clients__leave=leave, training__rounds_per_task=4))
    assert all(0 <= r.idle_share <= 1 for r in run.rounds)
    assert run.rounds[1].idle_share == pytest.approx(0)


def test_a_drop_out_changes_no_other_draw(tiny, simulate):
    """The cohorts before drop-outs are those of a run without; each draw is (seed, "dropout", client, round)."""
    more = {"clients__count": 6, "dataset__train": 72, "participation": {"count": 3}, "training__rounds_per_task": 6}
    whole, thinned = simulate(tiny(**more)), simulate(tiny(clients__dropout=0.4, **more))
    assert all(set(b.cohort) <= set(a.cohort) for a, b in zip(whole.rounds, thinned.rounds, strict=True))
    assert sum(len(r.cohort) for r in thinned.rounds) < sum(len(r.cohort) for r in whole.rounds)


@pytest.mark.parametrize("sampler", ["uniform", "by_size", "round_robin", "test_asynchronous:last_first"])
def test_samplers_choose_among_the_present(tiny, simulate, sampler):
    config = tiny(
        clients__count=5, dataset__train=60, participation={"count": 2, "sampler": sampler}, training__rounds_per_task=5
    )
    run = simulate(config)
    cohorts = [tuple(r.cohort) for r in run.rounds]
    assert all(len(set(cohort)) == 2 for cohort in cohorts)
    if sampler == "round_robin":
        assert cohorts[:5] == [(0, 1), (2, 3), (0, 4), (1, 2), (3, 4)]
    elif sampler == "test_asynchronous:last_first":
        assert set(cohorts) == {(3, 4)}
    else:
        assert len(set(cohorts)) > 3


def last_first(server, count, draws):
    """A sampler of the user's own."""
    return server.present[-count:]


def test_by_size_draws_in_proportion(tiny, host_of):
    """One of three clients: chances by samples; 3000 rounds, 5 sigma."""
    config = tiny(
        partition={"kind": "dirichlet", "alpha": 0.5, "min_samples": 3, "balanced": False},
        participation={"count": 1, "sampler": "by_size"},
        seed=2,
    )
    federation = build_federation(config)
    server = Server(config, federation, host_of(config).model)
    p = np.array([federation.streams[k].size(0) for k in range(3)]) / 36
    counts = np.zeros(3)
    for number in range(3000):
        counts[samplers.by_size(server, 1, np.random.default_rng(number))] += 1
    assert len(set(p)) > 1
    assert (np.abs(counts - 3000 * p) <= 5 * np.sqrt(3000 * p * (1 - p))).all()


@pytest.mark.parametrize("methods", [{}, {"der": {}, "fed_a_gem": {}}, {"a_gem": {}}, {"er": {}}, {"scaffold": {}}])
def test_asynchronous_boundaries_run_with_all_methods_that_need_none(tiny, simulate, methods):
    config = tiny(scenario=domains(**windows()), training__rounds_per_task=None, methods=methods)
    run, again = simulate(config), simulate(config)
    assert run.sha256 == again.sha256
    assert len(run.rounds) == 6
    assert [list(r.tasks) for r in run.rounds] == [[1], [1], [1, 2], [1, 2], [2], [2]]
    assert [r.task_done for r in run.rounds] == [False, False, True, False, False, True]


def test_no_method_sees_where_a_task_ends(tiny, simulate):
    """The same samples in the same order as one task or as two: the same bits, memories and references included."""
    two = tiny(scenario=domains(**windows()), training__rounds_per_task=None, methods={"er": {}, "fed_a_gem": {}})
    federation = build_federation(two)
    for stream in federation.streams:  # both tasks look alike now, and one is as long as both
        stream.tasks = (0, 0)
    run = simulate(two, federation)
    merged = build_federation(two)
    merged.streams[:] = [type(s)([np.concatenate(s.rows)], [0], s._windows[1:], [0]) for s in federation.streams]
    assert simulate(two, merged).sha256 == run.sha256


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"methods": {"re_fed": {}}, "scenario": domains(**windows())}, "re_fed: needs to know when a client's task"),
        ({"methods": {"special": {}}, "scenario": domains(**windows())}, "special: needs boundaries that all clients"),
        (
            {"methods": {"special_c": {}}, "scenario": domains(boundaries={"jittered": {"rounds": 1}})},
            "special_c: needs boundaries that all clients",
        ),
        ({"methods": {"c_flag": {}}, "schedule": BUFFER_OF_ALL}, "c_flag: needs rounds that wait for their clients"),
        ({"methods": {"scaffold": {}}, "schedule": BUFFER_OF_ALL}, "scaffold: needs rounds that wait"),
        ({"methods": {"fixed": {}}, "schedule": BUFFER_OF_ALL}, "fixed: needs rounds that wait"),
        (
            {"methods": {"fed_a_gem": {}}, "schedule": BUFFER_OF_ALL},
            "fed_a_gem: needs rounds that wait for their clients; set schedule.kind=synchronous",
        ),
        ({"methods": {"probes:Everything": {}}, "schedule": BUFFER_OF_ALL}, "Everything: needs rounds that wait"),
    ],
)
def test_what_cannot_be_served_is_refused(tiny, overrides, words):
    rounds = None if "asynchronous" in overrides.get("scenario", {}).get("boundaries", {}) else 3
    with pytest.raises(ConfigError, match=f"methods.{words}"):
        check_methods(tiny(training__rounds_per_task=rounds, **overrides))


def test_fed_a_gem_without_a_barrier_takes_the_gradients_of_the_last_buffer(tiny, simulate):
    methods = {"er": {}, "fed_a_gem": {"reference": "with_update"}}
    schedule = {"kind": "asynchronous", "concurrency": 2, "buffer_size": 2, "speeds": {"kind": "log_normal"}}
    run = simulate(tiny(methods=methods, schedule=schedule, training__rounds_per_task=6))
    plain = simulate(tiny(methods={"er": {}}, schedule=schedule, training__rounds_per_task=6))
    assert run.sha256 != plain.sha256
    assert [r.cohort for r in run.rounds] == [r.cohort for r in plain.rounds]  # one timetable, whatever the methods
    # a client sends two vectors once its memory is not empty: from its second phase on
    seen, wanted = set(), []
    for r in run.rounds:
        wanted.append(sum(236 * (2 if k in seen else 1) for k in r.cohort))
        seen |= set(r.cohort)
    assert [r.bytes_up for r in run.rounds[:2]] == wanted[:2]


@pytest.mark.parametrize(
    "method", ["re_fed", "c_flag", "er", "special_c", "fed_a_gem", "lwf", "flwf", "gpm", "fot", "icarl", "glfc", "dann"]
)
def test_a_client_that_missed_tasks_goes_on(tiny, simulate, method):
    """Client 2 comes in task 2 of 3, client 0 is gone in task 3: finite results, the same again."""
    config = tiny(
        scenario=domains(tasks=3),
        clients={
            "count": 3,
            "arrive": {"at": [{"round": 4, "clients": [2]}]},
            "leave": [{"round": 5, "clients": [0]}],
        },
        methods={method: {}},
        memory={"capacity": 6},
    )
    run, again = simulate(config), simulate(config)
    assert run.sha256 == again.sha256
    assert [r.cohort for r in run.rounds] == [[0, 1], [0, 1], [0, 1], [0, 1, 2], [1, 2], [1, 2]]
    assert all(torch.isfinite(value).all() for value in run.state.values())


SEEN: list = []


@dataclass(frozen=True, kw_only=True)
class Witness(Method):
    """Writes down what every client sees of its stream."""

    class Client(ClientHalf):
        def begin_task(self, client):
            SEEN.append(("begins", client.id, client.round, client.finished.tolist()))

        def start(self, client, message):
            SEEN.append(("trains", client.id, client.round, client.arrived.tolist()))


def test_every_client_trains_on_its_own_window(tiny, simulate):
    """Jittered boundaries: in one round clients have different windows, as the calendar says."""
    SEEN.clear()
    config = tiny(
        scenario=domains(tasks=3, boundaries={"jittered": {"rounds": 2}}),
        training__rounds_per_task=5,
        methods={"test_asynchronous:Witness": {}},
    )
    calendar = simulate(config).simulation.federation.availability
    trained = {(k, r): arrived for what, k, r, arrived in SEEN if what == "trains"}
    windows = {(k, r): calendar.window(k, r) for k in range(3) for r in range(1, 16)}
    assert trained == {key: list(range(12 * window, 12 * window + 12)) for key, window in windows.items()}
    assert any(len({windows[k, r] for k in range(3)}) > 1 for r in range(1, 16))


def test_what_is_finished_is_what_arrived_since_the_last_stage_began(tiny, simulate):
    """12 samples a task. Client 0 is always there; client 1 comes in task 2; client 2 takes no part in task 2 of 4."""
    SEEN.clear()
    config = tiny(
        scenario=domains(tasks=4),
        training__rounds_per_task=1,
        clients={"count": 3, "arrive": {"at": [{"round": 2, "clients": [1]}]}},
        participation={"count": 2, "sampler": "test_asynchronous:not_two_in_task_2"},
        methods={"test_asynchronous:Witness": {}},
    )
    simulate(config)
    begun = {(k, r): finished for what, k, r, finished in SEEN if what == "begins"}
    assert begun[0, 1] == []
    assert begun[2, 1] == []
    assert begun[0, 2] == list(range(12))
    assert begun[1, 2] == []  # it came with task 2; what went before never reached it
    assert begun[2, 3] == list(range(24))  # tasks 1 and 2, the second of which it never trained on
    assert begun[2, 4] == list(range(24, 36))


def not_two_in_task_2(server, count, draws):
    """Clients 0 and 1 in round 2, else the last ones."""
    return (0, 1) if server.round == 2 else server.present[-count:]
