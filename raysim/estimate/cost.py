"""The cost of a run before it starts: its plan, which is known, times what rehearsals showed."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product

from raysim.api.client import cut_into_batches
from raysim.api.messages import Broadcast
from raysim.api.method import overrides
from raysim.config import Config
from raysim.config.experiment import Training as TrainingConfig
from raysim.config.timing import AsynchronousSchedule
from raysim.engine.attendance import choosing_methods, plan_rounds, plan_updates
from raysim.engine.compatibility import make_methods, unsent_bytes
from raysim.engine.exchange import Traffic
from raysim.engine.hosted_server import HostedServer
from raysim.engine.memory_choice import choose_memory
from raysim.engine.orders import Operation, Train
from raysim.estimate.brevity import shorten
from raysim.estimate.forgetting import RequestCost, RequestForecast, Sized
from raysim.estimate.lines import ByteLine, Sizes, add_up, fit, sizes_in
from raysim.estimate.rehearsal import ENOUGH, FEW, Messages, Rehearsal, Round, in_small, rehearse, rounds_of
from raysim.evaluation.scoring import depends_on_tasks_so_far
from raysim.federation.federation import Federation
from raysim.federation.stream import Stream
from raysim.models.flat import FlatModel
from raysim.system.custom_code import is_custom
from raysim.system.errors import convert_to_run_error

BATCHES = (2, 3)  # of each task in the two rehearsals, so that messages that grow with the data differ
PATIENCE = 3.0  # seconds, after which a rehearsal leaves out what it has seen a like of
MADE = (4, 8)  # the most samples of a server's step, so that messages with what it makes differ


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
    forgetting: RequestCost | None = None
    """What requests to forget cost, if there are any."""


@dataclass(frozen=True)
class Exchanged:
    """One order of all rounds of a kind: what it sends, as lines by method or by the name of a broadcast."""

    operation: Operation
    down: Mapping[str, ByteLine]
    broadcasts: Mapping[str, tuple[ByteLine, bool]]
    """The line, and whether it is another version than the last one."""
    up: Mapping[str, ByteLine]
    replaced: int


SAMPLES = ("arrived", "remembered", "so_far")
ONE = Sizes(0, 0, 0)  # for what does not depend on them


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

    def gives(self, seen: Round, sizes: Sizes) -> bool:
        """Return whether a round of a client with these sizes follows the rule."""
        return (self.trained(sizes), self.steps(sizes)) == (seen.trained, seen.steps)


def find_rule(config: Config, model: FlatModel, rehearsals: Sequence[Rehearsal]) -> tuple[StepRule, bool]:
    """Return the simplest rule that gives the steps of the rehearsed rounds, and whether there is one."""
    memory = choose_memory(config, make_methods(config))
    capacity = 0 if memory is None else memory.capacity * (config.scenario.tasks if memory.per_task else 1)
    trained = [(each.training, of, of.sizes) for each in rehearsals for of in each.rounds if of.sizes is not None]
    for idle, by_epochs, samples in product((False, True), (False, True), SAMPLES):
        rule = StepRule(config.training, model.normalises, capacity, samples, by_epochs, idle)
        if all(replace(rule, training=training).gives(of, sizes) for training, of, sizes in trained):
            return rule, True
    return StepRule(config.training, model.normalises, capacity), False


def plan_rehearsals(config: Config, federation: Federation, model: FlatModel) -> list[Callable[[], Rehearsal]]:
    """Return functions that carry out the two rehearsals which show a run's cost. They raise RunError."""
    rounds, size = rounds_of(config), min(config.training.batch_size, FEW)
    again = [ENOUGH] * len(rounds[:2])  # shows all kinds of rounds once more, with more data

    def carry_out(batches: int, samples: int, shown: Sequence[int], enough: int) -> Rehearsal:
        with convert_to_run_error("it failed in a rehearsal"):
            short, brevity = shorten(config, samples)
            if samples == MADE[1] and brevity.made == shorten(config, MADE[0])[1].made < 1:
                short, brevity = shorten(config, samples, least=2)  # so that what is made differs after all
            small = in_small(short, federation, batches, size, shown)
            seen = rehearse(*small, model, shown, brevity.made, patience=PATIENCE, enough=enough)
            return Rehearsal(batches, brevity, small[0].training, seen)

    # where time is short, the second one ends with the first round of a later task
    return [partial(carry_out, *each) for each in zip(BATCHES, MADE, (rounds, again), (ENOUGH, 1), strict=True)]


def foresee(config: Config, federation: Federation, model: FlatModel, rehearsals: Sequence[Rehearsal]) -> Cost:
    """Return the cost of a run, given its rehearsals: go through its plan.

    Raises:
        RunError: a custom component of the plan, such as a sampler, failed.
    """
    seen = [done for each in rehearsals for done in each.rounds]
    rule, is_found = find_rule(config, model, rehearsals)
    with convert_to_run_error("it failed in a rehearsal"):
        cost = Forecast(config, federation, model, seen, rule).pass_through()
    cost.unsure_steps |= not is_found
    return cost


def shape_of(order: Messages) -> tuple[object, ...]:
    """Return all that an order sends but the sizes."""
    new = tuple((name, is_new) for name, (_, is_new) in order.broadcasts.items())
    return order.operation, tuple(order.down), new, tuple(order.up), order.replaced


class Forecast:
    """A pass through a run's plan: its rounds, cohorts and messages, with a model that never changes.

    A round's kind is whether it is of the first task, and whether it is its task's first. The messages of rounds of a
    kind have a constant size, or one that grows with the client's samples. A client that does not take part in every
    round may be in another state than the rehearsed one. Then bytes are only sure if an operation has the same reply in
    rounds of all kinds.
    """

    def __init__(
        self, config: Config, federation: Federation, model: FlatModel, seen: Sequence[Round], rule: StepRule
    ) -> None:
        self.cost = Cost(federation.availability.rounds)
        self._config, self._federation, self._seen, self._rule = config, federation, seen, rule
        self._methods = make_methods(config)
        self._by_task = depends_on_tasks_so_far(model.module, federation)
        self._server = HostedServer(config, federation, model)
        self._server.local_bytes = unsent_bytes(self._methods, model)
        self._traffic = Traffic()
        self._versions: Counter[str] = Counter()  # of broadcasts, by name
        self._kinds: dict[tuple[bool, ...], Sequence[Exchanged]] = {}  # what rounds of a kind send
        self._trained: Counter[int] = Counter()  # by client: its local trainings
        self._stages: dict[int, int] = {}  # by client: the stage of its last local training
        self._changed: set[int] = set()  # the clients that trained since the last evaluation
        self._tested = (-1, -1)  # the last version of the model that was evaluated, and the task so far
        self._requests = RequestForecast(self._methods, federation, seen, self._traffic, self.cost.up)
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
        if self._federation.forgetting:
            cost.forgetting = self._requests.cost
            cost.unsure_bytes |= self._requests.is_exact
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
        # a client that first takes part in a round without training has filled no memory, and sends nothing from it
        untrained = len(self._methods) > 1 and any(overrides(one.Server, "trains") for one in self._methods.values())
        cost.unsure_bytes |= bool(own) or unseen or untrained or not (self._regular or alike)
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
            self._traffic.count_sent(participants.dropped, {}, [server.broadcast()])
            for each in self._messages() if server.cohort else ():
                self._send(server.cohort, each)
                self._receive(server.cohort, each)
                server.version += isinstance(each.operation, Train)
            self.cost.updates += len(server.cohort)
            self._end_round()

    def _update_asynchronously(self) -> None:
        """Pass through the server updates of an asynchronous schedule."""
        server, self._regular = self._server, False
        trained: set[int] = set()  # dispatches, by number
        for update in plan_updates(self._config, self._federation.availability, server, self._methods):
            server.begin_round()
            for each in self._messages():
                if isinstance(each.operation, Train):
                    trained |= {dispatch.number for dispatch in update.dispatched}
                self._send([dispatch.client for dispatch in update.dispatched], each)
                for dispatch in update.dispatched:
                    if dispatch.update is not None or dispatch.discarded:
                        self._receive([dispatch.client], each)
            server.version += any(dispatch.number in trained for dispatch in update.arrivals)
            self.cost.updates += len(update.arrivals)
            self._end_round()

    def _end_round(self) -> None:
        """Carry out what follows a task's last round, and the evaluations."""
        server, every = self._server, self._config.evaluation.every_rounds
        ends_row = server.round in self._federation.availability.rows
        self.cost.kinds[self._is_later, self._is_first] += 1
        if ends_row:
            self.cost.ends[self._is_later, server.round == self.cost.rounds] += 1
            ends = self._ends()
            for each in self._common((self._is_later,), [done.at_end for done in ends]):
                server.version += each.replaced
                self._send(server.present, each)
                self._receive(server.present, each)
            server.version += ends[-1].replaced
            self._requests.end_task(server)
        for request in self._federation.forgetting.get(server.round, ()):
            self._requests.follow(request, server)
        if ends_row or (every and server.round % every == 0):
            self._evaluate()

    @property
    def _is_later(self) -> bool:
        """Whether the current round is of a later task than the first."""
        return self._server.progress.task > 0

    @property
    def _is_first(self) -> bool:
        """Whether the current round is its task's first."""
        return self._server.progress.is_first

    def _ends(self) -> Sequence[Round]:
        """Return the rehearsed ends of tasks like this one. Where time was short, they may be the first task's."""
        ends = [done for done in self._seen if done.is_last]
        alike = [done for done in ends if done.is_later == self._is_later]
        self.cost.unsure_bytes |= not alike and any(done.at_end for done in ends)
        return alike or ends

    def _messages(self) -> Sequence[Exchanged]:
        """Return the messages of the current round's kind."""
        kind = [done for done in self._seen if done.is_first == self._is_first and done.is_later == self._is_later]
        return self._common((self._is_later, self._is_first), [done.messages for done in kind])

    def _common(self, kind: tuple[bool, ...], alike: Sequence[Sequence[Messages]]) -> Sequence[Exchanged]:
        """Return the messages of rounds of a kind. If not all rounds have them, they are the last one's."""
        if kind not in self._kinds:
            if any([shape_of(each) for each in of] != [shape_of(each) for each in alike[0]] for of in alike):
                self.cost.unsure_bytes, alike = True, alike[-1:]
            self._kinds[kind] = [self._exchanged([of[turn] for of in alike]) for turn in range(len(alike[-1]))]
        return self._kinds[kind]

    def _exchanged(self, seen: Sequence[Messages]) -> Exchanged:
        """Return an order, given what it sent in several rounds."""
        last = seen[-1]
        return Exchanged(
            last.operation,
            {name: self._line([(each.sizes, each.down[name]) for each in seen]) for name in last.down},
            {
                name: (self._line([(each.sizes, each.broadcasts[name][0]) for each in seen]), is_new)
                for name, (_, is_new) in last.broadcasts.items()
            },
            {name: self._line([(each.sizes, each.up[name]) for each in seen]) for name in last.up},
            last.replaced,
        )

    def _line(self, seen: Sequence[tuple[Sizes, int]]) -> ByteLine:
        """Return the line of a message's bytes. They are unsure off it, and where what is made was rounded."""
        line, is_exact = fit(seen, ("made", "arrived", "so_far", "finished"))
        self.cost.unsure_bytes |= not is_exact or line.of == "made"
        return line

    def _send(self, clients: Sequence[int], order: Exchanged) -> None:
        """Count what these clients are sent: the message, and the broadcasts that they do not have yet."""
        broadcasts, together = [self._server.broadcast()], None
        for name, (line, is_new) in order.broadcasts.items():
            self._versions[name] += is_new
            if line.of and together is None:
                together = add_up(map(self._sizes, clients))
            broadcasts.append(Broadcast(name, self._versions[name], Sized(line.at(together or ONE))))
        constant = {name: Sized(line.at(ONE)) for name, line in order.down.items() if not line.of}
        self._traffic.count_sent(clients, constant, broadcasts)
        if len(constant) < len(order.down):
            for client in clients:
                sizes = self._sizes(client)
                own = {name: Sized(line.at(sizes)) for name, line in order.down.items() if line.of}
                self._traffic.count_sent([client], own, [])

    def _receive(self, clients: Sequence[int], order: Exchanged) -> None:
        """Count these clients' replies to an order, and their steps."""
        self.cost.orders[len(clients)] += 1
        for method, line in order.up.items():
            same = len(clients) * line.at(ONE)
            self.cost.up[method] += sum(line.at(self._sizes(client)) for client in clients) if line.of else same
        for client in clients if isinstance(order.operation, Train) else ():
            self._train(client)

    def _sizes(self, client: int) -> Sizes:
        """Return a client's sizes in this round."""
        return sizes_in(self._stream(client), self._server.window(client))

    def _stream(self, client: int) -> Stream:
        return self._federation.availability.stream(client, self._server.round)

    def _train(self, client: int) -> None:
        """Count a client's steps."""
        server, cost, sizes = self._server, self.cost, self._sizes(client)
        stage = self._stream(client).stage(server.window(client))
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
            without = len(self._trained) < self._config.clients.count and tested != self._tested
            changed = self._changed if tested[1] == self._tested[1] else self._trained
            self.cost.evaluations += len(changed) + without
            self._changed.clear()
        else:
            self.cost.evaluations += self._tested != tested
        self._tested = tested
