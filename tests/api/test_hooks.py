"""A probe method (tests/probes.py, Everything) that uses every hook of both halves, and one per law of composition."""

import itertools

import numpy as np
import probes
import pytest
import torch

from raysim.engine.compatibility import check_methods
from raysim.engine.orders import Order, RoundInfo, Train
from raysim.system.errors import ConfigError

SOFTMAX = {"name": "probes:softmax"}


@pytest.fixture
def everything(tiny, simulate, log):
    """Three tasks of one round; client 0 misses the second. Clients hold 12 samples of each task, batches of 4."""
    run = simulate(tiny(scenario__tasks=3, training__rounds_per_task=1, methods={"probes:Everything": {}}))
    return run, list(log)


def rounds_of(log):
    """The log cut at every `select`, the first hook of a round."""
    cuts = [i for i, entry in enumerate(log) if entry[:2] == ("server", "select")] + [len(log)]
    return [log[a:b] for a, b in itertools.pairwise(cuts)]


def test_the_order_of_calls_in_a_round(everything):
    """samples gives 4 positions, one batch: one step. Client 1 has nothing to say to any ask."""
    step = ["batch", "task_loss", "penalty", "gradient", "observe"]
    phase = ["begin_task", "start", "train", "samples", *step, "finish"]
    wanted = [("server", "select")]
    wanted += [(k, "count") for k in (0, 1, 2)] + [("server", "prepare"), ("server", "announce")]
    wanted += [(k, hook) for k in (0, 1, 2) for hook in phase]
    wanted += [("server", "update"), (2, "count"), ("server", "conclude")]
    wanted += [(k, "count") for k in (0, 1, 2)] + [("server", "end_task")]
    assert [entry[:2] for entry in rounds_of(everything[1])[0]] == wanted


def test_the_cohort_is_what_select_says_in_ascending_order(everything):
    run, log = everything
    assert [r.cohort for r in run.rounds] == [[0, 1, 2], [1, 2], [0, 1, 2]]
    assert [e[0] for e in rounds_of(log)[1] if e[1] == "train"] == [1, 2]


def test_begin_task_sees_what_arrived_since_the_client_last_ran(everything):
    """Client 0 missed task 2: at task 3 it is told of tasks 1 and 2 at once."""
    seen = {k: [e[2:] for e in everything[1] if e[:2] == (k, "begin_task")] for k in (0, 1)}
    first, second, third = (list(range(12 * t, 12 * t + 12)) for t in range(3))
    assert seen[0] == [([], first), (first + second, third)]
    assert seen[1] == [([], first), (first, second), (second, third)]


def test_begin_task_is_called_once_per_task(tiny, simulate, log):
    simulate(tiny(training__rounds_per_task=3, methods={"probes:Everything": {}}))
    assert [e[0] for e in log if e[1] == "begin_task"] == [0, 1, 2, 0, 1, 2]


def test_mail_is_the_announcement_of_the_round(everything):
    for number, entries in enumerate(rounds_of(everything[1]), 1):
        assert {tuple(e[2]) for e in entries if e[1] == "start"} == {(number,)}


def test_batch_adds_rows_that_the_loss_counts_and_observe_numbers_steps(everything):
    assert {e[2] for e in everything[1] if e[1] == "task_loss"} == {5}
    assert {e[2] for e in everything[1] if e[1] == "observe"} == {0}


def test_terms_are_reduced_as_declared(everything):
    """Clients send k + 1. Round 1: mean (1 + 2 + 3)/3, sum 6; round 2 without client 0: 2.5 and 5."""
    said = [next(e[2] for e in entries if e[1] == "update") for entries in rounds_of(everything[1])]
    assert said[0]["level"] == pytest.approx([2.0] * 3)
    assert said[0]["number"] == pytest.approx([6.0] * 3)
    assert list(said[0]["who"].items()) == [(0, [0]), (1, [1]), (2, [2])]
    assert said[1]["level"] == pytest.approx([2.5] * 3)
    assert said[1]["number"] == pytest.approx([5.0] * 3)
    assert list(said[1]["who"].items()) == [(1, [1]), (2, [2])]
    assert "weighted" not in said[0]  # nobody sent it with the update


def test_an_ask_goes_to_whom_it_names_and_the_silent_count_nowhere(everything):
    """number: 1 + 3 from clients 0 and 2, client 1 being silent; weighted: the mean of 1 and 1 at 1/8 each."""
    one, two, _ = rounds_of(everything[1])
    replies = [{e[1]: e[2] for e in entries if e[0] == "server" and len(e) == 3} for entries in (one, two)]
    assert replies[0]["prepare"] == {"number": pytest.approx(4.0), "weighted": pytest.approx(1.0)}
    assert replies[1]["prepare"]["number"] == pytest.approx(3.0)
    assert replies[0]["conclude"]["number"] == pytest.approx(3.0)
    assert replies[1]["conclude"]["number"] == pytest.approx(3.0)  # the cohort, 1 and 2
    assert replies[1]["end_task"]["number"] == pytest.approx(4.0)  # everyone present, not only the cohort


def test_the_halfs_state_lasts_and_each_client_has_its_own(everything):
    """Client 2 is asked in prepare, conclude and end_task; 1 in the second conclude only."""
    answers = {k: [e[3] for e in everything[1] if e[:2] == (k, "count")] for k in (0, 1, 2)}
    assert answers == {0: [1, 2, 3, 4, 5], 1: [1, 2, 3, 4, 5, 6, 7], 2: list(range(1, 10))}


def test_posts_are_seen_in_their_newest_version(everything):
    for task, entries in enumerate(rounds_of(everything[1])):
        assert {tuple(e[4]) for e in entries if e[1] == "count"} == {(float(task),) * 7}


def test_a_broadcast_that_was_not_sent_is_named_with_those_that_were(everything):
    client = everything[0].simulation.runner.host.clients[0]
    assert client.from_server("anchor").tolist() == [2.0] * 7
    with pytest.raises(KeyError, match="from_server: found 'ancor', allowed: what the server has sent, model, anchor"):
        client.from_server("ancor")


def test_records_of_both_halves_reach_the_round(everything):
    """Clients record their number, the mean is over the cohort; the server records the round's."""
    assert [dict(r.records) for r in everything[0].rounds] == [
        {"probe": 1.0, "updates": 1.0},
        {"probe": 1.5, "updates": 2.0},
        {"probe": 1.0, "updates": 3.0},
    ]


def test_the_ledger_by_hand(everything):
    """The model: 6 * 5 + 5 + 5 * 4 + 4 = 59 float32, 236 bytes. The anchor, new with each task: 28. The message: 8.

    Down, round 1: prepare to 3 (236 + 28 each) = 792; mail 3 * 8 = 24; conclude shows the new model to client 2, 236;
    end_task to the two who do not hold it, 472: 1524. Round 2: anchor to clients 1 and 2, 56; message 16; conclude 472;
    end_task to client 0 the model and the anchor, 264: 808. Round 3: anchor 84; message 24; conclude 236; end_task 472:
    816.

    Up, per training client: 236 + level 12 + number 12 + who 8 = 268; per answer (number and weighted) 8, client 1
    giving none. Round 1: 16 + 804 + 8 + 16 = 844. Round 2: 8 + 536 + 8 + 16 = 568. Round 3 as round 1.
    """
    rounds = everything[0].rounds
    assert [r.bytes_down for r in rounds] == [1524, 808, 816]
    assert [r.bytes_up for r in rounds] == [844, 568, 844]


def test_a_plan_is_driven_by_hand():
    """No runner, no model: the plan asks, is told, and is over."""

    class Stub:
        task, round = 2, 3

    half = probes.Everything.Server("everything", probes.Everything())
    plan = half.conclude(Stub())
    ask = next(plan)
    assert (ask.op, ask.message, ask.to) == ("count", "conclude", [2])
    assert [(p.name, p.version, p.value.tolist()) for p in ask.broadcasts] == [("anchor", 2, [2.0] * 7)]
    probes.LOG.clear()
    with pytest.raises(StopIteration):
        plan.send({"number": torch.tensor(5.0)})
    assert probes.LOG.pop() == ("server", "conclude", {"number": 5.0})


# laws of composition


def phase_of(host):
    client = host.clients[0]
    host.model.load(host.broadcasts["model"].value)
    client.begin_phase(RoundInfo(1, 0, 0.5), 1.0)
    return client.local_training().parameters.numpy()


def methods(*names):
    return {f"probes:{name}": {} for name in names}


@pytest.mark.parametrize(("names", "gradient"), [(("Zero", "Triple"), 4.0), (("Triple", "Zero"), 1.0)])
def test_gradients_are_chained_in_the_listed_order(tiny, host_of, quiet_torch, log, names, gradient):
    """Zero: g -> 1. Triple: g -> 3 g + 1. Zero, Triple: 4; Triple, Zero: 1. Three steps at lr 0.5: -1.5 of it."""
    found = phase_of(host_of(tiny(model=SOFTMAX, methods=methods(*names))))
    np.testing.assert_allclose(found, -1.5 * gradient, rtol=1e-14)
    assert [entry[0] for entry in log] == [*names] * 3


@pytest.mark.parametrize(("names", "sent"), [(("Zero", "Triple"), 4.0), (("Triple", "Zero"), 1.0)])
def test_what_is_sent_is_chained_in_the_listed_order(tiny, host_of, quiet_torch, log, names, sent):
    host = host_of(tiny(model=SOFTMAX, methods=methods(*names)))
    reply = host.perform(Order(Train(), (0, 1), {0: 0.5, 1: 0.5}, 2, RoundInfo(1, 0, 0.5)), {})
    assert reply.delta(torch.float64).parameters.tolist() == [sent] * 28
    assert [entry[0] for entry in log if entry[1] == "finish"] == [*names] * 2


@pytest.mark.parametrize(("names", "added"), [(("Zero", "Triple"), 4.0), (("Triple", "Zero"), 1.0)])
def test_updates_are_chained_in_the_listed_order(tiny, simulate, log, names, added):
    config = tiny(model=SOFTMAX, methods=methods(*names), scenario__tasks=1, training__rounds_per_task=1)
    from raysim.models.building import build_model

    start = build_model(config, (6,), 4).state_dict()
    state = simulate(config).state
    assert all(torch.equal(value, start[name] + added) for name, value in state.items())
    assert [entry[0] for entry in log if entry[1] == "update"] == [*names]


def test_batches_are_chained_in_the_listed_order(tiny, host_of, quiet_torch, log):
    """The second method finds the row that the first one added."""
    phase_of(host_of(tiny(model=SOFTMAX, methods=methods("Repeat", "RepeatAgain"))))
    assert log == [("Repeat", "batch", 4), ("RepeatAgain", "batch", 5)] * 3


def test_penalties_are_summed(tiny, host_of, quiet_torch):
    """One full batch at lr 0.5: penalties 1 sum(W) and 2 sum(W) add -0.5 * 3 to W's change and nothing to b's."""
    more = {"model": SOFTMAX, "training__batch_size": 100}
    plain = phase_of(host_of(tiny(**more)))
    wanted = np.concatenate([np.full(24, -1.5), np.zeros(4)])
    for names in (("PullOne", "PullTwo"), ("PullTwo", "PullOne")):
        found = phase_of(host_of(tiny(methods=methods(*names), **more)))
        np.testing.assert_allclose(found - plain, wanted, rtol=0, atol=1e-14)


def test_the_loss_that_is_reported_is_without_penalties(tiny, simulate):
    more = {"model": SOFTMAX, "training__batch_size": 100}
    plain, pulled = (simulate(tiny(methods=m, **more)).rounds[0].loss for m in ({}, methods("PullTwo")))
    assert plain == pytest.approx(pulled, rel=1e-14)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (
            ("OwnSamples", "Everything"),
            "OwnSamples and Everything each override the hook samples, allowed: one",
        ),
        (("OwnLoss", "Everything"), "OwnLoss and Everything each override the hook task_loss"),
        (("OwnTrain", "Everything"), "OwnTrain and Everything each override the hook train"),
        (("Everything", "OwnSelect"), "Everything and OwnSelect each override the hook select"),
        (("OwnTrain", "OwnSamples"), r"OwnSamples changes the local loop \(samples\), which OwnTrain replaces"),
        (("OwnTrain", "Repeat"), r"Repeat changes the local loop \(batch\), which OwnTrain replaces"),
        (("OwnLoss", "OwnTrain"), r"OwnLoss changes the local loop \(task_loss\), which OwnTrain replaces"),
        (("PullOne", "OwnTrain"), r"PullOne changes the local loop \(penalty\), which OwnTrain replaces; leave one"),
        (("OwnTrain", "Zero"), r"Zero changes the local loop \(gradient\), which OwnTrain replaces"),
        (("OwnTrain", "Observer"), r"Observer changes the local loop \(observe\), which OwnTrain replaces"),
    ],
)
def test_what_is_exclusive_is_refused_in_one_line(tiny, names, words):
    with pytest.raises(ConfigError, match=words) as found:
        check_methods(tiny(methods=methods(*names)))
    assert "\n" not in str(found.value)


def test_what_can_stand_together_is_accepted(tiny):
    found = check_methods(tiny(methods=methods("OwnTrain", "OwnSelect", "LateToSpeak")))
    assert list(found) == ["OwnTrain", "OwnSelect", "LateToSpeak"]
    check_methods(tiny(methods=methods("OwnSamples", "OwnLoss", "Repeat", "PullOne", "Zero", "Observer")))


@pytest.mark.parametrize(
    "optimizer",
    [
        {"momentum": 0.5},
        {"momentum": 0.5, "nesterov": True},
        {"weight_decay": 0.1},
        {"name": "adam"},
        {"name": "adamw"},
    ],
    ids=["momentum", "nesterov", "decay", "adam", "adamw"],
)
def test_plain_sgd_is_a_need(tiny, optimizer):
    check_methods(tiny(methods=methods("Plain"), training__optimizer={"lr": 0.1}))
    with pytest.raises(ConfigError, match=r"methods\.Plain: needs plain SGD; set training\.optimizer"):
        check_methods(tiny(methods=methods("Plain"), training__optimizer=optimizer))


@pytest.mark.parametrize("wrong", ["probes:own", "probes:Tuple"])
def test_what_is_no_method_is_refused(tiny, wrong):
    with pytest.raises(ConfigError):
        check_methods(tiny(methods={wrong: {}}))


def test_a_hook_that_owns_the_loop_and_calls_the_default_changes_nothing(tiny, simulate):
    plain = simulate(tiny())
    for name in ("OwnTrain", "OwnSamples", "OwnLoss", "OwnSelect"):
        assert simulate(tiny(methods=methods(name))).sha256 == plain.sha256


def test_a_term_by_client_is_what_it_was_when_it_was_sent(tiny, simulate, log):
    """The probe sends the host's own parameter vector, which the next client's phase overwrites."""
    simulate(tiny(methods=methods("LateToSpeak"), scenario__tasks=1, training__rounds_per_task=1))
    _, weights = log[0]
    assert list(weights) == [0, 1, 2]
    assert not torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[1], weights[2])
