"""The determinism law: the same config and seed give the same bits, however the clients are spread over processes."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from small_runs import config_keys, hyperparameters

import raysim
from raysim.config.lookup import table
from raysim.estimate import placement

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]

DRAWING = {
    "model": {"name": "mlp", "hidden": [12], "dropout": 0.3, "batch_norm": True},
    "training.optimizer": {"lr": 0.1},
    "participation": {"count": 3},
}
OWN = yaml.safe_load((Path(__file__).parents[2] / "examples" / "own_package" / "run.yaml").read_text())
SECOND = {"name": "synthetic", "classes": 4, "shape": [6], "train": 40, "test": 4, "seed": 1}  # without labels
RUNS: dict[str, dict[str, Any]] = {
    "dropout": {
        "model.dropout": 0.5,
        "methods": {"fedprox": {"mu": 0.1}, "probes:DrawingInPlans": {}, "top_k": {"fraction": 0.2}},
        "participation": {"count": 3},
        "aggregation.weights": "samples",
        "partition": {"kind": "dirichlet", "alpha": 0.5, "min_samples": 3},
        "evaluation.per_client": True,
    },
    "batch norm": {
        "model.batch_norm": True,
        "training.local_epochs": 2,
        "training.optimizer": {"name": "adam"},
        "methods": {"quantize": {"bits": 4, "feedback": True}, "probes:Threads": {}},
        "resources.server_cpus": 1,
    },
    # methods that no other test of this folder runs, as many together as go together
    "c_flag and fedavgm": DRAWING | {"methods": {"c_flag": {}, "fedavgm": {}}},
    "joint, flwf, special_c and fedadam": DRAWING
    | {"methods": {"joint": {}, "flwf": {}, "special_c": {}, "fedadam": {}}},
    "fedtrack, fixed and fedyogi": DRAWING | {"methods": {"fedtrack": {"table": "keep"}, "fixed": {}, "fedyogi": {}}},
    "heads": DRAWING
    | {"scenario": {"kind": "domain_incremental", "tasks": 2, "shift": "permutation"}, "training.logits": "task"},
    "cfed, ewc, fedcurv, lwf and nccl": DRAWING
    | {"methods": {"cfed": {}, "ewc": {}, "fedcurv": {}, "lwf": {}, "nccl": {}}, "dataset.unlabelled": SECOND},
    "icarl, gpm and fot": DRAWING | {"methods": {"icarl": {}, "gpm": {}, "fot": {}}},
    "a user-defined package": OWN
    | {"dataset": OWN["dataset"] | {"train_samples": 200}, "methods": {"er": {}}, "training.rounds_per_task": 3},
    "features": {"model": {"name": "mlp", "hidden": [12, 6], "dropout": 0.3, "freeze": ["1.*"], "cache": True}}
    | {"methods": {"der": {}}},
    "auxiliary networks": DRAWING | {"methods": {"beside:Adversarial": {}, "beside:Flow": {}}},
}
ELSEWHERE = {"a_gem", "ditto", "fedper", "fed_a_gem", "re_fed", "scaffold", "special"}  # in this folder's other tests
NAMED = ELSEWHERE | {name for run in RUNS.values() for name in run.get("methods", {})}
SMALL = {
    name: DRAWING
    | {key.replace("__", "."): value for key, value in config_keys(name).items()}
    | {"methods": {name: hyperparameters(name)}}
    for name in table("method")
    if name not in NAMED
}
"""All other methods, each alone."""
RUNS |= SMALL
ONE_EACH = {"resources.clients_per_actor": 1}
TWO_EACH = {"resources.clients_per_actor": 2}
AUTO = {"resources.clients_per_actor": "auto"}
LOGGED = {"logging.tensorboard": True}
ALONE = {"resources.server_cpus": 0}  # a CPU of the server's would leave two for the hosts
SPAWNED = {"resources.workers": "spawned"}
SOAK = pytest.mark.soak
# three hosts with auto: as many as the running Ray has CPUs, not the machine
PLACES = {1: [[0], [1], [2], [3]], 2: [[0, 2], [1, 3]], "auto": [[0, 3], [1], [2]]}

Facts = Callable[[raysim.Result], Mapping[str, Any]]
Here = Callable[[str], Mapping[str, Any]]


@pytest.fixture(scope="module", autouse=True)
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The folder of features that are computed once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAYSIM_DATA", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture(scope="module")
def here(small: dict[str, Any], facts: Facts, tmp_path_factory: pytest.TempPathFactory) -> Here:
    """A function that gives what a run comes to in this process, which is done once: the oracle."""

    @cache
    def of(name: str) -> Mapping[str, Any]:
        return facts(raysim.run(small, RUNS[name], out=tmp_path_factory.mktemp("local") / "run", local=True))

    return of


@pytest.fixture
def placed(monkeypatch: pytest.MonkeyPatch) -> list[placement.Placement]:
    """Every placement of hosts that is decided on."""
    places = []
    place = placement.place

    def noted(*args: Any) -> placement.Placement:
        places.append(place(*args))
        return places[-1]

    monkeypatch.setattr(placement, "place", noted)
    return places


@pytest.mark.parametrize(
    ("name", "way"),
    [
        pytest.param("dropout", ONE_EACH | LOGGED, id="dropout-one-with-logging"),
        pytest.param("dropout", ONE_EACH, id="dropout-one-again", marks=SOAK),
        pytest.param("dropout", TWO_EACH | SPAWNED | LOGGED, id="dropout-two-spawned-with-logging", marks=SOAK),
        pytest.param("dropout", AUTO, id="dropout-auto", marks=SOAK),
        pytest.param("batch norm", ONE_EACH | LOGGED, id="batch-norm-one-with-logging", marks=SOAK),
        pytest.param("batch norm", TWO_EACH, id="batch-norm-two", marks=SOAK),
        pytest.param("batch norm", AUTO | LOGGED | ALONE, id="batch-norm-auto-with-logging", marks=SOAK),
        pytest.param("c_flag and fedavgm", TWO_EACH, id="c-flag-two"),
        pytest.param("joint, flwf, special_c and fedadam", AUTO, id="special-c-auto", marks=SOAK),
        pytest.param("fedtrack, fixed and fedyogi", ONE_EACH, id="fedtrack-one", marks=SOAK),
        pytest.param("cfed, ewc, fedcurv, lwf and nccl", TWO_EACH, id="cfed-two", marks=SOAK),
        pytest.param("icarl, gpm and fot", AUTO, id="icarl-auto"),
        pytest.param("a user-defined package", TWO_EACH, id="own-two"),
        pytest.param("features", AUTO, id="features-auto"),
        pytest.param("auxiliary networks", ONE_EACH, id="networks-one"),
        pytest.param("auxiliary networks", TWO_EACH, id="networks-two", marks=SOAK),
        pytest.param("heads", AUTO, id="heads-auto", marks=SOAK),
        *(pytest.param(name, TWO_EACH, id=f"{name}-two", marks=SOAK) for name in SMALL),
    ],
)
def test_ray_gives_the_bits_of_the_local_run(
    name: str,
    way: dict[str, Any],
    small: dict[str, Any],
    here: Here,
    facts: Facts,
    placed: list[placement.Placement],
    tmp_path: Path,
) -> None:
    expected = here(name)
    result = raysim.run(small, RUNS[name] | way, out=tmp_path / "run")
    assert facts(result) == expected
    assert [list(clients) for clients in placed[-1].clients] == PLACES[way["resources.clients_per_actor"]]
    assert placed[-1].server == ((RUNS[name] | way).get("resources.server_cpus", 0), 0)
    assert bool(list(result.directory.glob("events.out.*"))) == ("logging.tensorboard" in way)


@pytest.mark.parametrize(
    "name", [name if name == "dropout" else pytest.param(name, marks=SOAK) for name in RUNS if name not in SMALL]
)
def test_the_local_run_repeats_itself_with_logging(
    name: str, small: dict[str, Any], here: Here, facts: Facts, tmp_path: Path
) -> None:
    """tests/algorithms/test_contract_grid.py repeats the run of each method alone."""
    assert facts(raysim.run(small, RUNS[name] | LOGGED, out=tmp_path / "run", local=True)) == here(name)


def test_another_seed_gives_other_bits(small: dict[str, Any], here: Here, facts: Facts, tmp_path: Path) -> None:
    other = facts(raysim.run(small, RUNS["dropout"] | {"seed": 1}, out=tmp_path / "run", local=True))
    assert other["model_sha256"] != here("dropout")["model_sha256"]
