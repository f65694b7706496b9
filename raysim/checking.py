"""`raysim check`: what a run would start and what it would cost, without starting it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from raysim import resources
from raysim.compatibility import check_methods
from raysim.config import Config
from raysim.federation import Federation, build_federation
from raysim.models.building import check_model
from raysim.seeding import torch_untouched

MIB = 2**20


def estimate(config: Config) -> Iterator[tuple[str, str]]:
    """Yield lines about a run as (label, text). Data are loaded, never downloaded.

    Raises:
        ConfigError: as the run itself would.
    """
    with torch_untouched():
        methods = check_methods(config)
        capacity = resources.this_machine()
        if config.resources.address is None:
            resources.place(config, capacity)
        federation = build_federation(config, download=False)
        model = check_model(config, federation.shape, federation.classes)
    sent = model.weights().nbytes
    rounds = federation.calendar.rounds
    sizes = [stream.size(window) for stream in federation.streams for window in range(stream.windows)]
    yield "run", f"{config.name}, seed {config.seed}, methods: {', '.join(methods) or 'none (FedAvg)'}"
    yield "data", _data(federation, config.evaluation.split)
    yield "tasks", "; ".join(task.name for task in federation.tasks)
    yield "clients", f"{config.clients.count}, each with {min(sizes)} to {max(sizes)} samples at a time"
    yield "model", f"{config.model.name}: {len(model.parameters):,} trained parameters, {sent / MIB:.2f} MiB as sent"
    yield "rounds", f"{rounds}, with at most {_steps(config, federation):,} local steps"
    each = rounds * _cohort(config) * sent / MIB
    yield "model bytes", f"{each:.1f} MiB up and {each:.1f} MiB down in the whole run, methods' own terms not counted"
    if config.resources.address is None:
        nbytes = federation.dataset.train.x.nbytes + federation.dataset.test.x.nbytes
        place = resources.place(config, capacity, nbytes)
        most = max(len(clients) for clients in place.clients)
        share = f"{place.cpus:g} CPUs and {place.gpus:g} GPUs each"
        yield "actors", f"1 coordinator; {place.actors} hosts of up to {most} clients, with {share}"
        yield "memory", f"about {place.memory_bytes / 2**30:.1f} GiB in all processes"
    else:
        yield "actors", f"placed by the cluster at {config.resources.address}"


def _data(federation: Federation, split: str) -> str:
    train, test = federation.dataset.train, federation.dataset.test
    shape = " x ".join(map(str, federation.shape))
    return f"{len(train):,} training and {len(test):,} {split} samples of {shape}, {federation.classes} classes"


def _cohort(config: Config) -> int:
    wanted, clients = config.participation, config.clients.count
    return wanted.count if wanted.count is not None else max(1, round((wanted.fraction or 1.0) * clients))


def _steps(config: Config, federation: Federation) -> int:
    """Return the local steps of a run in which everybody takes part."""
    size, calendar = config.training.batch_size, federation.calendar
    spells = (spell for client in range(config.clients.count) for spell in calendar.spells(client))
    batches = sum(math.ceil(samples / size) * rounds for samples, rounds in spells)
    return batches * config.training.local_epochs
