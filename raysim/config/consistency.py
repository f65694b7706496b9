"""What must hold across the blocks of a config, beyond what each of them checks by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydantic_core import InitErrorDetails

from raysim.config.block import REQUIRED, explained
from raysim.config.blocks import MOST_ROUNDS
from raysim.config.messages import nearest, show
from raysim.config.time import Asynchronous, Moment

if TYPE_CHECKING:
    from raysim.config.schema import Config

Errors = Iterator[InitErrorDetails]


def contradictions(config: Config) -> Errors:
    """Yield an error for every two blocks that do not go together."""
    yield from _participation(config)
    yield from _domains(config)
    yield from _task_length(config)
    if config.scenario.windows is not None:
        yield from _without_task_ids(config)
        if config.scenario.windows.stream is not None:
            yield from _own_stream(config)
    if config.scenario.online:
        yield from _seen_once(config)
    if isinstance(config.schedule, Asynchronous):
        yield from _asynchronous(config, config.schedule)
    yield from _clients(config)
    yield from _dashboard(config)


def _dashboard(config: Config) -> Errors:
    if config.resources.dashboard and config.resources.address is not None:
        words = "found true, allowed: false with resources.address, whose cluster has its own or none"
        yield explained(("resources", "dashboard"), words, True)


def _participation(config: Config) -> Errors:
    count = config.participation.count
    if count is not None and count > config.clients.count:
        words = f"found {count}, allowed: at most clients.count ({config.clients.count})"
        yield explained(("participation", "count"), words, count)


def _domains(config: Config) -> Errors:
    domains = config.domains
    if domains is not None and not any(domain.same_as(config.dataset) for domain in domains):
        found, titles = config.dataset.title, [domain.title for domain in domains]
        allowed = f"one of scenario.shift.domains, {show(titles)}"
        words = f"found {show(found)}, allowed: {allowed}{nearest(found, titles)}"
        yield explained(("dataset", "name"), words, config.dataset.name)


def _task_length(config: Config) -> Errors:
    at, rounds = ("training", "rounds_per_task"), config.training.rounds_per_task
    if config.scenario.windows is not None:
        if rounds is not None:
            words = f"found {rounds}, allowed: null under asynchronous boundaries, where rounds_per_window says it"
            yield explained(at, words, rounds)
    elif rounds is None:
        yield explained(at, f"{REQUIRED}, allowed: a whole number >= 1", missing=True)
    elif config.scenario.tasks * rounds > MOST_ROUNDS:
        words = (
            f"found {rounds}, allowed: at most {MOST_ROUNDS // config.scenario.tasks}, which are {MOST_ROUNDS} in all"
        )
        yield explained(at, words, rounds)
    elif 2 * config.scenario.jitter >= rounds:
        jitter = config.scenario.jitter
        words = f"found {jitter}, allowed: less than half of training.rounds_per_task ({rounds})"
        yield explained(("scenario", "boundaries", "jittered", "rounds"), words, jitter)


def _without_task_ids(config: Config) -> Errors:
    """Under asynchronous boundaries nothing may depend on the task, which nobody is told."""
    why = "under asynchronous boundaries, where nobody is told the task"
    training, memory = config.training, config.memory
    if training.logits != "all":
        yield explained(("training", "logits"), f"found '{training.logits}', allowed: all {why}", training.logits)
    if training.lr_decay.per_task != 1:
        found = training.lr_decay.per_task
        yield explained(("training", "lr_decay", "per_task"), f"found {found}, allowed: 1.0 {why}", found)
    if training.lr_decay.per_round != 1 and training.lr_decay.restart:
        yield explained(("training", "lr_decay", "restart"), f"found true, allowed: false {why}", True)
    if memory.per == "task":
        yield explained(("memory", "per"), f"found 'task', allowed: client {why}", memory.per)
    if memory.policy == "task_ring":
        yield explained(("memory", "policy"), f"found 'task_ring', allowed: the other policies {why}", memory.policy)
    if memory.fill == "boundary":
        yield explained(("memory", "fill"), f"found 'boundary', allowed: arrival {why}", memory.fill)
    if config.scenario.online:
        words = "found true, allowed: false under asynchronous boundaries, where rounds_per_window=1 is the same"
        yield explained(("scenario", "online"), words, True)


def _own_stream(config: Config) -> Errors:
    """A stream of the user's own has samples that raysim does not know before they come."""
    why = "with a stream of your own, whose samples are not known before they come"
    evaluation = config.evaluation
    if evaluation.split == "validation":
        yield explained(("evaluation", "split"), f"found 'validation', allowed: test {why}", evaluation.split)
    if evaluation.per_client:
        yield explained(("evaluation", "per_client"), f"found true, allowed: false {why}", True)


def _seen_once(config: Config) -> Errors:
    if config.training.local_epochs > 1:
        found = config.training.local_epochs
        words = f"found {found}, allowed: 1 with scenario.online, where each sample is trained on once"
        yield explained(("training", "local_epochs"), words, found)
    if config.scenario.jitter:
        words = f"found {config.scenario.jitter}, allowed: synchronous boundaries with scenario.online"
        yield explained(("scenario", "boundaries", "jittered", "rounds"), words, config.scenario.jitter)


def _asynchronous(config: Config, schedule: Asynchronous) -> Errors:
    wanted = config.participation
    if wanted.count is not None or wanted.fraction != 1 or wanted.sampler != "uniform":
        words = "found a choice of clients per round, allowed: none under schedule.kind=asynchronous; use concurrency"
        yield explained(("participation",), words)
    if schedule.mixing == "models" and schedule.buffer_size != 1:
        words = f"found {schedule.buffer_size}, allowed: 1 with mixing=models, which takes one model at a time"
        yield explained(("schedule", "buffer_size"), words, schedule.buffer_size)
    if schedule.mixing == "models" and schedule.rate > 1:
        words = f"found {schedule.rate}, allowed: at most 1 with mixing=models"
        yield explained(("schedule", "rate"), words, schedule.rate)


def _clients(config: Config) -> Errors:
    """Check arrivals and departures against the number of clients."""
    clients, arrive = config.clients, config.clients.arrive
    tables: dict[tuple[str, ...], tuple[Moment, ...]] = {("leave",): clients.leave}
    if arrive is not None and arrive.at is not None:
        tables["arrive", "at"] = arrive.at
    for keys, table in tables.items():
        for client in sorted({client for moment in table for client in moment.clients}):
            if client >= clients.count:
                words = f"found client {client}, allowed: 0 to {clients.count - 1} (clients.count is {clients.count})"
                yield explained(("clients", *keys), words)
    if arrive is not None and arrive.first is not None and arrive.per_task is not None:
        whole = arrive.first + arrive.per_task * (config.scenario.tasks - 1)
        if whole != clients.count:
            words = f"found {clients.count}, allowed: {whole}, which is clients.arrive's first and per_task together"
            yield explained(("clients", "count"), words, clients.count)
        if config.scenario.windows is not None:
            words = "found first and per_task, allowed: at under asynchronous boundaries, which have no task's start"
            yield explained(("clients", "arrive"), words)
