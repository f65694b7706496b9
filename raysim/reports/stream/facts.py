"""What the stream's picture shows, collected from a config without training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from raysim.config import Config
from raysim.config.scenarios import ByColumn, DomainIncremental
from raysim.config.timing import AsynchronousSchedule
from raysim.data.loading import resolve_root
from raysim.engine.compatibility import check_fit_of_data, check_methods
from raysim.engine.forgetting import follow_requests
from raysim.federation.federation import Federation, build_federation
from raysim.models.building import check_model
from raysim.reports.stream.cells import (
    Overview,
    StreamCell,
    count_clients,
    find_cells,
    rounds_per_column,
    spread_evenly,
)
from raysim.reports.stream.participation import Turnout, find_turnout
from raysim.reports.stream.samples import Samples
from raysim.system.errors import convert_to_run_error
from raysim.system.seeding import torch_untouched

MOST_TALL = 12  # clients, in rows with samples
MOST_ROWS = 36  # clients; of more, FEWER_ROWS are drawn, evenly spaced
FEWER_ROWS = 24
OVERVIEW_COLUMNS = 60
LONGEST_NAME = 34  # letters of a task's name


@dataclass(frozen=True, eq=False)
class Row:
    """A client's row of the picture."""

    client: int
    cells: Sequence[StreamCell]


@dataclass(frozen=True, eq=False)
class StreamFacts:
    """What the picture shows.

    Attributes:
        name: the name of the run.
        about: the scenario and the schedule in words, each with its value.
        clients: the number of clients.
        rounds: the number of rounds.
        tasks: the names of the tasks.
        rows: the clients that are drawn.
        overview: the number of clients by task, if not all clients are drawn.
        turnout: who takes part in which round.
        samples: the samples to show.
        notes: what the picture leaves out, a sentence for each.
    """

    name: str
    about: Sequence[str]
    clients: int
    rounds: int
    tasks: Sequence[str]
    rows: Sequence[Row]
    overview: Overview | None
    turnout: Turnout
    samples: Samples
    notes: Sequence[str]

    @property
    def summary(self) -> str:
        """The picture's subject."""
        return f"the stream of {count_of(self.clients, 'client')} over {count_of(self.rounds, 'round')}"


def count_of(count: int, what: str) -> str:
    """Return a number with its noun: `1 client`, `1,000 clients`."""
    return f"{count:,} {what}{'s' * (count != 1)}"


def collect_facts(config: Config, pretend: bool = True) -> StreamFacts:
    """Return what the stream's picture shows. Data are loaded, never downloaded.

    Args:
        config: the resolved config.
        pretend: whether missing data are replaced by placeholders of their published size.

    Raises:
        MissingData: data are missing, and `pretend` is false or their size is unknown.
        ConfigError: the config is one that a run refuses.
        RunError: a custom sampler failed.
    """
    with torch_untouched():
        check_methods(config)
        federation = follow_requests(config, build_federation(config, download=False, pretend=pretend))
        model = check_model(config, federation.shape, federation.classes, federation.vocabulary)
        check_fit_of_data(config, model, federation)
        count, rounds = len(federation.streams), federation.availability.rounds
        shown = spread_evenly(count, FEWER_ROWS if count > MOST_ROWS else count)
        with convert_to_run_error("it failed while the clients of all rounds were chosen"):
            turnout = find_turnout(config, federation, model, shown)
    found = {client: find_cells(federation, client) for client in shown}
    exact = all(whole for _, whole in found.values())
    return StreamFacts(
        name=config.name,
        about=[*_describe(config)],
        clients=count,
        rounds=rounds,
        tasks=_name_tasks(federation),
        rows=[Row(client, cells) for client, (cells, _) in found.items()],
        overview=count_clients(federation, OVERVIEW_COLUMNS) if len(shown) < count else None,
        turnout=turnout,
        samples=Samples(federation),
        notes=[*_list_notes(config, federation, turnout, len(shown), exact)],
    )


def _describe(config: Config) -> Sequence[str]:
    """Return the scenario, the partition, the boundaries, the participation and the schedule in words."""
    scenario, schedule, clients = config.scenario, config.schedule, config.clients
    words = [scenario.kind.replace("_", "-")]
    if isinstance(scenario, DomainIncremental) and isinstance(scenario.shift, str):
        words[0] += f" ({scenario.shift})"
    if isinstance(scenario, ByColumn):
        words[0] += f" ({scenario.column}{' per client' if scenario.per == 'client' else ''})"
    words.append(_with_keys(f"{config.partition.kind} partition", config.partition.keys()))
    if scenario.windows is not None:
        windows = scenario.windows
        words.append(f"windows of {windows.window:,} samples, {count_of(windows.rounds_per_window, 'round')} each")
    elif scenario.jitter:
        words.append(f"boundaries up to {count_of(scenario.jitter, 'round')} apart")
    words += ["an order of the tasks for each client"] * (scenario.order == "per_client")
    words += ["online"] * scenario.online + [f"blur {scenario.blur:g}"] * bool(scenario.blur)
    if isinstance(schedule, AsynchronousSchedule):
        buffer = count_of(schedule.buffer_size, "update")
        words.append(f"asynchronous: {schedule.concurrency:,} at a time, a buffer of {buffer}")
    elif (count := config.participation.count) is not None:
        words.append(f"{count_of(count, 'client')} a round")
    elif (fraction := config.participation.fraction or 1) < 1:
        words.append(f"{100 * fraction:g}% of the clients a round")
    words += [f"dropout {clients.dropout:g}"] * bool(clients.dropout)
    return [*words, f"seed {config.seed}"]


def _with_keys(name: str, keys: Mapping[str, object]) -> str:
    """Return a name with the numbers among its keys: `dirichlet partition (alpha 0.3)`."""
    numbers = [
        f"{key.replace('_', ' ')} {value:g}"
        for key, value in keys.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and not key.startswith("min_")
    ]
    return f"{name} ({', '.join(numbers)})" if numbers else name


def _name_tasks(federation: Federation) -> list[str]:
    """Return the names of the tasks. The tasks of custom streams are unknown, so they count as one."""
    if federation.opener is not None:
        return ["custom streams of the clients"]
    return [name_task(federation, task) for task in range(len(federation.tasks))]


def name_task(federation: Federation, number: int) -> str:
    """Return a task's name; the names of its classes, if it has its own and they have names."""
    task, names = federation.tasks[number], federation.dataset.names
    name = task.name
    if len(task.classes) < federation.dataset.classes:
        if names is not None:
            name = ", ".join(names[label] for label in task.classes)
        elif name.startswith("classes "):
            name = f"classes {join_ranges(task.classes)}"
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1].rstrip(" ,") + "…"


def join_ranges(labels: Sequence[int]) -> str:
    """Return ascending numbers as text, three or more consecutive ones as a range: `0–4 7 8`."""
    parts: list[str] = []
    for _, alike in groupby(enumerate(labels), key=lambda pair: pair[1] - pair[0]):
        run = [label for _, label in alike]
        parts += [f"{run[0]}–{run[-1]}"] if len(run) > 2 else map(str, run)
    return " ".join(parts)


def _list_notes(config: Config, federation: Federation, turnout: Turnout, shown: int, exact: bool) -> Sequence[str]:
    """Return what the picture leaves out, a sentence for each."""
    notes, rounds, clients = [], federation.availability.rounds, len(federation.streams)
    if federation.dataset.missing:
        files = ", ".join(federation.dataset.missing)
        notes.append(
            f"The files of {files} are not in {resolve_root(config.dataset.root)}. Sizes are the published ones, with "
            "equally frequent classes, and no samples are shown."
        )
    if shown < clients:
        notes.append(f"{shown} of {clients:,} clients are drawn, evenly spaced.")
    if not exact:
        notes.append(f"A column is {count_of(rounds_per_column(rounds), 'round')}. Shorter windows are not drawn.")
    if turnout.decided_by is not None:
        notes.append(f"{turnout.decided_by} chooses the clients during the run, so no participation is drawn.")
    elif turnout.looked_at < rounds and not turnout.always:
        notes.append(f"Participation is that of {turnout.looked_at:,} of {rounds:,} rounds.")
    if turnout.seconds is not None:
        notes.append(f"The run lasts {turnout.seconds:,.3g} virtual seconds.")
    return notes
