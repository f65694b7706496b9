"""Runs that learn to detect: every method, hosts and chunks, and what is refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from small_runs import MODELS, PROMPTED, hyperparameters

from raysim.config import Config, load
from raysim.config.lookup import resolve, table
from raysim.engine.compatibility import check_fit, check_methods
from raysim.federation.federation import build_federation
from raysim.launch.check import estimate_run
from raysim.models.building import check_model
from raysim.system.errors import ConfigError

FIRST, SECOND = ({"name": "box_data:squares", "seed": seed} for seed in (0, 1))
BASE = {
    "name": "boxes",
    "dataset": FIRST,
    "scenario": {"kind": "domain_incremental", "tasks": 2, "shift": {"domains": [FIRST, SECOND]}},
    "clients": {"count": 2},
    "model": {"name": "tiny_yolo", "width": 1, "stride": 8},
    "objective": {"name": "detection", "stride": 8, "anchors": [[0.4, 0.4]], "confidence": 0.0},
    "training": {"rounds_per_task": 1, "batch_size": 4, "optimizer": {"lr": 0.001}},
    "memory": {"capacity": 4},
}
NO_CLASSES = "needs classes, because it distills their logits"
NO_HEAD = "found no head in model.name=tiny_yolo, allowed: a model that returns the output of its last layer"


def config_of(**overrides: object) -> Config:
    return load(BASE, {key.replace("__", "."): value for key, value in overrides.items()})


def check(config: Config) -> None:
    """As before a run."""
    check_methods(config)
    federation = build_federation(config)
    check_fit(config, check_model(config, federation.shape, federation.classes), federation.classes)


def refusal(method: str) -> str | None:
    """The words that refuse a method: its need of classes, of a part of the model, or of a head."""
    kind = resolve("method", method)
    if "classes" in kind.needs:
        return NO_CLASSES
    if method in MODELS:
        return f"found no ({'prompts' if method in PROMPTED else 'adapters'}|head) in"
    return NO_HEAD if kind().head_parts() else None


@pytest.mark.parametrize("method", [*table("method")])
def test_every_method_runs_or_says_what_it_needs(method: str, simulate: Callable[..., Any]) -> None:
    config = config_of(methods={method: hyperparameters(method)})
    if refused := refusal(method):
        with pytest.raises(ConfigError, match=f"methods.{method}: {refused}"):
            check(config)
        return
    check(config)
    run = simulate(config)
    values = [value for done in run.rounds if done.evaluation for row in done.evaluation.values() for value in row]
    assert len(values) == 4
    assert all(0 <= value <= 1 for value in values)
    assert all(np.isfinite(parameters.numpy()).all() for parameters in run.state.values())


def test_hosts_and_chunks_change_no_bit(simulate: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(methods={"der": {}, "fed_a_gem": {}}, training__rounds_per_task=4, training__local_epochs=3,
                       training__optimizer={"name": "adam", "lr": 0.01})  # fmt: skip
    one = simulate(config)
    monkeypatch.setattr("raysim.evaluation.scoring.MOST_SAMPLES", 2)
    other = simulate(config, places=[[1], [0]])
    assert one.sha256 == other.sha256
    last, same = (run.rounds[-1].evaluation["domain_il"] for run in (one, other))
    assert last == same
    assert min(last) > 0


def test_check_says_what_is_learned() -> None:
    lines = dict(estimate_run(config_of(methods={"der": {}})))
    assert lines["data"] == "24 training and 12 test samples of 3 x 16 x 16, targets float32 [3, 5]"


UNFIT: list[tuple[dict[str, object], str]] = [
    ({"scenario.shift": "rotation"}, "found 'rotation', allowed: .* whose targets it would not move"),
    ({"dataset": {**FIRST, "augment": ["flip"]}}, "found .*, allowed: your own that move no pixel"),
    ({"partition.kind": "dirichlet"}, "found 'dirichlet', allowed: iid, .* which has no classes"),
    ({"evaluation.per_client": True}, "found true, allowed: false with objective=detection"),
    ({"objective.metric": "mAP"}, "found 'mAP', allowed: mAP50 or mAP50-95"),
    ({"objective.anchors": [[0.4, 0.0]]}, r"allowed: a list of a list of 2: each a number > 0 and <= 4, at least 1"),
]


@pytest.mark.parametrize(("overrides", "words"), UNFIT)
def test_what_moves_pixels_or_needs_classes_is_refused(overrides: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        load(BASE, overrides)
    assert "\n" not in str(caught.value)


def test_models_and_data_of_other_shapes_are_refused(simulate: Callable[..., Any]) -> None:
    with pytest.raises(
        ConfigError, match=r"tiny_yolo returns \(2, 1, 1, 7\) for 2 samples, allowed: .* \(2, 2, 2, 7\)"
    ):
        simulate(config_of(model__stride=16))
    with pytest.raises(
        ConfigError, match=r"objective: detection in the training .*: found targets of float32 \[72, 1\]"
    ):
        build_federation(
            config_of(
                dataset={"name": "friedman", "train": 36},
                scenario__shift={"domains": [{"name": "friedman", "train": 36}] * 2},
            )
        )
