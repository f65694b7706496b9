"""The determinism law: the same config and seed give the same bits, however the clients are spread over processes."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import raysim
from raysim import resources

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]

MODELS = {
    "dropout": {
        "model.dropout": 0.5,
        "methods": {"fedprox": {"mu": 0.1}},
        "participation": {"count": 3},
        "aggregation.weights": "samples",
        "partition": {"kind": "dirichlet", "alpha": 0.5, "min_samples": 3},
        "evaluation.per_client": True,
    },
    "batch norm": {"model.batch_norm": True, "training.local_epochs": 2, "training.optimizer": {"name": "adam"}},
}
ONE_EACH = {"resources.clients_per_actor": 1}
TWO_EACH = {"resources.clients_per_actor": 2}
AUTO = {"resources.clients_per_actor": "auto"}
SILENT = {"logging.tensorboard": False}
# three hosts with auto: as many as the running Ray has CPUs, not the machine
PLACES = {1: [[0], [1], [2], [3]], 2: [[0, 2], [1, 3]], "auto": [[0, 3], [1], [2]]}

Facts = Callable[[raysim.Result], Mapping[str, Any]]


@pytest.fixture(scope="module")
def here(small: dict[str, Any], facts: Facts, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each model's run comes to in this process: the oracle."""
    out = tmp_path_factory.mktemp("local")
    return {
        name: facts(raysim.run(small, MODELS[name], out=out / str(number), local=True))
        for number, name in enumerate(MODELS)
    }


@pytest.fixture
def placed(monkeypatch: pytest.MonkeyPatch) -> list[resources.Placement]:
    """Every placement of hosts that is decided on."""
    places = []
    place = resources.place

    def noted(*args: Any) -> resources.Placement:
        places.append(place(*args))
        return places[-1]

    monkeypatch.setattr(resources, "place", noted)
    return places


@pytest.mark.parametrize(
    ("model", "way"),
    [
        pytest.param("dropout", ONE_EACH, id="dropout-one"),
        pytest.param("dropout", ONE_EACH | SILENT, id="dropout-one-again-and-without-logging"),
        pytest.param("dropout", TWO_EACH, id="dropout-two"),
        pytest.param("dropout", AUTO, id="dropout-auto"),
        pytest.param("batch norm", ONE_EACH, id="batch-norm-one"),
        pytest.param("batch norm", TWO_EACH | SILENT, id="batch-norm-two-without-logging"),
        pytest.param("batch norm", AUTO, id="batch-norm-auto"),
    ],
)
def test_ray_gives_the_bits_of_the_local_run(
    model: str,
    way: dict[str, Any],
    small: dict[str, Any],
    here: dict[str, Any],
    facts: Facts,
    placed: list[resources.Placement],
    tmp_path: Path,
) -> None:
    result = raysim.run(small, MODELS[model] | way, out=tmp_path / "run")
    assert facts(result) == here[model]
    assert [list(clients) for clients in placed[-1].clients] == PLACES[way["resources.clients_per_actor"]]
    assert bool(list(result.directory.glob("events.out.*"))) == ("logging.tensorboard" not in way)


def test_the_local_run_repeats_itself_without_logging(
    small: dict[str, Any], here: dict[str, Any], facts: Facts, tmp_path: Path
) -> None:
    for model, overrides in MODELS.items():
        assert facts(raysim.run(small, overrides | SILENT, out=tmp_path / model, local=True)) == here[model]


def test_another_seed_gives_other_bits(
    small: dict[str, Any], here: dict[str, Any], facts: Facts, tmp_path: Path
) -> None:
    other = facts(raysim.run(small, MODELS["dropout"] | {"seed": 1}, out=tmp_path / "run", local=True))
    assert other["model_sha256"] != here["dropout"]["model_sha256"]
