"""A head for each domain (training.logits=task): which one is trained, tested, sent and refused.

What such a run computes is written a second time in tests/reports/test_published_systems.py.
"""

import pytest
import torch
from costs import cost_of
from torch import nn

import raysim
from raysim.evaluation.finished_run import evaluate
from raysim.federation.federation import build_federation
from raysim.models.building import check_model
from raysim.system.errors import ConfigError

HEADS = {"training__logits": "task"}
LIVELY = {"name": "mlp", "hidden": [5], "dropout": 0.4, "batch_norm": True}


def test_with_one_task_it_is_fedavg_bit_for_bit(tiny, simulate):
    one = {"scenario__tasks": 1, "model": LIVELY}
    assert simulate(tiny(**one, **HEADS)).sha256 == simulate(tiny(**one)).sha256


def test_another_tasks_head_does_not_move(tiny, simulate):
    """Fixed trains in task 1 alone: the second head ends as it began, the first and the trunk do not."""
    began = [*simulate(tiny(**HEADS, training__optimizer__lr=1e-30)).state.values()]
    ended = [*simulate(tiny(**HEADS, methods={"fixed": {}})).state.values()]
    assert [torch.equal(*pair) for pair in zip(began, ended, strict=True)] == [False] * 4 + [True] * 2


def test_the_first_heads_initial_weights_are_those_of_the_one_head(tiny):
    models = []
    for keys in ({}, HEADS):
        config = tiny(**keys)
        federation = build_federation(config)
        models.append(check_model(config, federation.shape, federation.classes))
    one, own = models
    assert one.head == ("3.weight", "3.bias")
    assert own.head == ("3.heads.0.weight", "3.heads.0.bias", "3.heads.1.weight", "3.heads.1.bias")
    assert torch.equal(own.parameters[: len(one.parameters)], one.parameters)
    assert len(own.parameters) == len(one.parameters) + 4 * 5 + 4


@pytest.mark.parametrize(
    "more",
    [
        {"scenario__order": "per_client"},
        {"scenario__boundaries": {"jittered": {"rounds": 1}}, "training__rounds_per_task": 3},
        {"methods": {"ewc": {}, "fedprox": {}, "special": {}}, "participation": {"count": 2}},
    ],
    ids=["own orders", "jittered", "methods"],
)
def test_however_clients_are_packed_the_bits_are_the_same(tiny, simulate, more):
    """Also where clients of one host are at different tasks."""
    config = tiny(**HEADS, model=LIVELY, **more)
    runs = [simulate(config, None, places) for places in (None, [(2, 0, 1)], [(1,), (2, 0)])]
    assert len({run.sha256 for run in runs}) == 1
    assert len({str(run.rounds[-1].evaluation) for run in runs}) == 1


def test_a_client_trains_the_head_of_its_own_task(tiny, simulate):
    """Client 0 meets the tasks the other way round, and is alone in round 1: its first head is that of its own task."""
    config = tiny(**HEADS, scenario__order="per_client", training__rounds_per_task=1, seed=0)
    federation = build_federation(config)
    orders = [stream.tasks[0] for stream in federation.streams]
    assert set(orders) == {0, 1}  # else choose another seed
    alone = tiny(
        **HEADS, scenario__order="per_client", training__rounds_per_task=1, seed=0, methods={"probes:Alone": {}}
    )
    began = [*simulate(tiny(**HEADS, training__optimizer__lr=1e-30)).state.values()]
    ended = [*simulate(alone).state.values()]
    moved = [not torch.equal(*pair) for pair in zip(began, ended, strict=True)]
    assert moved == [True, True, orders[0] == 0, orders[0] == 0, orders[0] == 1, orders[0] == 1]


def test_what_is_sent_is_known_before(tiny, simulate):
    """A model with one head more, 4 x 5 + 4 numbers of 4 bytes, both ways, for three clients in four rounds."""
    config = tiny(**HEADS)
    counted, before = simulate(config).simulation.exchange.traffic, cost_of(config)
    one = simulate(tiny()).simulation.exchange.traffic
    assert (sum(before.up.values()), sum(before.down.values())) == (counted.up, counted.down)
    assert (counted.up - one.up, counted.down - one.down) == (3 * 4 * 4 * 24, 3 * 4 * 4 * 24)


@pytest.mark.parametrize("methods", [{"gpm": {"head": "free"}}, {"fot": {"head": "free"}}])
def test_methods_by_layer_leave_all_heads_free(tiny, simulate, methods):
    run = simulate(tiny(**HEADS, methods=methods))
    assert all(value.isfinite().all() for value in run.state.values())
    server, client = run.simulation.exchange.halves, run.simulation.runner.host.clients[0].halves
    (half,) = (server if "fot" in methods else client).values()
    assert [*half.bases] == ["1.weight"]


def test_resumed_and_evaluated_again_it_is_the_same(tiny, tmp_path):
    config = tiny(**HEADS, logging__tensorboard=False)
    result = raysim.run(config, out=tmp_path / "run", local=True)
    found = evaluate(tmp_path / "run").evaluation["task_il"]
    assert found["accuracy"] == result.evaluation["task_il"]["accuracy"][-1]


def test_no_graph_is_captured_of_one_tasks_head(tiny):
    graphs = {"resources__cuda_graphs": True, "resources__gpus_per_actor": 1}
    tiny(**graphs)
    with pytest.raises(
        ConfigError, match=r"resources\.cuda_graphs.*: found true, allowed: false with training\.logits=task"
    ):
        tiny(**graphs, **HEADS)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            {"model": {"name": "probes:scaled"}},
            "training.logits: found task, .* but found no head in model.name=probes:scaled",
        ),
        ({"methods": {"er": {}}}, "methods.er: trains on earlier tasks, but"),
        ({"methods": {"dann": {}}}, "methods.dann: trains on earlier tasks, but"),
        ({"methods": {"lwf": {}}}, "methods.lwf: distills an earlier model, .*; set training.logits=all"),
        ({"methods": {"flwf": {}}}, "methods.flwf: distills an earlier model"),
    ],
)
def test_what_does_not_go_with_heads_is_refused_before_anything_starts(tiny, tmp_path, overrides, said):
    with pytest.raises(ConfigError, match=said) as found:
        raysim.run(tiny(**HEADS, **overrides), out=tmp_path / "run", local=True)
    assert "\n" not in str(found.value)
    assert not (tmp_path / "run").exists()


class Pool(nn.Module):
    """A bias for each task; in evaluation the sum of those so far. It notes what it was told."""

    def __init__(self, classes):
        super().__init__()
        self.entries, self.now = nn.Parameter(torch.zeros(2, classes)), (0, 1)

    def at_task(self, task, so_far):
        self.now = task, so_far
        TOLD.append((task, so_far))

    def forward(self, x):
        task, so_far = self.now
        return x + (self.entries[:so_far].sum(0) if task is None else self.entries[task])


TOLD: list = []


def pooled(shape, classes):
    return nn.Sequential(nn.Linear(*shape, classes), Pool(classes))


def test_a_part_is_told_the_task_in_training_and_how_many_there_are_in_tests(tiny, simulate):
    """Two tasks of two rounds: both entries are trained, each in its task, and no test is told the task."""
    TOLD.clear()
    config = tiny(model={"name": "test_task_heads:pooled"})
    run = simulate(config)
    assert {*TOLD} == {(0, 1), (1, 2), (None, 1), (None, 2)}
    assert run.state["1.entries"].abs().sum(1).gt(0).all()
    assert simulate(config, places=[[1], [2, 0]]).sha256 == run.sha256
    TOLD.clear()
    simulate(
        tiny(
            model={"name": "test_task_heads:pooled"},
            scenario__boundaries={"asynchronous": {"window": 5}},
            training__rounds_per_task=None,
        )
    )
    assert {*TOLD} == {(None, 2)}
