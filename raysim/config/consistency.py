"""Rules between the blocks of a config. Each block checks its own keys itself."""

from collections.abc import Iterator
from functools import reduce

from raysim.config.document import REQUIRED, Mistake, to_plain
from raysim.config.error_text import nearest, show
from raysim.config.experiment import FACTORS, MOST_ROUNDS
from raysim.config.schema import Config
from raysim.config.timing import AsynchronousSchedule

PARTITIONS_BY_LABEL = ("shards", "dirichlet", "pathological")
PARTITIONS_WITHOUT_LABELS = ("iid", "quantity")
POLICIES_BY_CLASS = ("class_balanced", "class_ring")

Rules = Iterator[tuple[bool, str, str]]  # whether a key's value goes against the others, the key, what it may be


def contradictions(config: Config) -> Iterator[Mistake]:
    """Yield the mistakes between blocks."""
    yield from _domains(config)
    yield from _task_length(config)
    for is_broken, key, allowed in _rules(config):
        if is_broken:
            yield _explain_value(config, key, allowed)
    yield from _choice_of_clients(config)
    yield from _clients(config)


def _explain_value(config: Config, key: str, allowed: str) -> Mistake:
    keys = tuple(key.split("."))
    return Mistake(keys, f"found {show(to_plain(reduce(getattr, keys, config)))}, allowed: {allowed}")


def _domains(config: Config) -> Iterator[Mistake]:
    domains = config.domains
    if domains is not None and not any(domain.same_as(config.dataset) for domain in domains):
        found, titles = config.dataset.title, [domain.title for domain in domains]
        if found in titles:
            keys, of_domain = config.dataset.keys(), domains[titles.index(found)].keys()
            key = next(key for key, value in keys.items() if value != of_domain.get(key))
            where = f"as in scenario.shift.domains.{titles.index(found)}; or change both"
            words = f"found {show(to_plain(keys[key]))}, allowed: {show(to_plain(of_domain.get(key)))}, {where}"
            yield Mistake(("dataset", key), words)
            return
        allowed = f"one of scenario.shift.domains, {show(titles)}"
        yield Mistake(("dataset", "name"), f"found {show(found)}, allowed: {allowed}{nearest(found, titles)}")


def _task_length(config: Config) -> Iterator[Mistake]:
    key, rounds, scenario = "training.rounds_per_task", config.training.rounds_per_task, config.scenario
    if scenario.windows is not None:
        if rounds is not None:
            yield _explain_value(config, key, "null under asynchronous boundaries, where rounds_per_window says it")
    elif rounds is None:
        yield Mistake(tuple(key.split(".")), f"{REQUIRED}, allowed: a whole number >= 1", missing=True)
    elif scenario.tasks * rounds > MOST_ROUNDS:
        most = f"at most {MOST_ROUNDS // scenario.tasks}, which are {MOST_ROUNDS} in all"
        yield _explain_value(config, key, most)
    elif 2 * scenario.jitter >= rounds:
        most = f"less than half of training.rounds_per_task ({rounds})"
        yield _explain_value(config, "scenario.boundaries.jittered.rounds", most)


def _rules(config: Config) -> Rules:
    scenario, schedule, resources, clients = config.scenario, config.schedule, config.resources, config.clients.count
    yield (config.participation.count or 0) > clients, "participation.count", f"at most clients.count ({clients})"
    if scenario.windows is not None:
        yield from _rules_without_task_ids(config)
        if scenario.stream is not None:
            why = "with a custom stream, whose samples are not known before they come"
            yield config.evaluation.split == "validation", "evaluation.split", f"test {why}"
            yield config.evaluation.per_client, "evaluation.per_client", f"false {why}"
            yield config.evaluation.averages_clients, "evaluation.model", f"global {why}"
            tests = "{domains: [...]} with a custom stream, whose samples it would not change"
            yield config.by_pixels, "scenario.shift", f"{tests}; or scenario.kind=class_incremental"
            yield config.dataset.label_rate is not None, "dataset.label_rate", f"null {why}"
    if scenario.blur:
        yield scenario.tasks == 1, "scenario.blur", "0.0 with scenario.tasks=1, which has no neighbors"
        own_heads = "all with scenario.blur, where a client has samples of several domains at a time"
        yield config.heads > 1, "training.logits", own_heads
        itself = "0.0 with a custom stream, which says itself what comes when"
        yield scenario.stream is not None, "scenario.blur", itself
    by_ids = "run where samples are dealt by their client ids, which are the same in every task"
    yield config.partition.per == "task" and config.partition.by_ids, "partition.per", by_ids
    kind = config.partition.kind
    without = config.partition.by_ids or kind in PARTITIONS_WITHOUT_LABELS
    yield without and config.partition.by is not None, "partition.by", f"null with {kind}, which has no use for it"
    if scenario.online:
        once = "1 with scenario.online, where each sample is trained on once"
        yield (config.training.local_epochs or 1) > 1, "training.local_epochs", once
        yield config.training.local_steps is not None, "training.local_steps", f"null and local_epochs {once}"
        in_step = "synchronous boundaries with scenario.online"
        yield scenario.jitter > 0, "scenario.boundaries.jittered.rounds", in_step
    yield from _rules_of_the_objective(config)
    yield from _rules_of_the_cache(config)
    by_model = config.model.keys().get("normalize") is True
    in_model = "with model.normalize, which does it in the model"
    yield by_model and config.dataset.normalize != "none", "dataset.normalize", f"none {in_model}"
    yield by_model and config.dataset.input_scale != 1, "dataset.input_scale", f"1 {in_model}"
    if isinstance(schedule, AsynchronousSchedule) and schedule.mixing == "models":
        one = "1 with mixing=models, which takes one model at a time"
        yield schedule.buffer_size != 1, "schedule.buffer_size", one
        yield schedule.rate > 1, "schedule.rate", "at most 1 with mixing=models"
    if isinstance(schedule, AsynchronousSchedule):
        most = max(clients, AsynchronousSchedule.model_fields["buffer_size"].default)
        yield schedule.buffer_size > most, "schedule.buffer_size", f"at most {most} (clients.count is {clients})"
    if resources.cuda_graphs:
        on_cpus = "false without resources.gpus_per_actor: CPUs have no graphs"
        yield not resources.gpus_per_actor, "resources.cuda_graphs", on_cpus
        in_full = "full with resources.cuda_graphs"
        yield config.training.precision != "full", "training.precision", in_full
        model = config.model
        yield model.precision != "float32", "model.precision", "float32 with resources.cuda_graphs"
        yield model.checkpointing, "model.checkpointing", "false with resources.cuda_graphs, which keep all activations"
        one_pass = "false with training.logits=task on new domains: a graph is of one task's head"
        yield config.heads > 1, "resources.cuda_graphs", one_pass
    training = config.training
    everywhere = "full with model.precision=bfloat16, which is for all passes"
    twice = config.model.precision != "float32" and training.precision != "full"
    yield twice, "training.precision", everywhere
    parts = f"at most training.batch_size ({training.batch_size}), as a part has at least one sample"
    yield training.accumulate > training.batch_size, "training.accumulate", parts
    scaled = "false with training.lr_scales, which makes an optimizer for each part of the model"
    yield bool(config.training.lr_scales) and config.training.keep_optimizer, "training.keep_optimizer", scaled
    heads = "false with training.logits=task, as kept momentum would move the weights of other tasks' outputs"
    yield config.training.logits == "task" and config.training.keep_optimizer, "training.keep_optimizer", heads
    yield from _rules_of_vectorising(config)
    own = "false with resources.address, whose cluster has its own or none"
    yield resources.dashboard and resources.address is not None, "resources.dashboard", own


def _rules_of_vectorising(config: Config) -> Rules:
    """Yield the rules of clients that train as one program: they take the same steps on labels of one split."""
    training = config.training
    if training.vectorise is None:
        return
    alone = "null with schedule.kind=asynchronous, where clients train one by one"
    yield isinstance(config.schedule, AsynchronousSchedule), "training.vectorise", alone
    labels = f"null with objective={config.objective.named}; or objective=classification"
    yield config.objective.named != "classification", "training.vectorise", labels
    yield config.scenario.stream is not None, "training.vectorise", "null with a custom stream"
    yield config.heads > 1, "training.vectorise", "null with training.logits=task on new domains"
    own_augmentation = any(":" in augment.name for augment in config.dataset.augment)
    yield own_augmentation, "training.vectorise", "null with a custom augmentation, which gets single batches"
    own_optimizer = ":" in training.optimizer.name
    yield own_optimizer, "training.vectorise", "null with a custom optimizer, which may compute over clients"
    for key, default in (("accumulate", 1), ("precision", "full"), ("keep_optimizer", False), ("lr_scales", {})):
        shown = f"{show(default)} with training.vectorise"
        yield getattr(training, key) != default, f"training.{key}", shown
    yield config.model.precision != "float32", "model.precision", "float32 with training.vectorise"
    yield config.model.checkpointing, "model.checkpointing", "false with training.vectorise"


def _rules_of_the_objective(config: Config) -> Rules:
    """Yield the rules of objectives without classes, and of those with another metric than accuracy."""
    which = f"with objective={config.objective.named}"
    if not config.objective.has("classes"):
        why = f"{which}, which has no classes"
        by_class = config.scenario.kind == "class_incremental"
        yield by_class, "scenario.kind", f"domain_incremental, by_column or your own as package.module:name {why}"
        by_label = config.partition.kind in PARTITIONS_BY_LABEL and config.partition.by is None
        others = f"iid, quantity, your own as package.module:name, or partition.by with a column {why}"
        yield by_label, "partition.kind", others
        policy = config.memory.policy
        yield policy is not None and policy.name in POLICIES_BY_CLASS, "memory.policy", f"the other policies {why}"
    if config.objective.has("in_image"):
        why = f"{which}, whose targets it would not move"
        yield config.by_pixels, "scenario.shift", f"{{domains: [...]}} {why}"
        augment = any(augment.name in ("crop", "flip") for augment in config.dataset.augment)
        yield augment, "dataset.augment", f"your own that move no pixel, as package.module:name, {why}"
    if not config.objective.has("counts"):
        why = f"{which}, whose metric is not the accuracy"
        yield config.evaluation.per_client, "evaluation.per_client", f"false {why}"
        yield config.evaluation.top_k > 1, "evaluation.top_k", f"1 {why}"
        yield config.evaluation.averages_clients, "evaluation.model", f"global {why}"


def _rules_of_the_cache(config: Config) -> Rules:
    """Yield the rules of features that are computed once: every sample is known and always looks the same."""
    if not config.model.cache:
        return
    drawn = "false with dataset.augment, whose samples change each time"
    yield bool(config.dataset.augment), "model.cache", drawn
    moved = "false with rotations or permutations, which change the samples of each task"
    yield config.by_pixels, "model.cache", moved
    streamed = "false with a custom stream, whose samples are not known before"
    yield config.scenario.stream is not None, "model.cache", streamed
    in_image = f"false with objective={config.objective.named}, which needs the samples"
    yield config.objective.has("in_image"), "model.cache", in_image


def _rules_without_task_ids(config: Config) -> Rules:
    """Yield the rules of asynchronous boundaries: nothing may depend on the task, as clients do not know it."""
    why = "under asynchronous boundaries, where nobody is told the task"
    training, decay, memory = config.training, config.training.lr_decay.keys(), config.memory
    yield training.logits != "all", "training.logits", f"all {why}"
    if training.lr_decay.name == FACTORS:
        yield decay["per_task"] != 1, "training.lr_decay.per_task", f"1.0 {why}"
        yield decay["per_round"] != 1 and decay["restart"] is True, "training.lr_decay.restart", f"false {why}"
    yield memory.per == "task", "memory.per", f"client {why}"
    by_task = memory.policy is not None and memory.policy.name == "task_ring"
    yield by_task, "memory.policy", f"the other policies {why}"
    yield memory.fill == "boundary", "memory.fill", f"arrival {why}"
    once = "false under asynchronous boundaries, where rounds_per_window=1 is the same"
    yield config.scenario.online, "scenario.online", once


def _choice_of_clients(config: Config) -> Iterator[Mistake]:
    wanted = config.participation
    chosen = wanted.count is not None or wanted.fraction != 1 or wanted.sampler.name != "uniform"
    if chosen and isinstance(config.schedule, AsynchronousSchedule):
        words = "found a choice of clients per round, allowed: none under schedule.kind=asynchronous; use concurrency"
        yield Mistake(("participation",), words)


def _clients(config: Config) -> Iterator[Mistake]:
    """Check arrivals and departures against the number of clients."""
    clients, arrive = config.clients, config.clients.arrive
    tables = {("leave",): clients.leave, ("arrive", "at"): (arrive.at if arrive else None) or ()}
    named = {keys: [client for moment in table for client in moment.clients] for keys, table in tables.items()}
    named["forget",] = [client for request in clients.forget for client in request.clients or ()]
    for keys, ids in named.items():
        for client in sorted({*ids}):
            if client >= clients.count:
                words = f"found client {client}, allowed: 0 to {clients.count - 1} (clients.count is {clients.count})"
                yield Mistake(("clients", *keys), words)
    if arrive is not None and arrive.first is not None and arrive.per_task is not None:
        whole = arrive.first + arrive.per_task * (config.scenario.tasks - 1)
        if whole != clients.count:
            allowed = f"{whole}, which is clients.arrive's first and per_task together"
            yield _explain_value(config, "clients.count", allowed)
        if config.scenario.windows is not None:
            words = "found first and per_task, allowed: at under asynchronous boundaries, which have no task's start"
            yield Mistake(("clients", "arrive"), words)
