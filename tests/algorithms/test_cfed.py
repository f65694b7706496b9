"""CFeD (Ma et al., IJCAI 2022): who reviews, on what, and with which loss; in float64."""

import numpy as np
import pytest
import torch
from costs import cost_of
from softmax_oracle import Softmax

from raysim.algorithms.cfed import CFeD
from raysim.cli import main
from raysim.engine.orders import Order, RoundInfo, Train
from raysim.federation.federation import build_federation
from raysim.system.seeding import generator

SMALL_RUN = {
    "dataset__unlabelled": {"name": "synthetic", "classes": 4, "shape": [6], "train": 12, "test": 4},
    "unsure_steps": True,
}

SOFTMAX = {"name": "probes:softmax"}
SECOND = {"name": "synthetic", "classes": 7, "shape": [6], "train": 22, "test": 7, "seed": 9}


@pytest.fixture
def cfed(tiny):
    """A function: a config of CFeD with these knobs; 22 samples without labels for 3 clients: 8, 7 and 7."""

    def make(knobs=None, **overrides):
        methods = {"cfed": knobs or {}} if knobs is not False else {}
        return tiny(**{"dataset__unlabelled": SECOND, "methods": methods, "model": SOFTMAX, **overrides})

    return make


def test_every_client_has_an_equal_part_of_the_second_set(cfed, host_of, quiet_torch):
    """All 22 rows once; shown as they are, and not by the pixels of a task; other parts with another seed."""
    host, federation = host_of(cfed()), build_federation(cfed())
    parts = [stream.rows[0].tolist() for stream in federation.unlabelled.streams]
    assert sorted(map(len, parts)) == [7, 7, 8]
    assert sorted(row for part in parts for row in part) == list(range(22))
    positions = host.clients[1].unlabelled
    assert positions.tolist() == list(range(len(parts[1])))
    shown = host.clients[1].unlabelled_samples(positions)
    np.testing.assert_array_equal(shown, federation.unlabelled.split.x[parts[1]].astype(np.float64))
    again = build_federation(cfed(seed=5))
    assert [stream.rows[0].tolist() for stream in again.unlabelled.streams] != parts


def test_review_share_0_and_task_1_are_fedavg_bit_for_bit(cfed, simulate):
    for tasks, knobs, same in ((2, {"review_share": 0.0}, True), (1, {}, True), (2, {}, False)):
        runs = [simulate(cfed(k, scenario__tasks=tasks)).sha256 for k in (False, knobs)]
        assert (runs[0] == runs[1]) == same


def test_a_cohort_of_10_is_6_and_4():
    """At least one of each where there are two clients; a client alone learns, but for review_share 1."""
    method = CFeD()
    assert [method.learners(m) for m in (10, 5, 3, 2, 1)] == [6, 3, 2, 1, 1]
    for clients, learners in ((2, [2, 1, 1, 0]), (1, [1, 1, 1, 0])):
        assert [CFeD(review_share=share).learners(clients) for share in (0.0, 0.01, 0.99, 1.0)] == learners


def test_who_reviews_is_drawn_in_every_round_from_the_cohort(cfed, simulate, monkeypatch):
    """Five of ten clients in each round: nobody in task 1, then two of the five, not always the same places."""
    heard, real = [], CFeD.Server.announce

    def spy(half, server):
        message, broadcasts = real(half, server)
        heard.append((server.task, server.cohort, message))
        return message, broadcasts

    monkeypatch.setattr(CFeD.Server, "announce", spy)
    more = {"dataset__train": 40, "clients__count": 10, "participation": {"count": 5}, "training__rounds_per_task": 6}
    simulate(cfed(**more))
    assert [message for task, _, message in heard if not task] == [()] * 6
    later = [(cohort, message) for task, cohort, message in heard if task]
    assert all(len(message) == 2 and set(message) < set(cohort) for cohort, message in later)
    assert len({tuple(cohort.index(k) for k in message) for cohort, message in later}) > 2


def test_with_reviewers_alone_the_model_rests_in_a_tasks_first_round(cfed, simulate):
    """Student == teacher: gradient 0 in every step, exactly 0 in float64 up to the softmax's rounding."""
    run = simulate(cfed({"review_share": 1.0}, training__rounds_per_task=1))
    one = simulate(cfed(False, scenario__tasks=1, training__rounds_per_task=1))
    np.testing.assert_allclose(run.simulation.server.parameters, one.simulation.server.parameters, rtol=0, atol=1e-15)


def review(host_of, config, teacher, lr=0.1):
    """Client 0's delta in a review in task 2, sent the initial model; the teacher moves it by `teacher`."""
    host = host_of(config)
    sent = host.broadcasts["model"]
    host.receive([type(sent)("cfed", 1, (sent.value.parameters + teacher, sent.value.buffers))])
    reply = host.perform(Order(Train(), (0,), {0: 1.0}, 1, RoundInfo(3, 1, lr)), {"cfed": (0,)})
    return host, sent.value.parameters.numpy(), reply.delta(torch.float64).parameters.numpy(), reply


def test_a_review_is_gradient_descent_on_the_distillation_alone(cfed, host_of, quiet_torch):
    """Two epochs over 8 samples in batches of 4, in NumPy, in the order of the documented stream; no label is read."""
    config = cfed({"weight": 0.7, "temperature": 3.0}, training__local_epochs=2)
    pull = torch.linspace(-2, 3, 28, dtype=torch.float64)
    _, start, delta, reply = review(host_of, config, pull)
    assert reply.steps == 4
    second = build_federation(config).unlabelled
    part, x = second.streams[0].rows[0], second.split.x.astype(np.float64)
    teacher, theta, stream = Softmax.of(start + pull.numpy(), 4, 6), start, generator(0, 0, 1, 0, "cfed")
    for _ in range(2):
        order = part[stream.permutation(8)]
        for batch in (order[:4], order[4:]):
            error = soft(Softmax.of(theta, 4, 6), x[batch], 3.0) - soft(teacher, x[batch], 3.0)
            error *= 0.7 / 3.0 / 4
            theta = theta - 0.1 * np.concatenate([(error.T @ x[batch]).reshape(-1), error.sum(0)])
    np.testing.assert_allclose(delta, theta - start, rtol=0, atol=1e-13)
    assert np.abs(delta).max() > 1e-3


def soft(model, x, temperature):
    powers = np.exp((x @ model.weight.T + model.bias) / temperature)
    return powers / powers.sum(1, keepdims=True)


def test_under_sgd_a_weight_is_a_rate(cfed, host_of, quiet_torch):
    """Weight times 4 and lr / 4 give the same reviewer's delta."""
    pull = torch.linspace(-2, 3, 28, dtype=torch.float64)
    deltas = [review(host_of, cfed({"weight": w}), pull, lr)[2] for w, lr in ((0.1, 0.4), (0.4, 0.1))]
    np.testing.assert_allclose(*deltas, rtol=1e-12)


def test_all_that_come_back_count_alike_whatever_the_second_set_holds(cfed, simulate):
    """By samples, a reviewer counts by its data of the stream: all have 12, so uniform weights are the same."""
    runs = [simulate(cfed(aggregation__weights=weights)).simulation.server for weights in ("uniform", "samples")]
    np.testing.assert_allclose(runs[0].parameters, runs[1].parameters, rtol=0, atol=1e-12)


@pytest.mark.parametrize("count", [1, 3])
def test_the_first_model_is_sent_once_per_task_and_client(cfed, simulate, count):
    """P = 28 of 8 bytes; whoever missed the boundary is sent it when it comes. Bytes are known before."""
    more = {"scenario__tasks": 3, "training__rounds_per_task": 3, "participation": {"count": count}}
    run = simulate(cfed(model=SOFTMAX, **more))
    served = set()
    for done in run.rounds:
        (task,) = done.tasks
        new = {(task, k) for k in done.cohort if task > 1} - served
        served |= new
        assert (done.bytes_up, done.bytes_down) == (224 * count, 224 * (count + len(new)))
    of = run.simulation
    before, counted = cost_of(of.config, of.federation), of.exchange
    assert (sum(before.up.values()), sum(before.down.values())) == (counted.traffic.up, counted.traffic.down)


def test_steps_are_those_of_learners_and_so_about(cfed, simulate):
    """Batches of 7: a reviewer's 8 samples are two steps and 7 are one, a learner's 12 are two."""
    config = cfed(training__batch_size=7, training__rounds_per_task=5)
    cost, steps = cost_of(config), simulate(config).simulation.exchange.steps
    assert cost.unsure_steps
    assert steps < cost.steps == 5 * 2 * 3 * 2


def test_it_goes_with_fed_a_gem_and_replayed_rows(cfed, simulate):
    for methods in ({"cfed": {}, "fed_a_gem": {}}, {"er": {}, "cfed": {}}, {"er": {"sample_size": 3}, "cfed": {}}):
        run = simulate(cfed(methods=methods, memory={"capacity": 6}))
        assert run.simulation.server.parameters.isfinite().all()


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            [],
            "methods.cfed: learns from samples without labels; set dataset.unlabelled={name: ...} or",
        ),
        (
            ["dataset.unlabelled={name: synthetic, shape: [3, 8, 8], classes: 10, train: 50, test: 10}"],
            "dataset.unlabelled: found samples of shape (3, 8, 8), allowed: (1, 8, 8), as in dataset",
        ),
        (
            ["dataset.unlabelled={name: synthetic, shape: [1, 8, 8], classes: 2, train: 2, test: 2}"],
            "dataset.unlabelled: found 2 samples, allowed: at least one for each of the",
        ),
        (["dataset.unlabelled={name: npz, path: nowhere.npz}"], "dataset.unlabelled: "),
        (["dataset.unlabelled={name: digitz}"], "dataset.unlabelled.name: "),
        (
            ["dataset.unlabelled={name: digits}", "schedule={kind: asynchronous, concurrency: 2, buffer_size: 1}"],
            "methods.cfed: needs rounds that wait for their clients",
        ),
        (
            ["dataset.unlabelled={name: digits}", "scenario.boundaries={jittered: {rounds: 1}}"],
            "methods.cfed: needs boundaries that all clients have at the same time",
        ),
    ],
)
def test_what_does_not_suit_it_is_refused_in_one_line(tmp_path, capsys, overrides, words):
    argv = ["run", "configs/quickstart.yaml", "methods={cfed: {}}", *overrides, "--local"]
    assert main([*argv, "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert words in said
    assert not (tmp_path / "out").exists()
