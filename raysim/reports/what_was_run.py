"""What was run in a setting: its data, clients, tasks, rounds, model, versions and commits, as a table."""

from collections.abc import Iterable, Iterator, Mapping

from raysim.reports.grouping import ExperimentSetting
from raysim.reports.naming import show_bare
from raysim.reports.reading import FinishedRun
from raysim.reports.tables import NOTHING, ReportTable, TableCell

MOST = 6  # values that a cell lists
LONGEST = 40  # letters of a value
OFF: tuple[object, ...] = (None, [], {}, "", "none", False)  # 0 is False, too
UNSAID = ("download", "tasks")  # keys that say nothing, or have a row of their own
TRAINING = {"local_epochs": "local epochs", "local_steps": "local steps", "batch_size": "batch size"}
BLOCKS = ("dataset", "scenario", "partition", "model", "schedule")
"""Components of a config that are named by their first key."""


def tabulate_facts(setting: ExperimentSetting) -> ReportTable:
    """Return a table of facts about a setting's runs. What differs between its runs has several values."""
    found: dict[str, list[str]] = {}
    for run in setting.runs:
        for name, text in _facts(run):
            found.setdefault(name, []).append(text)
    rows = [[TableCell(name), TableCell(_list(texts))] for name, texts in found.items()]
    return ReportTable("What was run", ("", ""), rows, texts=2)


def _facts(run: FinishedRun) -> Iterator[tuple[str, str]]:
    config, summary = run.config, run.summary
    training = _block(config, "training")
    for name in BLOCKS:
        if config.get(name) is not None:
            yield name, _describe(config[name])
    yield "clients", f"{summary.clients}{_participation(_block(config, 'participation'))}"
    yield "tasks", str(summary.tasks)
    yield "rounds", str(summary.rounds)
    yield (
        "local training",
        ", ".join(f"{words} {training[key]}" for key, words in TRAINING.items() if training.get(key) is not None),
    )
    optimizer = _block(training, "optimizer")
    yield "optimizer", _describe({key: value for key, value in optimizer.items() if key != "lr"})
    yield "learning rate", show_bare(optimizer.get("lr", NOTHING))
    yield "seeds", str(summary.seed)
    if _block(config, "evaluation").get("split") == "validation":
        yield "evaluated on", "validation samples"
    yield "raysim", summary.versions.get("raysim") or NOTHING
    yield "commit", (summary.versions.get("git") or NOTHING)[:12]
    yield "torch", summary.versions.get("torch") or NOTHING
    yield "Ray", summary.versions.get("ray") or NOTHING


def _participation(block: Mapping[str, object]) -> str:
    if block.get("count") is not None:
        return f", {block['count']} per round"
    fraction = block.get("fraction")
    return f", {100 * fraction:g}% per round" if isinstance(fraction, int | float) and fraction < 1 else ""


def _block(config: Mapping[str, object], name: str) -> Mapping[str, object]:
    found = config.get(name)
    return found if isinstance(found, Mapping) else {}


def _describe(block: object) -> str:
    """Return a component in words: its name, then its keys that say something in a few letters."""
    if not isinstance(block, Mapping):
        return NOTHING if block is None else show_bare(block)
    (_, name), *keys = block.items() if block else [("", NOTHING)]
    shown = [f"{key} {show_bare(value)}" for key, value in keys if key not in UNSAID and _says(value)]
    return ", ".join([show_bare(name), *shown])


def _says(value: object) -> bool:
    """Return whether a key's value is neither off nor a block, and short."""
    return value not in OFF and not isinstance(value, Mapping) and len(show_bare(value)) <= LONGEST


def _list(texts: Iterable[str]) -> str:
    """Return the different texts, with how many more there are."""
    found = [*dict.fromkeys(texts)]
    return "; ".join(found[:MOST]) + (f" and {len(found) - MOST} more" if len(found) > MOST else "")
