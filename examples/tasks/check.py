"""Grade a solution of a task: python examples/tasks/check.py TASK FOLDER. Prints a line for each point.

It runs the code in the folder. The exit status is 0 if all points are reached, 1 if not, and 2 for wrong arguments.
"""

import csv
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import mean
from typing import Any

import torch

import raysim
from raysim.config import Config, load

Point = tuple[str, Callable[[], bool]]
SMALL = {"training.rounds_per_task": 1, "scenario.tasks": 1, "evaluation.every_rounds": None}
METHODS = {"FedAvg": [], "ER": ["er"], "LwF": ["lwf"]}


def own_data(folder: Path) -> Iterator[Point]:
    """Yield the points of the task own_data: what they ask for, and whether it holds."""

    def keys() -> dict[str, Any]:
        return dict(load(folder / "mine.yaml").dataset.keys())

    def stream(config: Config) -> bool:
        scenario = config.model_dump()["scenario"]
        return scenario["tasks"] == 3 and "hour" in str(scenario)

    yield "mine.yaml is a valid config of readings.csv", lambda: str(keys()["path"]).endswith("readings.csv")
    roles = {"target": "broken", "client": "shop"}
    yield (
        "the columns have their roles",
        lambda: (
            all(keys()[key] == column for key, column in roles.items())
            and [*keys()["categories"]] == ["tool"]
            and "id" in [*keys()["ignore"]]
        ),
    )
    yield "the stream has three tasks in the order of hour", lambda: stream(load(folder / "mine.yaml"))
    yield "every workshop is a client", lambda: load_run(folder).clients == 5 and split(folder) == "natural"
    yield (
        "a run of mine.yaml's data, stream and clients is done, with an accuracy of at least 70%",
        lambda: is_run_of_mine(folder) and (load_run(folder).accuracy() or 0) >= 0.7,
    )


def is_run_of_mine(folder: Path) -> bool:
    """Return whether the run has the data, the stream and the clients of mine.yaml."""
    run, mine = (load(folder / name).model_dump() for name in ("run/config.yaml", "mine.yaml"))
    return all(run[key] == mine[key] for key in ("dataset", "scenario", "partition", "clients"))


def split(folder: Path) -> str:
    """Return the kind of the partition of a config."""
    found = load(folder / "mine.yaml").model_dump()["partition"]
    return str(found["kind"] if isinstance(found, dict) else found)


def load_run(folder: Path) -> raysim.Result:
    """Return the result in the folder `run`, if its run is done."""
    result = raysim.load(folder / "run")
    if result.status != "done":
        raise ValueError(f"the run is {result.status}")
    return result


def own_method(folder: Path) -> Iterator[Point]:
    """Yield the points of the task own_method: small runs with it are repeated."""
    sys.path.insert(0, str(folder))

    def weights(methods: dict[str, Any], clients: int = 1, lr: float = 0.1) -> torch.Tensor:
        overrides = SMALL | {"clients.count": clients, "training.optimizer.lr": lr, "methods": methods}
        with tempfile.TemporaryDirectory() as made:
            raysim.run("quickstart", overrides, out=Path(made) / "run", local=True)
            state = torch.load(Path(made) / "run" / "model.pt", weights_only=True)
        return torch.cat([tensor.reshape(-1) for tensor in state.values()])

    def clipped(limit: float | None, **more: Any) -> torch.Tensor:
        keys = {} if limit is None else {"limit": limit}
        return weights({"clipped:Clipped": keys}, **more)

    def norm(limit: float | None) -> float:
        return float((clipped(limit) - clipped(0.0)).norm())

    yield "with limit 0 nothing is learned", lambda: torch.equal(clipped(0.0), clipped(0.0, lr=0.01))
    yield "a large limit changes no bit", lambda: torch.equal(clipped(1e9, clients=3), weights({}, clients=3))
    yield "the change has the norm of a small limit", lambda: abs(norm(0.125) - 0.125) < 1e-4
    plain = weights({}) - clipped(0.0)
    yield "the default is 1.0", lambda: abs(norm(None) - min(1.0, float(plain.norm()))) < 1e-4
    yield (
        "the folder run has quickstart with limit 0.5",
        lambda: (
            load_run(folder).name == "quickstart"
            and load(folder / "run" / "config.yaml").model_dump()["methods"]["clipped:Clipped"]["limit"] == 0.5
        ),
    )


def table(folder: Path) -> Iterator[Point]:
    """Yield the points of the task table. The numbers are computed again from the runs."""

    def runs() -> dict[str, list[raysim.Result]]:
        found = [raysim.load(file.parent) for file in sorted((folder / "runs").rglob("summary.json"))]
        done = [run for run in found if run.status == "done" and run.rounds == 9]
        return {name: [run for run in done if run.methods == methods] for name, methods in METHODS.items()}

    def read(name: str) -> list[dict[str, str]]:
        with (folder / name).open(encoding="utf-8", newline="") as file:
            return [*csv.DictReader(file)]

    def fits(column: str, compute: Callable[[raysim.Result], float | None]) -> bool:
        known = {name: mean(100 * (compute(run) or 0.0) for run in of) for name, of in runs().items()}
        rows = {row["method"]: float(row[column]) for row in read("answer.csv")}
        return rows.keys() == known.keys() and all(abs(rows[name] - value) < 0.006 for name, value in known.items())

    yield (
        "six runs are done, of seeds 0 and 1",
        lambda: all(sorted(run.seed for run in of) == [0, 1] for of in runs().values()),
    )
    yield (
        "paper has the report of the six runs",
        lambda: len(read("paper/report.csv")) == 6,
    )
    yield "the accuracies are right", lambda: fits("accuracy", lambda run: run.accuracy())
    yield "the forgetting is right", lambda: fits("forgetting", lambda run: run.forgetting())
    yield (
        "the best accuracy comes first",
        lambda: (
            [float(row["accuracy"]) for row in read("answer.csv")]
            == sorted((float(row["accuracy"]) for row in read("answer.csv")), reverse=True)
            and len(read("answer.csv")) == 3
        ),
    )


TASKS: dict[str, Callable[[Path], Iterator[Point]]] = {"own_data": own_data, "own_method": own_method, "table": table}


def grade(task: str, folder: Path) -> tuple[int, int, list[str]]:
    """Return the points reached, the points there are, and a line for each."""
    lines: list[str] = []
    reached, here = 0, Path.cwd()
    os.chdir(folder)  # names of the folder's files are relative to it
    points = TASKS[task](folder)
    try:
        while True:
            try:
                what, holds = next(points)
            except StopIteration:
                break
            try:
                good, why = holds(), ""
            except Exception as error:
                good, why = False, f" ({type(error).__name__}: {error})"
            reached += good
            lines.append(f"{'ok     ' if good else 'missing'} {what}{why}")
    finally:
        os.chdir(here)
    return reached, len(lines), lines


def main(given: list[str]) -> int:
    """Grade, print, and return the exit status."""
    if len(given) != 2 or given[0] not in TASKS or not Path(given[1]).is_dir():
        print(f"usage: check.py {{{','.join(TASKS)}}} FOLDER", file=sys.stderr)
        return 2
    reached, most, lines = grade(given[0], Path(given[1]).resolve())
    print(*lines, f"{reached} of {most} points", sep="\n")
    return int(reached < most)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
