"""Fed-A-GEM (Dai et al., TMLR 2024), its Algorithm 1 against a second writing in NumPy, in float64.

g_ref is the mean over the cohort's clients of the gradient on their memories at the aggregated model; in the next round
a step whose gradient has <g, g_ref> < 0 takes g - <g, g_ref> / <g_ref, g_ref> g_ref instead.
"""

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from replay_oracle import LIVELY, LR, SOFTMAX, gradient, recorded, second_writing, stream_of, vector

from raysim.algorithms import fed_a_gem
from raysim.algorithms.parts import replay
from raysim.engine.compatibility import check_methods
from raysim.engine.orders import Call, Order, RoundInfo, Train
from raysim.federation.availability import plan_availability
from raysim.federation.federation import build_federation
from raysim.federation.stream import Stream
from raysim.system.errors import ConfigError

WHOLE = {"sample_size": 1000}
UNEVEN = {"partition": {"kind": "dirichlet", "alpha": 0.5, "min_samples": 3, "balanced": False}, "seed": 1}
WEIGHTS = 3 * 28 * 8  # bytes: 28 float64 parameters, 3 clients


def reference_of(run):
    return run.simulation.exchange.halves["fed_a_gem"].reference


def remembered(run, client):
    """What a client's memory holds, as x and y."""
    places = run.simulation.runner.host.clients[client].memory.entries().positions
    return tuple(column[places] for column in stream_of(run.simulation.federation, client))


@pytest.fixture
def softmax(tiny):
    """A function: a config of these methods on softmax regression, with room in the memories for all samples."""
    return lambda methods, **more: tiny(**{"model": SOFTMAX, "memory": {"capacity": 100}, "methods": methods, **more})


READINGS = {
    "cohort": {"fed_a_gem": WHOLE},
    "every second round": {"fed_a_gem": {**WHOLE, "every": 2}},
    "every third round": {"fed_a_gem": {**WHOLE, "every": 3}},
    "with update": {"fed_a_gem": {**WHOLE, "reference": "with_update"}},
    "with every second update": {"fed_a_gem": {**WHOLE, "reference": "with_update", "every": 2}},
    "after a-gem": {"a_gem": WHOLE, "fed_a_gem": WHOLE},
    "after fedprox": {"fedprox": {"mu": 0.5}, "fed_a_gem": WHOLE},
}
LONGER = {"participation": {"count": 2}, "training__rounds_per_task": 4, "training__local_epochs": 2}


def test_a_run_is_the_second_writing(softmax, simulate):
    """Unequal clients, two of three at a time, two tasks of four rounds, two epochs; every reading moves the model.

    FedProx's pull is part of the gradient that is projected, and A-GEM's projection comes before the global one.
    """
    models = [simulate(softmax({}, **LONGER, **UNEVEN)).sha256]
    for reading, methods in READINGS.items():
        config = softmax(methods, **LONGER, **UNEVEN)
        federation = build_federation(config)
        run = simulate(config, federation)
        w, reference = second_writing(config, federation, [r.cohort for r in run.rounds])
        np.testing.assert_allclose(vector(run.state), w, rtol=0, atol=1e-11, err_msg=reading)
        np.testing.assert_allclose(reference_of(run), reference, rtol=0, atol=1e-11, err_msg=reading)
        models.append(run.sha256)
    assert len(set(models)) == len(models)


@pytest.mark.parametrize(
    ("knobs", "rounds"), [({}, 1), ({"reference": "with_update"}, 2), ({"every": 3}, 2), ({"every": 100}, 5)]
)
def test_until_there_is_a_reference_it_is_fedavg_bit_for_bit(tiny, simulate, knobs, rounds):
    """With dropout and BatchNorm. Before round 1 nothing is remembered, so the updates of round 2 bring the first."""
    shared = {"model": LIVELY, "scenario__tasks": 1, "training__rounds_per_task": rounds}
    ours, plain = simulate(tiny(methods={"fed_a_gem": knobs}, **shared)), simulate(tiny(**shared))
    assert ours.sha256 == plain.sha256
    assert [r.loss for r in ours.rounds] == [r.loss for r in plain.rounds]


@pytest.mark.parametrize("reference", ["cohort", "with_update"])
def test_without_the_projection_it_is_fedavg_bit_for_bit(tiny, simulate, monkeypatch, reference):
    """What it draws and computes aside moves no batch, mask, statistic or cohort of a run, whatever the reference."""
    shared = {"model": LIVELY, "participation": {"count": 2}, "training__rounds_per_task": 3}
    images = {"name": "synthetic", "classes": 4, "shape": [1, 6, 6], "train": 36, "test": 20, "augment": ["flip"]}
    plain = tiny(dataset=images, scenario__shift="rotation", **shared)
    ours = plain.model_copy(update={"methods": tiny(methods__fed_a_gem__reference=reference).methods})
    fedavg, used = simulate(plain), []
    assert simulate(ours).sha256 != fedavg.sha256
    monkeypatch.setattr(fed_a_gem, "refine", lambda gradient, r, how, when: used.append(r) or gradient)
    run = simulate(ours)
    assert run.sha256 == fedavg.sha256
    assert [r.cohort for r in run.rounds] == [r.cohort for r in fedavg.rounds]
    assert len(used) > 20


# the reference


@pytest.mark.parametrize("more", [{}, UNEVEN], ids=["equal", "unequal"])
@pytest.mark.parametrize("capacity", [5, 100])
def test_the_reference_is_the_mean_gradient_at_the_aggregated_model(softmax, simulate, more, capacity):
    """mean_k grad CE(w, M^k) at the new w; for memories of one size, the gradient of the mean loss over their union."""
    run = simulate(softmax({"fed_a_gem": WHOLE}, memory={"capacity": capacity}, **more))
    held, w = [remembered(run, k) for k in range(3)], vector(run.state)
    expected = np.mean([gradient(w, x, y) for x, y in held], 0)
    np.testing.assert_allclose(reference_of(run), expected, rtol=0, atol=1e-14)
    of_union = gradient(w, *(np.concatenate(column) for column in zip(*held, strict=True)))
    assert np.allclose(expected, of_union, rtol=0, atol=1e-14) == (len({len(y) for _, y in held}) == 1)


def test_a_smaller_sample_is_drawn_anew_and_without_replacement(softmax, simulate, monkeypatch):
    """m = 3 of 12 and 24, once per client and round, and at no other time."""
    drawn, real = [], replay.to_batch
    monkeypatch.setattr(replay, "to_batch", lambda client, e: drawn.append((client.id, e)) or real(client, e))
    simulate(softmax({"fed_a_gem": {"sample_size": 3}}))
    assert [client for client, _ in drawn] == [0, 1, 2] * 4
    found = [(client, frozenset(entries.positions.tolist())) for client, entries in drawn]
    assert {len(places) for _, places in found} == {3}
    assert len(set(found)) == 12


def test_taking_the_reference_leaves_no_trace(tiny, host_of, quiet_torch):
    """Parameters, BatchNorm's statistics and count of batches, torch's generator: all as they were."""
    host = host_of(tiny(model=LIVELY, methods={"fed_a_gem": {}}))
    shares, info = {0: 0.5, 1: 0.5}, RoundInfo(1, 0, LR)
    host.perform(Order(Train(), (0, 1), shares, 2, info), {"fed_a_gem": False})
    posted, state = host.broadcasts["model"].value, torch.random.get_rng_state()
    reply = host.perform(Order(Call("fed_a_gem", "memory_gradient"), (0, 1), shares, 2, info), None)
    assert reply.of("fed_a_gem", {"memory_gradient": "mean"}, torch.float32)["memory_gradient"].abs().max() > 0
    for name in ("parameters", "buffers", "integers"):
        assert torch.equal(getattr(host.model, name), getattr(posted, name))
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("knobs", [{}, {"reference": "with_update"}])
def test_with_batchnorm_a_memory_of_one_sample_has_no_gradient(tiny, simulate, knobs):
    shared = {"model": LIVELY, "memory": {"capacity": 1}}
    assert simulate(tiny(methods={"fed_a_gem": knobs}, **shared)).sha256 == simulate(tiny(**shared)).sha256


def test_a_client_with_an_empty_memory_counts_neither_in_the_sum_nor_in_the_number(softmax, simulate):
    """Client 2 comes in task 2, and memories are filled when a task is over: only 0 and 1 have one then."""
    late = {"clients": {"count": 3, "arrive": {"at": [{"round": 2, "clients": [2]}]}}}
    run = simulate(softmax({"fed_a_gem": WHOLE}, training__rounds_per_task=1, memory__fill="boundary", **late))
    assert [r.cohort for r in run.rounds] == [[0, 1], [0, 1, 2]]
    assert [r.bytes_up for r in run.rounds] == [2 * 224, 3 * 224 + 2 * 224]
    w = vector(run.state)
    expected = (gradient(w, *remembered(run, 0)) + gradient(w, *remembered(run, 1))) / 2
    np.testing.assert_allclose(reference_of(run), expected, rtol=0, atol=1e-14)


# the projection


@pytest.mark.parametrize("company", [{}, {"fedprox": {"mu": 0.5}}, {"der": {"beta": 0.5}}, {"er": {}}, {"a_gem": {}}])
def test_no_step_points_against_the_reference(softmax, simulate, monkeypatch, company):
    """<g_ref, w' - w> <= 0: to first order no step raises the loss whose gradient g_ref is, whatever made the step.

    It is 0 where a step was projected, to the rounding of float64.
    """
    steps = recorded(monkeypatch)
    simulate(softmax({**company, "fed_a_gem": {"sample_size": 3}}, training__rounds_per_task=4))
    along = np.array([step.reference @ (step.after - step.before) for step in steps if step.phase > 1])
    assert along.max() < 1e-14
    assert 0 < (abs(along) < 1e-14).sum() < len(along)


# what it does not need, and what it costs


def left(run):
    """All that lasts of a run: the model's bits, the reference's, and the memories with their logits."""
    entries = [client.memory.entries() for client in run.simulation.runner.host.clients.values()]
    return run.sha256, reference_of(run).tolist(), [(e.positions.tolist(), e.logits.tolist()) for e in entries]


@pytest.fixture
def small_draws(tiny):
    """A function: a config of all that is said to know no boundary, where chance says which samples are replayed."""
    methods = {"der": {"sample_size": 3}, "a_gem": {"sample_size": 3}, "fed_a_gem": {"sample_size": 3}}
    return lambda **more: tiny(model=LIVELY, methods=methods, memory={"capacity": 5}, **more)


class Unbroken(Stream):
    """Every window shows the first one's samples: at a boundary nothing new arrives."""

    def span(self, first, last):
        return super().span(0, min(1, last - first))


def in_time(config, federation, tasks, streams):
    """The federation with these tasks and streams, whose windows begin when the config says."""
    return dataclasses.replace(
        federation, tasks=tasks, streams=streams, availability=plan_availability(config, streams)
    )


def test_a_boundary_at_which_nothing_arrives_changes_nothing(small_draws, simulate):
    """Four rounds on the same samples, called 1 task, 2 or 4: no bit differs, so nothing acts on a boundary itself.

    The official code does: its memories take samples in the first round of each task.
    """
    found = []
    for tasks in (1, 2, 4):
        config = small_draws(scenario__tasks=tasks, training__rounds_per_task=4 // tasks)
        federation = build_federation(config)
        streams = [Unbroken([stream.rows[0]] * tasks) for stream in federation.streams]
        found.append(left(simulate(config, in_time(config, federation, [federation.tasks[0]] * tasks, streams))))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(("tasks", "stages"), [((1, 0), [0, 1]), ((2, 4), [0, 1]), ((0, 1), [0])])
def test_neither_the_tasks_label_nor_word_of_its_end_changes_anything(small_draws, simulate, tasks, stages):
    """The same samples in the same windows, labelled as other tasks, or as one stage, in which no boundary is told."""
    config = small_draws()
    federation = build_federation(config)
    labelled = [federation.tasks[tasks.index(label)] if label in tasks else federation.tasks[0] for label in range(5)]
    streams = [Stream(stream.rows, tasks, stages=stages) for stream in federation.streams]
    other = in_time(config, federation, labelled[: max(tasks) + 1], streams)
    assert left(simulate(config, other)) == left(simulate(config, federation))


def test_asynchronous_schedules_take_the_reference_that_comes_with_the_updates(softmax, simulate):
    """They have no cohort to ask. Where all are equally fast and the buffer takes all, their updates are rounds."""
    schedule = {"schedule": {"kind": "asynchronous", "concurrency": 3, "buffer_size": 3}}
    with pytest.raises(ConfigError, match=r"needs rounds .*, or methods\.fed_a_gem\.reference=with_update$"):
        check_methods(softmax({"fed_a_gem": {}}, **schedule))
    methods = {"fed_a_gem": {"reference": "with_update"}}
    rounds, updates = simulate(softmax(methods)), simulate(softmax(methods, **schedule))
    np.testing.assert_allclose(vector(updates.state), vector(rounds.state), rtol=0, atol=1e-12)
    np.testing.assert_allclose(reference_of(updates), reference_of(rounds), rtol=0, atol=1e-12)
    assert abs(vector(rounds.state) - vector(simulate(softmax({})).state)).max() > 1e-4


@pytest.mark.parametrize(
    ("knobs", "up", "down"),
    [
        ({}, [2, 2, 2, 2], [2, 2, 2, 2]),
        ({"every": 2}, [2, 1, 2, 1], [2, 1, 2, 1]),
        ({"every": 3}, [1, 2, 1, 1], [1, 2, 1, 1]),
        ({"every": 5}, [1, 1, 1, 2], [1, 1, 1, 2]),
        ({"every": 6}, [1, 1, 1, 1], [1, 1, 1, 1]),
        ({"reference": "with_update"}, [1, 2, 2, 2], [1, 1, 2, 2]),
        ({"reference": "with_update", "every": 2}, [1, 2, 2, 2], [1, 1, 1, 2]),
    ],
)
def test_the_bytes_of_a_round(softmax, simulate, knobs, up, down):
    """In units of FedAvg's: the weights to or from all clients. At equal rounds exactly twice, the last one's too.

    Up: the update, and in each round before one that projects the memory gradient. Down, `cohort`: the new model is
    shown at the end of such a round and need not be sent again, so the next round sends the reference in its place.
    With `every: k` these are the rounds k - 1, 2 k - 1, ...: one more unit each way in k rounds. `with_update`: from
    round 2 on, when there is a memory, a gradient comes with the update; it goes down as the reference a round later,
    where that one projects: with `every: 2` not in round 3, and not in round 2, before which nobody sent one.
    """
    run = simulate(softmax({"fed_a_gem": knobs}))
    assert [r.bytes_up for r in simulate(softmax({})).rounds] == [WEIGHTS] * 4
    assert [r.bytes_up / WEIGHTS for r in run.rounds] == up
    assert [r.bytes_down / WEIGHTS for r in run.rounds] == down


def test_a_client_that_was_not_in_the_last_round_needs_the_model_too(softmax, simulate):
    """One client per round: the reference and the new model, and the model as well if another client took part."""
    rounds = simulate(softmax({"fed_a_gem": {}}, participation={"count": 1}, training__rounds_per_task=5)).rounds
    again = [a.cohort == b.cohort for a, b in itertools.pairwise(rounds)]
    assert {True, False} == set(again)
    assert [r.bytes_up for r in rounds] == [2 * 224] * 10
    assert [r.bytes_down for r in rounds] == [2 * 224] + [2 * 224 if same else 3 * 224 for same in again]


def test_knowing_the_task_never_hurts(tiny, simulate):
    """Task-IL leaves out wrong competitors alone, so its accuracy is class-IL's or more; one task has no others."""
    for tasks in (2, 1):
        scenario = {"kind": "class_incremental", "tasks": tasks}
        run = simulate(tiny(methods={"fed_a_gem": {}}, scenario=scenario, evaluation={"every_rounds": 1}))
        found = (run.started.evaluation, *(done.evaluation for done in run.rounds))
        protocols = ("class_il", "class_il_seen", "task_il")
        class_il, seen, task_il = (np.array([each[one] for each in found]) for one in protocols)
        assert (task_il >= seen).all()
        assert (task_il >= class_il).all()
        assert (task_il > class_il).any() == (tasks > 1)
