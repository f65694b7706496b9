"""`raysim check`: what a run would start, send, compute and need, without starting it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from raysim.callbacks.callback_list import make_callbacks
from raysim.config import Config
from raysim.config.timing import AsynchronousSchedule
from raysim.data.dataset import MissingData
from raysim.data.loading import resolve_root
from raysim.engine.compatibility import check_fit_of_data, check_methods, sends_model
from raysim.engine.forgetting import follow_requests
from raysim.engine.hook_names import describe_unused
from raysim.engine.vectorised.support import advise, describe_one_at_a_time
from raysim.estimate import placement
from raysim.estimate.cost import Cost, foresee, plan_rehearsals
from raysim.estimate.memory import MemoryNeed, estimate_memory
from raysim.estimate.pace import pace
from raysim.estimate.placement import Placement
from raysim.evaluation.scoring import chunks_for
from raysim.federation.doubts import describe_doubts
from raysim.federation.features import FeaturePass
from raysim.federation.federation import Federation, build_federation
from raysim.launch.amounts import in_bytes_by_method, in_hours, in_milliseconds, in_number, in_units
from raysim.launch.request_cost import describe_requests
from raysim.models.building import check_model
from raysim.models.flat import FlatModel
from raysim.system.capacity import Capacity, describe_ignored, fit, this_machine
from raysim.system.children import at_once
from raysim.system.errors import ConfigError, RunError, Unreachable
from raysim.system.progress import tell_progress
from raysim.system.seeding import torch_untouched

SHOWN = 6  # number of tasks shown by name
LEAST_SERVING = 0.01  # of the time: a line shows the server's part if it is as large


class EstimateLine(NamedTuple):
    """A line about a run, and its numbers by the attributes of raysim.Estimate."""

    label: str
    text: str
    numbers: Mapping[str, Any] = {}


Lines = Iterator[EstimateLine]


def estimate_run(config: Config, cluster: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the lines of `estimate_lines` as (label, text)."""
    return ((line.label, line.text) for line in estimate_lines(config, cluster))


def estimate_lines(config: Config, cluster: bool = False) -> Lines:
    """Yield lines about a run. Data are loaded, never downloaded.

    If the config names a cluster, it is asked for its capacity. Requirements that are missing here are named: a cluster
    that answers, GPUs, the files of data that declare their size. All else is estimated.

    Args:
        config: the resolved config.
        cluster: whether a task on each node of the cluster looks at its software and its free space.

    Raises:
        MissingData: data are missing that declare no size; what is known by then has been yielded.
        ConfigError: as the run itself would; what is known by then has been yielded.
        RunError: a rehearsal failed, as with a mistake in a custom method; all else has been yielded.
    """
    if cluster and config.resources.address is None:
        raise ConfigError("resources.address: found null, allowed with --cluster: the address of a cluster")
    with torch_untouched():
        methods = check_methods(config)
        capacity = this_machine()
        if config.resources.address is None and not _lacks_gpus(config, capacity):
            placement.place(config, capacity)
    run = f"{config.name}, seed {config.seed}, methods: {', '.join(methods) or 'none (FedAvg)'}"
    try:
        with torch_untouched():
            tell_progress("reading the data")
            federation = raw = follow_requests(config, build_federation(config, download=False, pretend=True))
            model = check_model(config, federation.shape, federation.classes, federation.vocabulary)
            check_fit_of_data(config, model, federation)
            making = FeaturePass(config, raw) if config.model.cache else None
            if making is not None:
                federation = making.pretended()
            make_callbacks(config, federation.protocols)
    except MissingData:
        yield EstimateLine("run", run)
        yield from _without_data(config, capacity)
        raise
    yield EstimateLine("run", run)
    if warnings := [
        *describe_ignored(),
        *describe_unused(methods),
        *describe_one_at_a_time(config, methods),
        *describe_doubts(raw),
    ]:
        yield EstimateLine("warning", "; ".join(warnings))
    sizes = [stream.size(window) for stream in federation.streams for window in range(stream.windows)]
    sent = f"{in_units(model.weights().nbytes)} as sent" if sends_model(methods) else "never sent"
    about = "about " * _labels_missing(config, federation)
    rounds = f"{about * (config.scenario.windows is not None)}{federation.availability.rounds:,}"  # windows end by size
    of_splits = {"train_samples": len(raw.dataset.train), "test_samples": len(raw.dataset.test)}
    yield EstimateLine("data", _data(config, raw), of_splits)
    if raw.dataset.notes:
        yield EstimateLine("input", "; ".join(raw.dataset.notes))
    yield EstimateLine("tasks", _tasks([task.name for task in federation.tasks]), {"tasks": len(federation.tasks)})
    span = f"{min(sizes):,} to {max(sizes):,}" if min(sizes) < max(sizes) else f"{sizes[0]:,}"
    clients = config.clients.count
    yield EstimateLine("clients", f"{clients:,}, each with {about}{span} samples at a time", {"clients": clients})
    if config.dataset.label_rate is not None and federation.unlabelled is not None:
        known, others = (sum(map(len, streams)) for streams in (federation.streams, federation.unlabelled.streams))
        yield EstimateLine(
            "labels", f"{known:,} of the clients' {known + others:,} samples over all tasks have a label"
        )
    size = {"parameters": len(model.parameters), "model_bytes": model.weights().nbytes * sends_model(methods)}
    yield EstimateLine("model", f"{config.model.name}: {len(model.parameters):,} trained parameters, {sent}", size)
    if model.notes:
        yield EstimateLine("weights", "; ".join(note.removeprefix("weights: ") for note in model.notes))
    if advice := advise(config, methods, model):
        yield EstimateLine("advice", advice)
    if making is not None:
        yield EstimateLine("cache", _cache(making))
    try:
        with torch_untouched():
            rehearsals = at_once(plan_rehearsals(config, federation, model), "rehearsing rounds with one client")
            tell_progress("adding up")
            need = estimate_memory(config, federation, model, rehearsals)
        cost = foresee(config, federation, model, rehearsals)
    except RunError:
        yield EstimateLine(
            "rounds", f"{rounds}; a rehearsal with one client and few samples failed: bytes, steps, time are unknown"
        )
        yield from _places(config, capacity, estimate_memory(config, federation, model), cluster)
        raise
    counts = {"rounds": cost.rounds, "updates": cost.updates}
    yield EstimateLine(
        "rounds", f"{rounds} with {_about(cost.unsure_updates, about)}{cost.updates:,} client updates", counts
    )
    yield from _work(cost, about)
    if cost.forgetting is not None:
        yield EstimateLine("forgetting", describe_requests(cost.forgetting))
    yield from _places(config, capacity, need, cluster)
    yield from _time(config, federation, model, cost, capacity, making)


def _without_data(config: Config, capacity: Capacity) -> Lines:
    """Yield what is known where the data are missing and nobody knows their size."""
    rounds = config.scenario.tasks * (config.training.rounds_per_task or 0)
    why = "steps, bytes, memory and time depend on the data, which are not here"
    yield EstimateLine("rounds", f"{rounds:,}; {why}" if rounds else f"not known: they, {why}")
    places = _places(config, capacity, MemoryNeed(clients=[0] * config.clients.count))
    yield from (line for line in places if "memory" not in line.label)


def _lacks_gpus(config: Config, capacity: Capacity) -> bool:
    """Return whether a config asks for GPUs where there are none, so that it is meant for another machine."""
    return max(config.resources.gpus_per_actor, config.resources.server_gpus) > 0 and not capacity.gpus


def _labels_missing(config: Config, federation: Federation) -> bool:
    """Return whether who has how many samples depends on labels of data that are missing."""
    kind = config.partition.kind
    across = kind == "shards" and config.domains is not None and config.partition_per == "run"
    by_label = not config.scenario.by_domain or kind not in ("iid", "shards", "quantity") or across
    return bool(federation.dataset.missing) and by_label


def _data(config: Config, federation: Federation) -> str:
    train, test, missing = federation.dataset.train, federation.dataset.test, federation.dataset.missing
    targets = f"{federation.classes} classes" if train.labelled else f"targets {train.y.dtype} {[*train.y.shape[1:]]}"
    sizes = f"{len(train):,} training and {len(test):,} {config.evaluation.split} samples"
    said = f"{sizes} of {federation.dataset.dimensions}, {targets}"
    if not missing:
        return said
    evenly = ", its classes equally frequent" * _labels_missing(config, federation)
    files = f"the files of {', '.join(missing)} are not in {resolve_root(config.dataset.root)}"
    return f"{said}, as declared{evenly}: {files}" + "; a run downloads what raysim can" * config.dataset.download


def _tasks(names: Sequence[str]) -> str:
    shown = names if len(names) <= SHOWN else [*names[: SHOWN - 2], "...", names[-1]]
    return f"{len(names)}: {'; '.join(shown)}"


def _cache(making: FeaturePass) -> str:
    """Return the size of the features, and whether a run computes them."""
    size = f"{in_units(making.nbytes)} of features of {' x '.join(map(str, making.shape))} take the samples' place"
    computed = making.to_compute
    return f"{size}; those of {computed:,} samples are computed first" if computed else f"{size}, from files"


def _work(cost: Cost, about: str) -> Lines:
    """Yield steps and bytes; `about` stands before what depends on labels that are missing."""
    yield EstimateLine(
        "steps", f"{_about(cost.unsure_steps, about)}{cost.steps:,} gradient steps", {"steps": cost.steps}
    )
    for way, nbytes in (("up", cost.up), ("down", cost.down)):
        text = f"{_about(cost.unsure_bytes, about)}{in_bytes_by_method(nbytes, cost.rounds)}"
        yield EstimateLine(f"bytes {way}", text, {f"bytes_{way}": sum(nbytes.values())})


def _about(unsure: bool, about: str) -> str:
    return "about " if unsure else about


def _places(config: Config, capacity: Capacity, need: MemoryNeed, cluster: bool = False) -> Lines:
    """Yield the actors' placement and needs. Raises ConfigError if the resources are not available."""
    if config.resources.address is not None:
        yield from _elsewhere(config, config.resources.address, need, cluster)
        return
    if _lacks_gpus(config, capacity):
        placement.check_custom(config, capacity)
        yield from _asked_for(config, need, "on a machine with GPUs, which this one is not")
        return
    place = placement.place(config, capacity, need)
    where = f"on this machine ({_shares(capacity.cpus, capacity.gpus)})"
    yield EstimateLine("actors", _actors(place, where), {"actors": 1 + place.actors})
    whole = "" if capacity.memory is None else f" of the {in_units(capacity.memory)} here"
    largest = _largest(place, need)
    numbers = {"memory_bytes": place.memory_bytes, "host_memory_bytes": largest}
    yield EstimateLine(
        "memory", f"about {in_units(place.memory_bytes)}{whole}, a host up to {in_units(largest)}", numbers
    )
    yield from _warning(place)
    yield from _gpu_memory(config, need, place.clients)


def _elsewhere(config: Config, address: str, need: MemoryNeed, asks: bool) -> Lines:
    """Yield the actors' placement on a running cluster, or, if none answers, what they would request.

    If `asks`, yield also what a task on each node finds, and place no actor on a node that is unfit.
    """
    from raysim.actors import compat

    compat.import_ray(loopback=False)
    from raysim.actors.joining import joined_cluster
    from raysim.actors.preflight import Preflight

    nodes = f"{'packed onto few' if config.resources.placement == 'pack' else 'spread over the'} nodes of {address}"
    try:
        asked = Preflight(config, need)
        with joined_cluster(address) as there, asked.naming():
            if asks:
                asked.ask()
                yield from (EstimateLine(f"node {number}", line) for number, line in enumerate(asked.lines(), start=1))
                there = asked.capacity()
            lacking = _lacks_gpus(config, there)
            place = None if lacking else placement.place(config, there, need)
    except Unreachable as error:
        if asks:
            raise
        yield from _asked_for(config, need, nodes)
        yield EstimateLine("cluster", str(error))
        return
    if place is None:
        yield from _asked_for(config, need, f"{nodes}, none of which has a GPU now")
        return
    hosts, most = placement.hosts_by_node(place, there), _largest(place, need)
    where = ", ".join(f"{count} on {in_number(nodes, 'node')}" for count, nodes in Counter(hosts).items())
    kinds = Counter(_shares(node.cpus, node.gpus) for node in there.nodes)
    all_nodes = ", ".join(f"{in_number(count, 'node')} with {has}" for has, count in kinds.items())
    yield EstimateLine(
        "actors", _actors(place, f"at {address}, {where} (of {all_nodes})"), {"actors": 1 + place.actors}
    )
    resting, working = most - need.working, placement.at_once(config, hosts[0], place.cpus) * need.working
    fullest = need.node + hosts[0] * resting + working
    on_a_node = f"about {in_units(fullest)} on a node with {in_number(hosts[0], 'host')}"
    text = f"{on_a_node}, {in_units(need.driver)} more on this one, a host up to {in_units(most)}"
    yield EstimateLine("memory", text, {"memory_bytes": fullest, "host_memory_bytes": most})
    yield from _warning(place)
    yield from _gpu_memory(config, need, place.clients)


def _warning(place: Placement) -> Lines:
    """Yield that memory is lacking, where `resources.memory` is warn and it is."""
    if place.warning:
        yield EstimateLine("memory warning", place.warning)


def _gpu_memory(config: Config, need: MemoryNeed, clients: Iterable[Sequence[int]]) -> Lines:
    """Yield what the server, and hosts with these clients, take of a GPU if they use one: nothing of it is measured."""
    if config.resources.server_gpus and need.server_gpu:
        what = "its auxiliary networks and their training; copies of the model and CUDA's own 0.6 GiB beside"
        yield EstimateLine("GPU memory of the server", f"about {in_units(need.server_gpu)} for {what}")
    share = config.resources.gpus_per_actor
    if not share:
        return
    most = max(map(need.gpu_with, clients))
    beside = f", {in_units(fit(share, 1) * most)} for the {fit(share, 1)} that share one" if share <= 0.5 else ""
    what = "data, vectors of the model's length, what methods keep and a batch's activations; CUDA's own 0.6 GiB beside"
    yield EstimateLine(
        "GPU memory", f"up to {in_units(most)} for a host{beside}, by arithmetic: {what}", {"gpu_memory_bytes": most}
    )


def _actors(place: Placement, where: str) -> str:
    shares = _shares(place.cpus, place.gpus)
    own = "".join(f", {amount:g} {name}" for name, amount in place.custom.items())
    hosts = f"{in_number(place.actors, 'host')} {where}"
    return f"{_coordinator(*place.server)} and {hosts}; each host has {_clients(place)}, {shares}{own}"


def _coordinator(cpus: float, gpus: float) -> str:
    shares = [in_number(share, what) for share, what in ((cpus, "CPU"), (gpus, "GPU")) if share]
    return f"1 coordinator{' with ' * bool(shares)}{' and '.join(shares)}"


def _largest(place: Placement, need: MemoryNeed) -> int:
    return max(need.host_with(clients) for clients in place.clients)


def _asked_for(config: Config, need: MemoryNeed, where: str) -> Lines:
    """Yield what the actors would request, regardless of what is available."""
    wanted, clients = config.resources, config.clients.count
    if wanted.clients_per_actor == "auto":
        hosts, packed = "as many hosts as there is room for", clients
    else:
        packed = min(clients, wanted.clients_per_actor)
        hosts = in_number(-(-clients // packed), "host")
    cpus = wanted.cpus_per_actor
    share = "an equal share of the CPUs, at most 1" if cpus == "auto" else in_number(cpus, "CPU")
    own = [f"{amount:g} {name}" for name, amount in wanted.custom.items()]
    asks = "; ".join([share, in_number(wanted.gpus_per_actor, "GPU"), *own])
    coordinator = _coordinator(wanted.server_cpus, wanted.server_gpus)
    yield EstimateLine("actors", f"{coordinator} and {hosts}, {where}; each host asks for {asks}")
    most = need.host_with(range(packed))
    text = f"about {in_units(need.node)} on a node, and up to {in_units(most)} for each host there"
    yield EstimateLine("memory", text, {"host_memory_bytes": most})
    yield from _gpu_memory(config, need, [range(packed)])


def _clients(place: Placement) -> str:
    least, most = min(map(len, place.clients)), max(map(len, place.clients))
    return in_number(most, "client") if least == most else f"{least:,} or {in_number(most, 'client')}"


def _shares(cpus: float, gpus: float) -> str:
    return f"{in_number(cpus, 'CPU')}, {in_number(gpus, 'GPU')}"


def _time(
    config: Config,
    federation: Federation,
    model: FlatModel,
    cost: Cost,
    capacity: Capacity,
    making: FeaturePass | None,
) -> Lines:
    """Estimate the run's time from this machine's for a step, for the evaluation of a sample, and for rounds."""
    away = ["the data"] * bool(federation.dataset.missing) + ["the GPUs"] * _lacks_gpus(config, capacity)
    if away:
        yield EstimateLine("time", f"not known: it is measured where {' and '.join(away)} are")
        return
    tell_progress("measuring the time of a step, an evaluation and a round")
    measured = pace(config, federation, model)
    in_rounds, at_ends = measured.seconds_of_server(cost)
    serving = in_rounds + at_ends
    before = making.to_compute * making.seconds_per_sample() if making and making.to_compute else 0.0
    training = cost.steps * measured.step + cost.beginnings * measured.beginning
    evaluating = cost.evaluations * sum(len(task.test) for task in federation.tasks) * measured.sample
    step, sample = in_milliseconds(measured.step), in_milliseconds(measured.sample)
    each = f"{step} a step and {sample} a test sample, measured here"
    if config.resources.address is not None:
        yield EstimateLine(
            "time", f"about {in_hours(training + evaluating + serving + before)} of one core like this one: {each}"
        )
        yield from _serving(cost, in_rounds, at_ends, training + evaluating + serving)
        return
    place = placement.place(config, capacity)
    hosts, testing = place.actors, placement.at_once(config, place.actors, place.cpus)
    cores, schedule = max(1, min(int(capacity.cpus), hosts)), config.schedule
    cohort = schedule.concurrency if isinstance(schedule, AsynchronousSchedule) else -(-cost.updates // cost.rounds)
    busy = max(1, min(cores, cohort))
    chunks = len(chunks_for(model, federation))
    calls = cost.evaluations * min(testing, chunks) + sum(min(hosts, k) * many for k, many in cost.orders.items())
    rounds = cost.rounds * measured.round_on_ray + calls * measured.call
    passing = before / max(1, int(capacity.cpus))
    whole = training / busy + evaluating / cores + rounds + serving + passing
    alone = training + evaluating + cost.rounds * measured.round + serving + passing
    also = f"{in_milliseconds(rounds / cost.rounds)} more a round"
    also += f"; the features take {in_hours(passing)} of it" if passing else ""
    lasting = f"about {in_hours(whole)} plus startup, {in_number(busy, 'host')} at a time"
    text = f"{lasting}, or {in_hours(alone)} with --local: {each}; {also}"
    yield EstimateLine("time", text, {"seconds": whole, "seconds_local": alone})
    yield from _serving(cost, in_rounds, at_ends, whole)


def _serving(cost: Cost, in_rounds: float, at_ends: float, whole: float) -> Lines:
    """Yield the server's part of the time, if it is large enough to be seen. `whole` is the run's time in seconds."""
    serving, ends = in_rounds + at_ends, sum(cost.ends.values())
    if serving < LEAST_SERVING * whole:
        return
    parts = [(cost.rounds, in_rounds, "in rounds"), (ends, at_ends, "at tasks' ends")]
    large = [part for part in parts if part[1] >= LEAST_SERVING * serving]
    shown = ", ".join(f"{many:,} times {in_hours(spent / many)} {when}" for many, spent, when in large)
    yield EstimateLine("server", f"about {in_hours(serving)} of {in_hours(whole)}: {shown}")
