"""With training.logits=task the weights of other tasks' outputs stay, as those of separate heads in torch do."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from raysim.engine.orders import RoundInfo
from raysim.engine.other_heads import OtherHeads
from raysim.engine.simulation import load_parts
from raysim.models.task_heads import select_head

ADAM, EPOCHS = {"name": "adam", "lr": 0.01, "weight_decay": 0.001}, 6
SGD = {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}
CLASSES = {"kind": "class_incremental", "tasks": 2}


def with_heads(tiny, **more):
    """One client, whose every step has all 36 samples, so that their order has no effect but on rounding."""
    many = {"training__logits": "task", "training__local_epochs": EPOCHS, "training__batch_size": 64}
    return tiny(**{"clients__count": 1, **many, **more})


def trained_by_torch(config):
    """The same network with two heads, trained by torch's optimizers: the other head has no gradient at all."""
    federation, model = load_parts(config)
    source, (stream,) = federation.source("train", torch.device("cpu")), federation.streams
    module: nn.Module = copy.deepcopy(model.module)
    for parameter in module.parameters():
        parameter.grad = None
    keys = dict(config.training.optimizer.keys())
    kind = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[config.training.optimizer.name]
    for task in range(2):
        select_head(module, task)
        rows, tasks = stream.locate(stream.span(task, task + 1))
        x, y = source.fetch(rows, tasks), source.labels(rows)
        for _ in range(config.training.rounds_per_task):
            optimizer = kind(module.parameters(), **keys)
            for _ in range(EPOCHS):
                optimizer.zero_grad()
                functional.cross_entropy(module(x), y).backward()
                optimizer.step()
    return module.state_dict()


@pytest.mark.parametrize("optimizer", [ADAM, SGD], ids=["adam", "sgd"])
def test_a_run_with_a_head_for_each_task_is_torchs(tiny, simulate, optimizer):
    """Adam divides even a tiny decay by its own size: the first head of two would move by the rate in every step."""
    config = with_heads(tiny, training__optimizer=optimizer)
    found, expected = simulate(config).state, trained_by_torch(config)
    assert [*found] == [*expected]
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-3, atol=2e-4, msg=name)


@pytest.mark.parametrize("optimizer", [ADAM, SGD], ids=["adam", "sgd"])
@pytest.mark.parametrize("task", [0, 1])
def test_the_classes_of_another_task_keep_their_rows(tiny, host_of, optimizer, task):
    """The four classes are the rows of one layer; a task has two of them."""
    host = host_of(with_heads(tiny, scenario=CLASSES, training__optimizer=optimizer))
    client, (weight, bias) = host.clients[0], host.model.head
    client.begin_phase(RoundInfo(1, task, 0.1), 1.0)
    change = host.model.named(client.local_training().parameters)
    own = list(host.federation.tasks[task].classes)
    others = [row for row in range(4) if row not in own]
    for name in (weight, bias):
        assert (change[name][own] != 0).any()
        assert not change[name][others].any()


def test_a_row_with_a_gradient_moves(tiny, host_of):
    """As distillation gives it: the row of one excluded class decays, and that of the other stays."""
    host = host_of(with_heads(tiny, scenario=CLASSES))
    client, model, (weight, _) = host.clients[0], host.model, host.model.head
    client.begin_phase(RoundInfo(1, 0, 0.1), 1.0)
    distilled, other = client.kept_out.nonzero().flatten().tolist()
    gradient, before = torch.zeros_like(model.parameters), model.copy().parameters
    model.named(gradient)[weight][distilled, 0] = 1.0
    with OtherHeads(model, client.kept_out).kept(model.parameters, gradient):
        model.parameters.mul_(0.5)
    found, earlier = model.named(model.parameters)[weight], model.named(before)[weight]
    assert torch.equal(found[distilled], earlier[distilled] * 0.5)
    assert torch.equal(found[other], earlier[other])
