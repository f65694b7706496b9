"""The cost of a run before it starts: its plan, which is known, times what rehearsals showed."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from raysim.api.client import cut_into_batches
from raysim.api.messages import Broadcast
from raysim.api.method import overrides
from raysim.api.server import Server
from raysim.config import Config
from raysim.config.experiment import Training as TrainingConfig
from raysim.config.timing import AsynchronousSchedule
from raysim.engine.attendance import choosing_methods, plan_rounds, plan_updates
from raysim.engine.compatibility import make_methods, unsent_bytes
from raysim.engine.exchange import Traffic
from raysim.engine.memory_choice import choose_memory
from raysim.engine.orders import Train
from raysim.estimate.rehearsal import FEW, Messages, Round, Sizes, in_small, rehearse, rounds_of, sizes_in
from raysim.evaluation.scoring import depends_on_tasks_so_far
from raysim.federation.federation import Federation
from raysim.models.flat import FlatModel
from raysim.system.custom_code import is_custom
from raysim.system.errors import convert_to_run_error

BATCHES = (2, 3)  # of each task in the two rehearsals, so that messages that grow with the data differ


@dataclass
class Cost:
    """What a run costs, all clients together."""

    rounds: int
    updates: int = 0
    """The client updates."""
    steps: int = 0
    beginnings: int = 0
    """The batches of an epoch, over the first local trainings of clients in later stages."""
    evaluations: int = 0
    """The evaluations of all test sets."""
    orders: Counter[int] = field(default_factory=Counter)
    """The orders by the number of clients that each is for."""
    kinds: Counter[tuple[bool, bool]] = field(default_factory=Counter)
    """The rounds by whether they are of a later task than the first, and whether they are their task's first."""
    ends: Counter[tuple[bool, bool]] = field(default_factory=Counter)
    """The ends of tasks by whether it is a later task than the first, and whether it is the run's end."""
    up: Counter[str] = field(default_factory=Counter)
    """Bytes by method; "model" is the model and its updates."""
    down: Mapping[str, int] = field(default_factory=dict)
    unsure_updates: bool = False
    """Whether who takes part may depend on computed values; `unsure_steps` and `unsure_bytes` alike."""
    unsure_steps: bool = False
    unsure_bytes: bool = False


@dataclass(frozen=True)
class Sized:
    """A message or a broadcast of which only the size is known."""

    nbytes: int


SAMPLES = ("arrived", "remembered", "so_far")


@dataclass(frozen=True)
class StepRule:
    """What the number of steps of a local training follows from."""

    training: TrainingConfig
    normalises: bool
    """Whether the model has BatchNorm."""
    capacity: int
    """The most samples in a client's memory."""
    samples: str = "remembered"
    """What an epoch runs over: the samples that arrived, these and the remembered ones, or all so far."""
    by_epochs: bool = False
    """Whether training.local_steps is ignored."""
    idle: bool = False
    """Whether no step is taken."""

    def trained(self, sizes: Sizes) -> int:
        """Return the samples that an epoch runs over."""
        remembered = sizes.arrived + min(self.capacity, sizes.finished)
        return {"arrived": sizes.arrived, "remembered": remembered, "so_far": sizes.so_far}[self.samples]

    def batches(self, sizes: Sizes) -> int:
        """Return the batches of an epoch."""
        return len(cut_into_batches(self.trained(sizes), self.training.batch_size, self.normalises))

    def steps(self, sizes: Sizes) -> int:
        """Return the steps of a local training."""
        batches, steps = self.batches(sizes) * (not self.idle), self.training.local_steps
        return (self.training.local_epochs or 1) * batches if self.by_epochs or steps is None else steps * (batches > 0)


def find_rule(
    config: Config, model: FlatModel, seen: Sequence[Round], rehearsed: TrainingConfig
) -> tuple[StepRule, bool]:
    """Return the simplest rule that gives the steps of the rehearsed rounds, and whether there is one."""
    memory = choose_memory(config, make_methods(config))
    capacity = 0 if memory is None else memory.capacity * (config.scenario.tasks if memory.per_task else 1)
    for idle, by_epochs, samples in product((False, True), (False, True), SAMPLES):
        rule = StepRule(rehearsed, model.normalises, capacity, samples, by_epochs, idle)
        seen_by = [(rule.trained(of.sizes), rule.steps(of.sizes)) for of in seen if of.sizes is not None]
        if seen_by == [(of.trained, of.steps) for of in seen if of.sizes is not None]:
            return replace(rule, training=config.training), True
    return StepRule(config.training, model.normalises, capacity), False


def foresee(config: Config, federation: Federation, model: FlatModel) -> Cost:
    """Return the cost of a run: rehearse its kinds of rounds, then go through its plan.

    Raises:
        RunError: the rehearsal failed.
    """
    rounds, size, seen = rounds_of(config), min(config.training.batch_size, FEW), list[Round]()
    again = [2] * len(rounds[:2])  # shows all kinds of rounds once more, with more data
    with convert_to_run_error("it failed in a rehearsal"):
        for batches, shown in zip(BATCHES, (rounds, again), strict=True):
            small = in_small(config, federation, batches, size, shown)
            seen += rehearse(*small, model, shown, few=FEW).rounds
        rule, is_found = find_rule(config, model, seen, small[0].training)
        cost = Forecast(config, federation, model, seen, rule).pass_through()
        cost.unsure_steps |= not is_found
        return cost


class Forecast:
    """A pass through a run's plan: its rounds, cohorts and messages, with a model that never changes.

    A round's kind is whether it is of the first task, and whether it is its task's first. Rounds of a kind are alike in
    the rehearsals if messages have a constant size. A client that does not take part in every round may be in another
    state than the rehearsed one. Then bytes are only sure if an operation has the same reply in rounds of all kinds.
    """

    def __init__(
        self, config: Config, federation: Federation, model: FlatModel, seen: Sequence[Round], rule: StepRule
    ) -> None:
        self.cost = Cost(federation.availability.rounds)
        self._config, self._federation, self._seen, self._rule = config, federation, seen, rule
        self._methods = make_methods(config)
        self._by_task = depends_on_tasks_so_far(model.module, federation)
        self._server = Server(config, federation, model)
        self._server.local_bytes = unsent_bytes(self._methods, model)
        self._traffic = Traffic()
        self._versions: Counter[str] = Counter()  # of broadcasts, by name
        self._trained: Counter[int] = Counter()  # by client: its local trainings
        self._stages: dict[int, int] = {}  # by client: the stage of its last local training
        self._changed: set[int] = set()  # the clients that trained since the last evaluation
        self._tested = (-1, -1)  # the last version of the model that was evaluated, and the task so far
        self._regular = not config.scenario.jitter  # whether clients are in the states of the rehearsed one

    def pass_through(self) -> Cost:
        """Return the cost."""
        cost = self.cost
        self._evaluate()
        if isinstance(self._config.schedule, AsynchronousSchedule):
            self._update_asynchronously()
        else:
            self._update_synchronously()
        cost.down = self._traffic.down_by_method
        replies = {
            (each.operation, tuple(sorted(each.up.items())))
            for done in self._seen
            for each in done.messages + done.at_end
        }
        alike = len(replies) == len({operation for operation, _ in replies})
        sent = {name for _, terms in replies for name, _ in terms}
        unseen = any(method.replies and name not in sent for name, method in self._methods.items())
        own = [method for method in self._methods.values() if is_custom(type(method))]
        cost.unsure_updates = bool(choosing_methods(self._methods))
        cost.unsure_bytes |= bool(own) or unseen or not (self._regular or alike)
        foreign = any(overrides(method.Client, "batches") for method in self._methods.values())
        cost.unsure_steps = bool(own) or foreign or self._rule.samples == "remembered"
        return cost

    def _update_synchronously(self) -> None:
        """Go through rounds in which the server waits for its cohort."""
        server, rounds = self._server, range(1, self.cost.rounds + 1)
        replying = any(method.replies for method in self._methods.values())
        for participants in plan_rounds(self._config, server, self._methods, rounds):
            server.cohort = participants.cohort
            self.cost.unsure_bytes |= replying and not server.cohort  # no rehearsed round is without replies
            self._traffic.count_sent(participants.dropped, {}, [server.model()])
            for each in self._messages() if server.cohort else ():
                self._send(server.cohort, each)
                self._receive(server.cohort, each)
                server.version += isinstance(each.operation, Train)
            self.cost.updates += len(server.cohort)
            self._end_round()

    def _update_asynchronously(self) -> None:
        """Pass through the server updates of an asynchronous schedule."""
        server, self._regular = self._server, False
        for update in plan_updates(self._config, self._federation.availability, server, self._methods):
            server.begin_round()
            for each in self._messages():
                self._send([dispatch.client for dispatch in update.dispatched], each)
                for dispatch in update.dispatched:
                    if dispatch.update is not None or dispatch.discarded:
                        self._receive([dispatch.client], each)
            server.version += bool(update.arrivals)
            self.cost.updates += len(update.arrivals)
            self._end_round()

    def _end_round(self) -> None:
        """Carry out what follows a task's last round, and the evaluations."""
        server, every = self._server, self._config.evaluation.every_rounds
        ends_row = server.round in self._federation.availability.rows
        self.cost.kinds[self._is_later, self._is_first] += 1
        if ends_row:
            self.cost.ends[self._is_later, server.round == self.cost.rounds] += 1
            ends = [done for done in self._seen if done.is_last and done.is_later == self._is_later]
            for each in self._common([done.at_end for done in ends]):
                server.version += each.replaced
                self._send(server.present, each)
                self._receive(server.present, each)
            server.version += ends[-1].replaced
        if ends_row or (every and server.round % every == 0):
            self._evaluate()

    @property
    def _is_later(self) -> bool:
        """Whether the current round is of a later task than the first."""
        return self._server.progress.task > 0

    @property
    def _is_first(self) -> bool:
        """Whether the current round is its task's first."""
        return self._server.progress.began == self._server.round - 1

    def _messages(self) -> Sequence[Messages]:
        """Return the messages of the current round's kind."""
        kind = [done for done in self._seen if done.is_first == self._is_first and done.is_later == self._is_later]
        return self._common([done.messages for done in kind])

    def _common(self, alike: Sequence[Sequence[Messages]]) -> Sequence[Messages]:
        """Return the messages of rounds that should be alike. If they are not, bytes are unsure."""
        self.cost.unsure_bytes |= any(messages != alike[0] for messages in alike)
        return alike[-1]

    def _send(self, clients: Sequence[int], seen: Messages) -> None:
        """Count what these clients are sent: the message, and the broadcasts that they do not have yet."""
        broadcasts = [self._server.model()]
        for name, (nbytes, is_new) in seen.broadcasts.items():
            self._versions[name] += is_new
            broadcasts.append(Broadcast(name, self._versions[name], Sized(nbytes)))
        self._traffic.count_sent(clients, {name: Sized(nbytes) for name, nbytes in seen.down.items()}, broadcasts)

    def _receive(self, clients: Sequence[int], seen: Messages) -> None:
        """Count these clients' replies to an order, and their steps."""
        self.cost.orders[len(clients)] += 1
        for method, nbytes in seen.up.items():
            self.cost.up[method] += len(clients) * nbytes
        for client in clients if isinstance(seen.operation, Train) else ():
            self._train(client)

    def _train(self, client: int) -> None:
        """Count a client's steps."""
        server, stream, cost = self._server, self._federation.streams[client], self.cost
        window = server.window(client)
        sizes, stage = sizes_in(stream, window), stream.stage(window)
        batches = self._rule.batches(sizes)
        cost.steps += self._rule.steps(sizes)
        cost.unsure_bytes |= not batches and bool(self._methods)  # no client of a rehearsal is without a batch
        if stage != self._stages.get(client, 0):
            cost.beginnings += batches
        self._regular &= self._trained[client] == server.round - 1
        self._trained[client] += 1
        self._stages[client] = stage
        self._changed.add(client)

    def _evaluate(self) -> None:
        """Count the models that are tested: the server's new one, or the personalized ones that have changed.

        Clients that have never trained have the server's model. Class-IL among the seen classes is read again of every
        model after a new task.
        """
        tested = (self._server.version, self._server.task if self._by_task else 0)
        if self._config.evaluation.model == "local":
            without = len(self._trained) < self._config.clients.count
            changed = self._changed if tested[1] == self._tested[1] else self._trained
            self.cost.evaluations += len(changed) + without
            self._changed.clear()
        else:
            self.cost.evaluations += self._tested != tested
        self._tested = tested
