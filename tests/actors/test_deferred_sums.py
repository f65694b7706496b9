"""Sums that stay at their host until its last update of a server update, by hand and in runs without Ray."""

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
import torch

from raysim.actors.deferred_sums import HeldSums, merge_held
from raysim.api.messages import Delta
from raysim.engine.collection import ClientUpdate, Collection
from raysim.engine.events import Checkpoint, Finished
from raysim.engine.host import ClientHost
from raysim.engine.orders import Order, RoundInfo, Train
from raysim.engine.replies import Reply
from raysim.engine.runner import LocalRunner
from raysim.engine.simulation import Simulation
from raysim.federation.federation import build_federation
from raysim.records.run_directory import sha256

NONE = torch.zeros(0)


def order(client: int, update: int | None, *later: int) -> Order:
    return Order(Train(), (client,), {client: 0.25}, 4, RoundInfo(1, 0, 0.1), update=update, later=later)


def reply(client: int, value: float, weight: float) -> Reply:
    made, delta = Collection(4, single=True), Delta(torch.tensor([value]), NONE)
    made.take_update(ClientUpdate(client, weight, "here", [("", delta)], NONE.long()))
    made.take_records(client, {"loss": value})
    return made.settle()


def test_the_last_of_a_host_brings_the_sums_of_all() -> None:
    """1/2 * 1 + 1/4 * 2 + 1/4 * 6 = 2.5, with weights of sum 1, so that is the mean."""
    held = HeldSums()
    first, second = held.answer(order(0, 7, 1), reply(0, 1.0, 0.5)), held.answer(order(1, 7, 2), reply(1, 2.0, 0.25))
    other = held.answer(order(3, 8), reply(3, 100.0, 1.0))
    last = held.answer(order(2, 7), reply(2, 6.0, 0.25))
    assert [found.updates for found in (first, second, other, last)] == [0, 0, 1, 3]
    assert not first.sums
    assert not second.sums
    assert last.delta(torch.float64).parameters.tolist() == [2.5]
    assert other.delta(torch.float64).parameters.tolist() == [100.0]
    assert held.give() == {}


def test_all_else_is_replied_at_once() -> None:
    found = HeldSums().answer(order(1, 7, 2), reply(1, 2.0, 0.25))
    assert found.records == {"loss": {1: 2.0}}
    assert found.bytes_up == {1: 4}  # a float32
    assert found.integers is not None
    assert found.integers[0] == 1


def test_what_becomes_a_part_of_no_update_is_replied_whole() -> None:
    held = HeldSums()
    assert held.answer(order(0, None), reply(0, 1.0, 1.0)).delta(torch.float64).parameters.tolist() == [1.0]
    assert held.give() == {}


def test_sums_that_are_given_are_held_no_more_and_those_of_hosts_are_merged() -> None:
    """At the first host 1/2 * 1, at the second 1/4 * 2 and then 1/4 * 6: 1 together, and 1.5 afterwards."""
    one, two = HeldSums(), HeldSums()
    one.answer(order(0, 7, 3), reply(0, 1.0, 0.5))
    two.answer(order(1, 7, 2), reply(1, 2.0, 0.25))
    given = merge_held([one.give(), two.give()])
    assert list(given) == [7]
    assert given[7].updates == 2
    assert given[7].sums["parameters"].total(1).tolist() == [1.0]
    last = two.answer(order(2, 7), reply(2, 6.0, 0.25))
    assert last.updates == 1
    assert last.sums["parameters"].total(1).tolist() == [1.5]
    last.merge(given[7])
    assert last.delta(torch.float64).parameters.tolist() == [2.5]


class Holding(LocalRunner):
    """Hosts in this process that hold sums, as Ray's do. Counts replies without their sums, and sums in checkpoints."""

    def __init__(self, config: Any, federation: Any, records: Any = None, hosts: int = 2) -> None:
        super().__init__(config, federation)
        places = [range(first, config.clients.count, hosts) for first in range(hosts)]
        self.hosts = [ClientHost(config, federation, own, torch.device("cpu")) for own in places]
        self.sums = [HeldSums() for _ in self.hosts]
        self.held_back = self.given = 0
        self.host = self.hosts[0]  # evaluates
        if records is not None:
            for host in self.hosts:
                host.restore({number: records[number] for number in host.clients})

    def begin(self, order: Order, message: Any, broadcasts: Any) -> Reply:
        (client,) = order.clients
        at = client % len(self.hosts)
        later = islice((other for other in order.later if other % len(self.hosts) == at), 1)
        found = self.hosts[at].perform(order, message, broadcasts)
        answered = self.sums[at].answer(replace(order, later=tuple(later)), found)
        self.held_back += not answered.updates
        return answered

    def give_sums(self) -> dict[int, Reply]:
        given = merge_held(sums.give() for sums in self.sums)
        self.given += len(given)
        return given

    def snapshot(self) -> list[dict[int, bytes]]:
        return [host.snapshot() for host in self.hosts]


SCHEDULES = {
    "a buffer of four": {"concurrency": 5, "buffer_size": 4, "speeds": {"kind": "log_normal", "sigma": 1.0}},
    "old updates discarded": {
        "concurrency": 4, "buffer_size": 3, "max_staleness": 1, "speeds": {"kind": "pareto", "shape": 1.0},
    },
    "FedAsync": {"concurrency": 3, "buffer_size": 1, "mixing": "models", "rate": 0.6, "speeds": {"kind": "pareto"}},
}  # fmt: skip


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("hosts", [1, 2, 6])
def test_a_run_has_the_same_bits_and_goes_on_from_each_checkpoint(
    tiny: Callable[..., Any], schedule: str, hosts: int
) -> None:
    """The checkpoints have sums of updates of which a part is computed; with one, two and all clients at a host."""
    config = tiny(
        schedule={"kind": "asynchronous", **SCHEDULES[schedule]},
        clients__count=6,
        clients__dropout=0.1,
        dataset__train=120,
        training__rounds_per_task=5,
        methods={"der": {}, "fed_a_gem": {"reference": "with_update"}},
        memory__capacity=10,
        checkpoint__every_rounds=2,
    )
    federation = build_federation(config)

    def ends(runner: LocalRunner, server: bytes | None = None) -> tuple[str, list[Checkpoint]]:
        events = list(Simulation(config, federation, runner, server).events())
        (state,) = [event.state for event in events if isinstance(event, Finished)]
        return sha256(state), [event for event in events if isinstance(event, Checkpoint)]

    expected, _ = ends(LocalRunner(config, federation))
    runner = Holding(config, federation, hosts=hosts)
    found, checkpoints = ends(runner)
    assert found == expected
    assert len(checkpoints) >= 3
    if schedule == "FedAsync":
        assert not runner.held_back
    elif hosts < 6:  # else only a client that is twice in a buffer has an order to come
        assert runner.held_back
        assert runner.given
    for checkpoint in checkpoints[:-1]:
        records = {number: record for host in checkpoint.clients for number, record in host.items()}
        assert ends(Holding(config, federation, records, hosts), checkpoint.server)[0] == expected
