"""Clients' own models, tested on their own data: by hand, and a run's matrices against NumPy's models."""

import dataclasses
import io
import json

import numpy as np
import pytest
import torch
from costs import cost_of
from rich.console import Console
from softmax_oracle import Softmax, batch_order, local_phase
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from test_spread import RIGHT, ZERO, federation_of, rows

import raysim
from raysim.api import ClientHalf, Method, Request, ServerHalf, Weights
from raysim.config import ConfigError
from raysim.engine.host import ClientHost
from raysim.engine.host_evaluation import HostEvaluation
from raysim.estimate.memory import estimate_memory
from raysim.evaluation.scoring import by_protocol, client_accuracies, mean_client_accuracies
from raysim.federation.federation import build_federation
from raysim.federation.stream import Stream
from raysim.launch.display import show_result
from raysim.models.building import check_model
from raysim.system.errors import Diverged

SOFTMAX = {"name": "probes:softmax"}
CLASSES = {"kind": "class_incremental", "tasks": 2}
LOCAL = {"evaluation": {"model": "local", "every_rounds": 1}}
SKEWED = {"partition": {"kind": "dirichlet", "alpha": 0.5, "min_samples": 3, "balanced": False}, "seed": 2}


def test_one_model_on_every_clients_own_data():
    """Task 1: client 0 has two of class 0 and one of 1, (2 + 1/2)/3 = 5/6; client 1 one of class 1, 1/2.
    Task 2: of class 2 a third is right, and class 3 has no test samples: 1/3 for clients 1 and 2.
    """
    federation = federation_of(
        Stream([rows(0, 1, 2), ZERO]),
        Stream([rows(2), rows(3)]),
        Stream([ZERO, rows(3, 4, 5)]),
        Stream([ZERO, rows(5)]),
    )
    means, spreads = mean_client_accuracies(RIGHT, federation)
    assert means == {"class_il": pytest.approx([(5 / 6 + 1 / 2) / 2, 1 / 3])}
    assert spreads["class_il"]["worst"] == pytest.approx([1 / 2, 1 / 3])
    assert spreads["class_il"]["std"] == pytest.approx([1 / 6, 0])


def test_every_client_has_a_model_of_its_own():
    """Client 0's model has class 0 right and half of class 1, client 1's the other way round, all of class 2 wrong."""
    federation = federation_of(Stream([rows(0, 1, 2), ZERO]), Stream([rows(0, 2), rows(3)]))
    own = {"class_il": np.array([[1, 2, 0, 0], [0, 0, 0, 0]])}
    scores = by_protocol({1: own, 0: RIGHT})
    assert scores["class_il"].shape == (2, 2, 4)
    means, spreads = mean_client_accuracies(scores, federation)
    assert means == {"class_il": pytest.approx([(5 / 6 + 3 / 4) / 2, 0])}  # (1/2 + 1)/2 for client 1
    assert spreads["class_il"]["worst"] == pytest.approx([3 / 4, 0])
    assert client_accuracies(scores, federation) == {"class_il": pytest.approx([5 / 6, (1 / 2 + 1 + 0) / 3])}


def fedavg_in_numpy(config, federation, cohorts):
    """Yield after every round the server's model, and by client its own after its last phase."""
    data, training, own, phases = federation.dataset.train, config.training, {}, {}
    stages = federation.tasks
    w = None
    for number, cohort in enumerate(cohorts):
        task, moves = number // training.rounds_per_task, []
        for k in cohort:
            phases[k] = phases.get(k, 0) + 1
            held = federation.streams[k].rows[task]
            x = data.x[held].astype(np.float64)
            x = x if stages[task].pixels is None else x[:, stages[task].pixels]
            w = initial(config, federation) if w is None else w
            order = batch_order(config.seed, k, phases[k], len(held), 1, training.batch_size)
            moved, _ = local_phase(w, x, data.y[held], order, training.optimizer.lr, federation.classes)
            own[k] = w + moved
            moves.append(moved)
        w = w + np.mean(moves, axis=0)
        yield w, dict(own)


def initial(config, federation):
    from raysim.models.building import build_model

    module = build_model(config, federation.shape, federation.classes)
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()]).numpy()


def on_own_data(federation, models, task):
    """Each client's accuracy on a task, the test samples weighted one by one as its training samples are by class."""
    test, found = federation.dataset.test, []
    chosen = federation.tasks[task].test
    for k, vector in enumerate(models):
        has = federation.dataset.train.y[federation.streams[k].rows[task]]
        share = {c: np.mean(has == c) for c in set(has.tolist()) & set(test.y[chosen].tolist())}
        if not share:
            continue
        x, model, weighted = test.x[chosen].astype(np.float64), Softmax.of(vector, federation.classes, 6), 0.0
        for c, part in share.items():
            mine = test.y[chosen] == c
            weighted += part * model.right(x[mine], test.y[chosen][mine]) / mine.sum()
        found.append(weighted / sum(share.values()))
    return np.array(found)


@pytest.mark.parametrize("model", ["local", "global_per_client"])
def test_a_runs_matrices_are_those_of_numpys_models(tiny, simulate, model):
    """One client of three in a round: clients that never trained have the server's model, others their last one."""
    config = tiny(
        model=SOFTMAX,
        scenario=CLASSES,
        participation={"count": 1},
        evaluation={"model": model, "every_rounds": 1},
        **SKEWED,
    )
    federation = build_federation(config)
    run = simulate(config, federation)
    cohorts = [done.cohort for done in run.rounds]
    assert len({k for cohort in cohorts for k in cohort}) < 3 or cohorts[0] != cohorts[-1]
    for done, (w, own) in zip(run.rounds, fedavg_in_numpy(config, federation, cohorts), strict=True):
        models = [own.get(k, w) if model == "local" else w for k in range(3)]
        for task in (0, 1):
            found = on_own_data(federation, models, task)
            spread = done.spread["class_il"]
            assert done.evaluation["class_il"][task] == pytest.approx(found.mean())
            assert spread["worst"][task] == pytest.approx(found.min())
            assert spread["std"][task] == pytest.approx(found.std())
    last = run.events[-1].per_client["class_il"]["accuracy"]
    whole = [
        sum(len(federation.streams[k].rows[t]) * on_own_data(federation, [v] * 3, t)[k] for t in (0, 1))
        / len(federation.streams[k])
        for k, v in enumerate(models)
    ]
    assert last == pytest.approx(whole)


def test_what_is_tested_moves_nothing_and_sends_nothing(tiny, simulate):
    runs = {
        model: simulate(tiny(evaluation={"model": model}, **SKEWED))
        for model in ("global", "local", "global_per_client")
    }
    for run in runs.values():
        assert run.sha256 == runs["global"].sha256
        assert [(r.bytes_up, r.bytes_down, r.loss) for r in run.rounds] == [
            (r.bytes_up, r.bytes_down, r.loss) for r in runs["global"].rounds
        ]
    assert runs["global"].rounds[-1].spread is None
    assert not any(client.personalized for client in runs["global"].simulation.runner.host.clients.values())
    assert runs["local"].rounds[-1].evaluation != runs["global_per_client"].rounds[-1].evaluation


@pytest.mark.parametrize("places", [[(2, 0, 1)], [(0,), (1,), (2,)], [(1,), (2, 0)]])
def test_however_clients_are_packed_the_figures_are_the_same(tiny, simulate, places):
    config = tiny(methods={"fedper": {}, "ditto": {}}, participation={"count": 2}, **LOCAL, **SKEWED)
    plain, packed = simulate(config), simulate(config, None, places)
    assert [(r.evaluation, r.spread) for r in packed.rounds] == [(r.evaluation, r.spread) for r in plain.rounds]
    assert packed.events[-1].per_client == plain.events[-1].per_client


def test_a_model_that_has_not_changed_is_not_tested_again(tiny, simulate, monkeypatch):
    """One of three clients a round for two rounds: the server's model, then each round the cohort's client, and the
    server's again while some client has never trained.
    """
    tested, score = [], HostEvaluation._test_weights
    monkeypatch.setattr(HostEvaluation, "_test_weights", lambda *given: tested.append(1) or score(*given))
    config = tiny(scenario__tasks=1, training__rounds_per_task=2, participation={"count": 1}, **LOCAL)
    federation = build_federation(config)
    run = simulate(config, federation)
    assert len({k for done in run.rounds for k in done.cohort}) < 3
    assert len(tested) == 1 + 2 + 2
    assert cost_of(config, federation).evaluations == 5


def test_a_new_task_makes_new_classes_seen_so_that_unchanged_models_are_tested_again(tiny, simulate, monkeypatch):
    """One of three clients in each of four rounds, two tasks. The scores are those that nothing keeps from before."""
    tested, score = [], HostEvaluation._test_weights
    monkeypatch.setattr(HostEvaluation, "_test_weights", lambda *given: tested.append(1) or score(*given))
    local = {"model": "local", "every_rounds": 1}
    config = tiny(scenario=CLASSES, training__rounds_per_task=2, participation={"count": 1}, evaluation=local, **SKEWED)
    federation = build_federation(config)
    kept = simulate(config, federation)
    assert len(tested) == cost_of(config, federation).evaluations
    counted, forgets = len(tested), ClientHost.evaluate_clients

    def forget(host, chunks, broadcasts=()):
        host._evaluation._scored = {}
        return forgets(host, chunks, broadcasts)

    monkeypatch.setattr(ClientHost, "evaluate_clients", forget)
    anew = simulate(config, federation)
    assert len(tested) > 2 * counted
    assert [done.evaluation for done in anew.rounds] == [done.evaluation for done in kept.rounds]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Named(Method):
    """Every client's own model is its number, whatever it trained; clients begin each phase at a head of zeros."""

    broken: bool = False

    class Client(ClientHalf):
        def receive(self, client):
            client.model.parameters[-4:] = 0

        def personalize(self, client, weights):
            assert torch.equal(weights.parameters, client.model.parameters)
            assert torch.equal(client.received[-4:], torch.zeros(4))
            assert torch.equal(client.received[:-4], client.from_server("model").parameters[:-4])
            value = float("nan") if self.method.broken and client.id == 1 and client.round == 2 else client.id
            return Weights(torch.full_like(weights.parameters, value), weights.buffers, weights.integers)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sharing(Method):
    """The personalized model is a tensor of the half, which an exchange changes later."""

    class Client(ClientHalf):
        kept: torch.Tensor | None = None

        def finish(self, client, delta):
            self.kept = client.model.parameters.clone()
            return delta, {}

        def personalize(self, client, weights):
            return Weights(self.kept, weights.buffers, weights.integers)

        def shrink(self, client, message):
            if self.kept is not None:
                self.kept.mul_(-1.0)

    class Server(ServerHalf):
        def conclude(self, server):
            yield Request("shrink")


def test_a_personalized_model_is_that_of_the_phase(tiny, simulate, monkeypatch):
    """It has the accuracies of local training, though the half changes its tensor after the phase."""
    config = tiny(methods={"test_own_models:Sharing": {}}, **LOCAL)
    shared = [done.evaluation for done in simulate(config).rounds]
    monkeypatch.setattr(Sharing.Client, "shrink", lambda self, client, message: None)
    assert shared == [done.evaluation for done in simulate(config).rounds]


def test_a_method_says_what_is_received_and_what_is_its_own(tiny, simulate):
    run = simulate(tiny(methods={"test_own_models:Named": {}}, **LOCAL))
    for number, client in run.simulation.runner.host.clients.items():
        assert (client.personalized[0] == number).all()
    with pytest.raises(Diverged, match=r"client 1 diverged in round 2 \(Named\), in its personalized model: found nan"):
        simulate(tiny(methods={"test_own_models:Named": {"broken": True}}, **LOCAL))


def test_the_summary_has_matrices_of_the_spread(tiny, tmp_path):
    config = tiny(scenario=CLASSES, logging__tensorboard=False, **SKEWED)
    found = raysim.run(config, {"evaluation.model": "local"}, out=tmp_path / "run", local=True)
    said = json.loads((tmp_path / "run/summary.json").read_text())
    assert said["tested"] == "local"
    for protocol in ("class_il", "task_il"):
        values = said["evaluation"][protocol]
        assert {"accuracy", "worst", "std", "average_accuracy", "forgetting"} <= set(values)
        worst, mean = np.array(values["worst"]), np.array(values["accuracy"])
        assert worst.shape == mean.shape == np.array(values["std"]).shape == (2, 2)
        assert (worst <= mean).all()
        assert said["per_client"][protocol]["worst"] == min(said["per_client"][protocol]["accuracy"])
    lines = [json.loads(line) for line in (tmp_path / "run/rounds.jsonl").read_text().splitlines()]
    assert [bool(line.get("spread")) for line in lines] == [False, True, False, True]
    assert raysim.load(tmp_path / "run") == found
    with pytest.raises(
        ConfigError, match="found local, but a run's directory has the server's model alone, allowed: gl"
    ):
        raysim.evaluate(tmp_path / "run")
    again = raysim.evaluate(tmp_path / "run", {"evaluation.model": "global_per_client"})
    as_in = raysim.run(config, {"evaluation.model": "global_per_client"}, out=tmp_path / "global", local=True)
    for protocol in again.evaluation:
        values = as_in.evaluation[protocol]
        assert again.evaluation[protocol]["accuracy"] == values["accuracy"][-1]
        assert again.evaluation[protocol]["std"] == values["std"][-1]
    assert again.per_client == as_in.per_client


def endless(client, start):
    """A custom stream, which no test reads."""
    yield np.zeros(6, np.float32), 0


def test_custom_streams_are_refused(tiny):
    windows = {"window": 4, "windows": 3, "rounds_per_window": 2, "stream": "test_own_models:endless"}
    scenario = {"kind": "class_incremental", "tasks": 1, "boundaries": {"asynchronous": windows}}
    with pytest.raises(ConfigError, match=r"evaluation\.model: found 'local', allowed: global with a custom stream"):
        tiny(scenario=scenario, training={"batch_size": 4}, evaluation={"model": "local"})


def test_a_task_that_nobody_can_be_tested_on_is_refused(tiny, monkeypatch):
    """In task 2, which is tested on two classes, clients get those of task 1 again."""
    from raysim.federation import federation as module

    make_streams = module.make_streams
    monkeypatch.setattr(
        module, "make_streams", lambda *given: [Stream([s.rows[0], s.rows[0]]) for s in make_streams(*given)]
    )
    with pytest.raises(
        ConfigError, match=r"evaluation\.model: found local, but no client has samples of the classes that"
    ):
        build_federation(tiny(scenario=CLASSES, evaluation={"model": "local"}))


def test_what_own_models_take_is_foreseen(tiny):
    """The model's 59 float32 once more for every client, and Ditto's v, with no buffers: 236 bytes each."""

    def clients(**keys):
        config = tiny(**keys)
        federation = build_federation(config)
        model = check_model(config, federation.shape, federation.classes)
        return np.array(estimate_memory(config, federation, model).clients)

    plain = clients()
    assert (clients(evaluation={"model": "local"}) - plain).tolist() == [236] * 3
    assert (clients(methods={"ditto": {}}) - plain).tolist() == [236] * 3
    assert (clients(methods={"fedper": {}}) - plain).tolist() == [4 * (5 * 4 + 4)] * 3
    assert (clients(evaluation={"model": "global_per_client"}) == plain).all()


def test_what_is_shown_says_whose_models_they_are(tiny, tmp_path):
    run = raysim.run(tiny(evaluation={"model": "local"}, logging__tensorboard=True), out=tmp_path / "run", local=True)
    shown = EventAccumulator(str(run.directory))
    shown.Reload()
    for figure in ("worst", "std"):
        values = [scalar.value for scalar in shown.Scalars(f"domain_il/{figure}_task_2")]
        assert values == pytest.approx([row[1] for row in run.evaluation["domain_il"][figure]])
    assert {"domain_il/task_1", "domain_il/worst_so_far", "domain_il/std_so_far"} <= {*shown.Tags()["scalars"]}
    console = Console(file=io.StringIO(), width=200)
    show_result(run, console, tiny(), local=True)
    lines = console.file.getvalue().splitlines()
    assert lines[0].startswith("accuracy in %, domain-IL of clients' own models: row t is after task t")
    first, second = (100 * value for value in run.evaluation["domain_il"]["worst"][-1])
    assert f"worst client, by task, at the end: {first:.1f}, {second:.1f}" in lines
    assert any(line.startswith("deviation over clients, by task, at the end: ") for line in lines)
