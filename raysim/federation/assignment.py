"""From tasks to streams: assign the samples of each task to clients, and divide them into portions."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from raysim.config import Config
from raysim.config.error_text import nearest, shorten, show
from raysim.data.dataset import Array, Dataset
from raysim.data.partition import Labels, partition_rows, split_by_owner
from raysim.data.scenario import Task
from raysim.federation.availability import arrivals, departures
from raysim.federation.blurring import blur_boundaries, in_mixed_windows, in_stages
from raysim.federation.stream import Rows, Stream, in_windows, online
from raysim.system import seeding
from raysim.system.errors import ConfigError

STREAMS: Mapping[str, str] = {}  # no built-in streams; a custom one is package.module:function
NOTHING: Rows = np.empty(0, np.int32)


def make_streams(config: Config, dataset: Dataset, tasks: Sequence[Task]) -> list[Stream]:
    """Assign each task's training samples to the clients present in it, and put each client's samples in order.

    Raises:
        ConfigError: the configured partition is impossible, a client leaves before it arrives, or no client with
            samples is present in a task.
    """
    for client, (arrival, departure) in enumerate(zip(arrivals(config), departures(config), strict=True)):
        if departure <= arrival:
            problem = f"found client {client} in round {departure}, allowed: after round {arrival}, in which it arrives"
            raise ConfigError(f"clients.leave: {problem}")
    windows = config.scenario.windows
    if windows is not None and windows.windows is not None:
        positions = np.arange(windows.windows * windows.window, dtype=np.int32)
        return [in_windows([positions], [0], windows.window) for _ in range(config.clients.count)]
    count, labels = config.clients.count, _divided_by(config, dataset)
    rows_of_clients = [[NOTHING] * len(tasks) for _ in range(count)]
    orders = [_order_tasks(config, client, len(tasks)) for client in range(count)]
    run_parts = _partition(config, labels, count, 0, dataset.train.clients) if config.partition_per == "run" else None
    for number, task in enumerate(tasks):
        present = _present_in(config, [order.index(number) for order in orders], number)
        if run_parts is None:
            try:
                parts = [task.train[part] for part in _partition(config, labels[task.train], len(present), number)]
            except ConfigError as error:
                where = f"this is in task {number + 1} of {len(tasks)} ({shorten(task.name)})"
                raise ConfigError(f"{error}; {where}, and partition.per=run divides all tasks at once") from error
        elif len(task.train) == len(labels) and not config.scenario.ordered:
            parts = [run_parts[client] for client in present]  # not copied: all tasks share a client's rows
        else:
            in_task = split_by_owner(_owners(run_parts, len(labels))[task.train], count)
            parts = [task.train[in_task[client]] for client in present]
        if not any(map(len, parts)):
            problem = f"no client that is there in task {number + 1} has samples of it, allowed: at least one"
            raise ConfigError(f"partition: {problem}; see clients and partition")
        for client, part in zip(present, parts, strict=True):
            rows_of_clients[client][number] = part
    streams = zip(rows_of_clients, orders, strict=True)
    return [_make_stream(config, client, rows, order) for client, (rows, order) in enumerate(streams)]


def _divided_by(config: Config, dataset: Dataset) -> Labels:
    """Return the targets, or the number of each training sample's value in the column `partition.by`: int64 [N].

    Raises:
        ConfigError: there is no such column.
    """
    name, columns = config.partition.by, dataset.train.columns
    if name is None:
        return dataset.train.y
    if name not in columns:
        known = [*columns]
        allowed = f"{show(known)}{nearest(name, known)}" if known else "null, as this dataset has no columns"
        raise ConfigError(f"partition.by: found {show(name)}, allowed: {allowed}; see dataset.columns")
    return np.unique(columns[name], return_inverse=True)[1].astype(np.int64).reshape(-1)


def _order_tasks(config: Config, client: int, tasks: int) -> list[int]:
    """Return the order in which a client's tasks come."""
    if config.scenario.order == "same":
        return list(range(tasks))
    return [int(task) for task in seeding.generator(config.seed, "order", client).permutation(tasks)]


def _owners(parts: Sequence[Rows], rows: int) -> npt.NDArray[np.int64]:
    """Return the client of each row, or -1 for none."""
    owners = np.full(rows, -1)
    for client, part in enumerate(parts):
        owners[part] = client
    return owners


def _present_in(config: Config, stages: Sequence[int], task: int) -> list[int]:
    """Return the clients present in some round of a task. Under asynchronous boundaries these are all clients.

    `stages` are the places (from 0) that the task has in each client's order.
    """
    rounds = config.training.rounds_per_task
    if rounds is None:
        return list(range(config.clients.count))
    periods = enumerate(zip(stages, arrivals(config), departures(config), strict=True))
    present = [
        client
        for client, (stage, arrival, departure) in periods
        if arrival <= (stage + 1) * rounds and departure > 1 + stage * rounds
    ]
    if not present:
        raise ConfigError(f"clients: nobody is there in task {task + 1}, allowed: at least one client in every task")
    return present


def _partition(config: Config, labels: Labels, clients: int, number: int, ids: Array | None = None) -> list[Rows]:
    draws = seeding.generator(config.seed, "partition", number)
    return partition_rows(config.partition, labels, clients, draws, ids)


def _make_stream(config: Config, client: int, rows: Sequence[Rows], tasks: Sequence[int]) -> Stream:
    """Put a client's samples in order: by task unless boundaries are blurry. `tasks` is the order of its tasks.

    In a task of several windows the order is random, or that of the task's rows if the scenario is ordered.
    """
    ordered = [rows[task] for task in tasks]
    windows, rounds = config.scenario.windows, config.training.rounds_per_task
    divided, in_order = windows is not None or config.scenario.online, config.scenario.ordered
    if divided and not in_order:
        ordered = _shuffle(config, client, ordered)
    if config.scenario.blur:
        draws = seeding.generator(config.seed, "blur", client)
        times = blur_boundaries(ordered, tasks, config.scenario.blur, draws, nearest=in_order)
        if windows is not None:
            return in_mixed_windows(times, windows.window)
        return in_stages(times, tasks, rounds if divided and rounds else 1)
    if windows is not None:
        return in_windows(ordered, tasks, windows.window)
    if divided and rounds is not None:
        return online(ordered, tasks, rounds)
    return Stream(ordered, tasks)


def _shuffle(config: Config, client: int, rows: Sequence[Rows]) -> list[Rows]:
    draws = seeding.generator(config.seed, "arrival", client)
    return [of_task[draws.permutation(len(of_task))] for of_task in rows]
