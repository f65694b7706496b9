"""Runs with other objectives than classification: against NumPy, with every method, however hosts are packed."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from small_runs import ADAPTED, PROMPTED

from raysim.config import Config, load
from raysim.config.lookup import resolve, table
from raysim.engine.compatibility import check_fit, check_methods
from raysim.federation.federation import build_federation
from raysim.launch.check import estimate_run
from raysim.models.building import check_model
from raysim.system.errors import ConfigError, RunError

PERMUTED = {"kind": "domain_incremental", "tasks": 2, "shift": "permutation"}
BASE = {
    "name": "tiny",
    "dataset": {"name": "friedman", "train": 36, "test": 20},
    "scenario": PERMUTED,
    "clients": {"count": 3},
    "model": {"name": "mlp", "hidden": [5]},
    "objective": "regression",
    "training": {"rounds_per_task": 2, "batch_size": 4, "optimizer": {"lr": 0.002}},
    "memory": {"capacity": 6},
}
OBJECTIVES: dict[str, dict[str, object]] = {
    "regression": {},
    "multi_label": {"dataset": {"name": "digit_attributes", "train_samples": 36}, "objective": "multi_label"},
    "next_token": {
        "dataset": {"name": "token_data:tokens"},
        "objective": {"name": "next_token", "padding": 0},
        "model": {"name": "token_data:bigram"},
    },
}
PLACES = [[2, 0], [1]]


def config_of(which: str, **overrides: object) -> Config:
    return load({**BASE, **OBJECTIVES[which]}, {key.replace("__", "."): value for key, value in overrides.items()})


def test_fedavg_with_one_client_is_gradient_descent_on_the_squared_error(simulate: Callable[..., Any]) -> None:
    """w <- w - lr 2/n X^T (X w + b - y), in NumPy; R2 from the definition, on the test samples."""
    config = config_of("regression", clients__count=1, model__hidden=[], training__batch_size=36,
                       training__optimizer__lr=0.01, scenario__tasks=1, training__rounds_per_task=5)  # fmt: skip
    federation = build_federation(config)
    run = simulate(config)
    x, y = (
        np.asarray(part, np.float64)
        for part in (
            federation.source("train", torch.device("cpu")).fetch(torch.arange(36), 0),
            federation.dataset.train.y,
        )
    )
    x = np.hstack([x, np.ones((36, 1))])
    first = simulate(config_of("regression", clients__count=1, model__hidden=[], training__optimizer__lr=1e-30,
                               scenario__tasks=1, training__rounds_per_task=1)).state  # fmt: skip
    w = np.concatenate([part.double().numpy().ravel() for part in first.values()])
    for _ in range(5):
        w -= 0.01 * 2 / 36 * x.T @ (x @ w - y[:, 0])
    found = np.concatenate([part.double().numpy().ravel() for part in run.state.values()])
    assert np.allclose(found, w, rtol=1e-5)
    tests = np.asarray(federation.source("test", torch.device("cpu")).fetch(torch.arange(20), 0), np.float64)
    true = federation.dataset.test.y[:, 0].astype(np.float64)
    f = np.hstack([tests, np.ones((20, 1))]) @ w
    r2 = 1 - ((true - f) ** 2).sum() / ((true - true.mean()) ** 2).sum()
    assert run.rounds[-1].evaluation["domain_il"] == pytest.approx([r2], rel=1e-5)


@pytest.mark.parametrize("objective", [*OBJECTIVES])
@pytest.mark.parametrize("method", [*table("method")])
def test_every_method_runs_or_says_that_it_needs_classes(
    method: str, objective: str, simulate: Callable[..., Any]
) -> None:
    knobs = {"strength": 0.01} if method == "ewc" else {}  # squared errors have large gradients
    adapted = {"model": ADAPTED[method]} if method in ADAPTED and objective != "next_token" else {}
    config = config_of(objective, methods={method: knobs}, **adapted)
    if "classes" in resolve("method", method).needs or (method == "dann" and objective == "next_token"):
        with pytest.raises(
            ConfigError,
            match=f"methods.{method}: (needs classes|looks at one feature vector|found outputs with positions)",
        ):
            check_methods(config)
        return
    check_methods(config)
    if method in PROMPTED or (method in ADAPTED and not adapted):  # the model has none
        federation = build_federation(config)
        shape, vocabulary = federation.shape, federation.vocabulary
        with pytest.raises(ConfigError, match=f"methods.{method}: found no (prompts|adapters) in the model"):
            check_fit(config, check_model(config, shape, federation.classes, vocabulary), federation.classes)
        return
    run = simulate(config, places=PLACES)
    values = [value for done in run.rounds if done.evaluation for row in done.evaluation.values() for value in row]
    assert len(values) == 4
    assert all(map(np.isfinite, values))
    if method in ("er", "fed_a_gem", "der", "c_flag"):
        assert simulate(config).sha256 == run.sha256


def test_a_fisher_with_labels_from_the_model_needs_classes() -> None:
    for method in ("ewc", "fedcurv"):
        with pytest.raises(ConfigError, match=f"methods.{method}: fisher=expected draws labels .* allowed: sample or"):
            check_methods(config_of("regression", methods={method: {"fisher": "expected"}}))


NO_CLASSES = "with objective=regression, which has no classes"
REFUSED: list[tuple[Mapping[str, object], str]] = [
    (
        {"scenario": {"kind": "class_incremental", "tasks": 2}},
        f"scenario.kind: found 'class_incremental', allowed: domain_incremental, by_column or your own .* {NO_CLASSES}",
    ),
    ({"partition.kind": "shards"}, f"found 'shards', allowed: iid, quantity, your own .* {NO_CLASSES}"),
    ({"partition.kind": "dirichlet"}, "found 'dirichlet', allowed: iid, quantity"),
    ({"partition.kind": "pathological"}, "found 'pathological', allowed: iid, quantity"),
    ({"memory.policy": "class_balanced"}, f"found 'class_balanced', allowed: the other policies {NO_CLASSES}"),
    ({"memory.policy": "class_ring"}, "found 'class_ring', allowed: the other"),
    ({"evaluation.per_client": True}, "found true, allowed: false with objective=regression, whose metric is not"),
    ({"evaluation.top_k": 2}, "found 2, allowed: 1 with objective=regression, whose metric is not the accuracy"),
    ({"objective": "regresion"}, "unknown objective 'regresion'.*did you mean 'regression'"),
    ({"objective": {"name": "multi_label", "average": "mean"}}, "objective.average: found 'mean', allowed: micro or"),
]


@pytest.mark.parametrize(("overrides", "words"), REFUSED)
def test_what_needs_classes_is_refused_in_one_line(overrides: Mapping[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        load(BASE, overrides)
    assert "\n" not in str(caught.value)


def test_a_memory_by_class_is_not_the_default_of_a_method_either(host_of: Callable[..., Any]) -> None:
    host = host_of(config_of("regression", methods={"nccl": {}}))
    assert host.clients[0].memory.kind.policy == "task_ring"


UNFIT: list[tuple[Mapping[str, object], str]] = [
    ({"objective": "classification"}, r"objective: classification in the training samples: found targets of float32"),
    ({"dataset": "digits"}, r"objective: regression in the training samples: found targets of int64 \[1433\]"),
    (
        {"objective": "token_data:PerSample"},
        r"PerSample \(.*token_data.py:\d+\).loss returned torch.float32 \[2\], allowed: the batch's mean .*; objective",
    ),
    (
        {"objective": "token_data:InDouble"},
        r"InDouble .*loss returned torch.float64 \[\], allowed: .* of torch.float32",
    ),
    ({"objective": "token_data:InAll"}, r"InAll .*measure returned torch.float32 \[1\], allowed: .*\[2, m\]"),
    (
        {"dataset": "digits", "objective": "token_data:ErrorRate"},
        r"found ErrorRate \(.*token_data.py:\d+\) with its own measure, metric and counts = True, .*; set counts",
    ),
    ({"dataset": "digits", "objective": "token_data:Worst"}, r"Worst .* with its own predict, value and counts = True"),
]


@pytest.mark.parametrize(("overrides", "words"), UNFIT)
def test_targets_and_own_objectives_are_checked_before_a_run(overrides: Mapping[str, object], words: str) -> None:
    with pytest.raises((ConfigError, RunError), match=words):
        build_federation(load(BASE, overrides))


def test_an_own_metric_of_labels_is_used_if_right_answers_are_not_counted(simulate: Callable[..., Any]) -> None:
    """The same model answers the same: the share of wrong answers is 1 minus that of the right ones."""
    digits = {**BASE, "dataset": {"name": "digits", "train_samples": 36}}
    right, wrong = (
        simulate(load(digits, {"objective": name})).rounds[-1].evaluation["domain_il"]
        for name in ("classification", "token_data:OwnErrorRate")
    )
    assert wrong == pytest.approx([1 - share for share in right], rel=1e-12)


def test_an_own_loss_that_is_not_finite_is_named(simulate: Callable[..., Any]) -> None:
    words = r"Infinite \(.*\).loss returned what is not finite, allowed: finite losses of finite outputs; client"
    with pytest.raises(RunError, match=words):
        simulate(config_of("regression", objective="token_data:Infinite"))


@pytest.mark.parametrize("logits", ["seen", "task"])
def test_a_loss_that_is_infinite_for_excluded_classes_says_so(logits: str, simulate: Callable[..., Any]) -> None:
    """0.1 / 10 of a label is at classes of the second task, whose log-softmax is -inf: the loss is infinite at once."""
    classes = {
        "dataset": {"name": "digits", "train_samples": 60},
        "scenario": {"kind": "class_incremental", "tasks": 2},
    }
    config = load({**BASE, **classes, "objective": "token_data:Smoothed"}, {"training.logits": logits})
    words = (
        rf"Smoothed \(.*\).loss returned what is not finite, allowed: a finite loss, also with training.logits="
        rf"{logits}, which gives excluded classes the logit -inf; set training.logits=all, or leave these classes out"
    )
    with pytest.raises(RunError, match=words):
        simulate(config)
    for other in ({"objective": "token_data:SmoothedAmongKept"}, {"training.logits": "all"}):
        rounds = simulate(load(config, other)).rounds
        assert len(rounds) == 4


def test_a_model_whose_output_has_not_the_objectives_shape_is_refused(simulate: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match=r"mlp returns \(2, 5\) for 2 samples, allowed: a tensor of \(2, 4, 5\)"):
        simulate(config_of("next_token", model={"name": "mlp", "hidden": [3]}))


def test_check_says_what_is_learned() -> None:
    lines = dict(estimate_run(config_of("multi_label", methods={"der": {}})))
    assert lines["data"] == "36 training and 364 test samples of 1 x 8 x 8, targets int64 [4]"
    assert lines["steps"] == f"{2 * 2 * 3 * 3} gradient steps"  # tasks, rounds, clients, batches of 12 samples


def test_objectives_of_raysim_are_classes_of_their_kind() -> None:
    assert {name for name in table("objective") if resolve("objective", name).classes} == {"classification"}
