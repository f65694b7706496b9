"""At a task's end, methods learn from all samples of the task, also if they came in several windows."""

import pytest

from raysim.api import Client
from raysim.engine.one_at_a_time import OneAtATime

ONLINE = {"kind": "class_incremental", "tasks": 2, "online": True}
ADAPTED = {"name": "probes:stacked", "adapters": {"rank": 1, "where": ["1"]}}


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("ewc", {}),
        ("fot", {}),
        ("lorm", {"model": ADAPTED}),
        ("icarl", {"memory__capacity": 100}),
        ("glfc", {"memory__capacity": 100}),
    ],
)
def test_the_exchange_at_a_tasks_end_shows_all_windows_of_the_task(tiny, simulate, monkeypatch, method, more):
    """A task's samples arrive in two windows. The exchange after the second one reads all of them."""
    shown, ends = set(), []
    show, exchange = Client.samples, OneAtATime.exchange

    def spy(client, positions, draws=None):
        shown.update(positions.tolist())
        return show(client, positions, draws)

    def watch(trainer, clients, call, work):
        (client,) = clients
        shown.clear()
        exchange(trainer, clients, call, work)
        sizes = [client.stream.samples_of(task) for task in range(2)]
        ends.append((client.id, client.window, sorted(shown), sizes))

    monkeypatch.setattr(Client, "samples", spy)
    monkeypatch.setattr(OneAtATime, "exchange", watch)
    simulate(tiny(scenario=ONLINE, methods={method: {}}, **more))
    assert sorted((client, window) for client, window, *_ in ends) == [
        (k, window) for k in range(3) for window in (1, 3)
    ]
    for client, window, positions, (first, second) in ends:
        of_task = range(first) if window == 1 else range(first, first + second)
        assert set(of_task) <= set(positions), client
