"""Finished runs as a pandas data frame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from raysim.config.yaml_text import read_yaml
from raysim.records.result import Result
from raysim.reports.reading import find_runs
from raysim.reports.write import Runs
from raysim.system.importing import import_extra

if TYPE_CHECKING:
    from pandas import DataFrame


def frame(runs: Runs | Sequence[Runs]) -> DataFrame:
    """Return finished runs as a pandas data frame: a row for each run and protocol.

    >>> result = raysim.run("quickstart", methods="er", local=True)
    >>> raysim.frame(result)[["methods", "seed", "average_accuracy"]].round(2)
      methods  seed  average_accuracy
    0      er     0              0.82

    The columns are the numbers and names of summary.json. Accuracies are fractions. `methods` joins the names with
    " + ", and is FedAvg without methods. `split` is validation for runs that were evaluated on held-out training
    samples, such as a sweep's trials, and test for the others.

    Args:
        runs: directories with finished runs at any depth below them, or results of runs; one or several.

    Raises:
        ConfigError: pandas is not installed, or no finished run was found.
    """
    pandas = import_extra("pandas", "pandas")
    several = [runs] if isinstance(runs, Runs) else runs
    made: DataFrame = pandas.DataFrame([row for found in _results(several) for row in _rows(*found)])
    return made


def _results(runs: Sequence[Runs]) -> Iterator[tuple[Result, Mapping[str, object]]]:
    """Yield the results, each with its config."""
    for one in runs:
        if isinstance(one, Result):
            yield one, read_yaml(one.directory / "config.yaml").values
        else:
            yield from ((found.summary, found.document.values) for found in find_runs([Path(one)], []))


def _rows(result: Result, config: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    evaluation = config.get("evaluation")
    split = evaluation.get("split", "test") if isinstance(evaluation, Mapping) else "test"
    of_the_run = {key: value for key, value in vars(result).items() if isinstance(value, str | int | float | None)}
    named = {"directory": str(result.directory), "methods": " + ".join(result.methods) or "FedAvg"}
    for protocol, values in result.evaluation.items():
        numbers = {key: value for key, value in values.items() if not isinstance(value, list)}
        clients = {
            f"clients_{k}": v for k, v in ((result.per_client or {}).get(protocol) or {}).items() if k != "accuracy"
        }
        yield {**named, "split": split, **of_the_run, "protocol": protocol, **numbers, **clients}
