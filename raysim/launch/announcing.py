"""The lines before a run, which say what runs and where, and after it, which say what to do next."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote

from raysim.config import Config
from raysim.estimate.placement import Placement
from raysim.launch.amounts import in_number
from raysim.launch.resuming import resume_command, trust_option
from raysim.records.result import Result


def describe_start(
    config: Config, rounds: int, notes: Sequence[str], directory: Path, places: Placement | None, local: bool
) -> Iterator[str]:
    """Yield what runs, what was read, where it runs, and where its files go.

    Args:
        config: the resolved config.
        rounds: the number of rounds.
        notes: what was read of the data and of the weights.
        directory: the run's directory.
        places: its host actors, if they are on this machine.
        local: whether it runs without Ray.
    """
    methods = " + ".join(config.methods) or "FedAvg"
    kind = config.scenario.kind.replace("_", "-")
    counts = ((config.clients.count, "client"), (config.scenario.tasks, f"{kind} task"), (rounds, "round"))
    plan = ", ".join(in_number(*count) for count in counts)
    yield f"{config.name}, seed {config.seed}: {methods} with {config.model.name} on {config.dataset.name}; {plan}"
    yield from notes
    if local:
        where = "in this process, without Ray"
    elif places is None:
        where = f"on the Ray cluster at {config.resources.address}"
    else:
        gpus = f", {places.gpus:g} GPUs each" if places.gpus else ""
        where = f"on this machine, with {in_number(places.actors, 'host actor')}{gpus}"
    yield f"running {where}; files go to {directory}"


def tell_unfinished(result: Result) -> str:
    """Return a line if a run was stopped in its first task, or "" otherwise."""
    measured = any(values["accuracy"] for values in result.evaluation.values())
    return "" if measured or result.status != "interrupted" else "no task was finished, so the accuracy matrix is empty"


def describe_next(result: Result, config: Config, local: bool) -> Iterator[tuple[str, str]]:
    """Yield what a user may do after a run, each with its command. `local` says whether it ran without Ray."""
    if result.status == "interrupted":
        yield "to resume", resume_command(config, result.directory, local)
        return
    directory = quote(str(result.directory))
    yield "report", f"raysim report {directory}"
    yield "evaluate", f"raysim evaluate {directory}{trust_option(config)}"
    if any(result.directory.glob("events.out.*")):
        yield "TensorBoard", f"tensorboard --logdir {directory}"
