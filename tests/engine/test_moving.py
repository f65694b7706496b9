"""Clients move between hosts before any of their rounds, and no bit of a run moves with them. Hosts live here."""

import random
from itertools import count

import numpy as np
import pytest
import torch

from raysim.engine.host import ClientHost
from raysim.engine.replies import Reply
from raysim.engine.runner import LocalRunner
from raysim.engine.simulation import Simulation
from raysim.evaluation.scoring import merge_scores
from raysim.federation.federation import build_federation
from raysim.system.seeding import torch_untouched

HOSTS = 3
FEDBUFF = {"kind": "asynchronous", "concurrency": 4, "buffer_size": 2, "speeds": {"kind": "log_normal"}}
RUNS = {
    "exchanges before and after training": {
        "methods": {"c_flag": {}, "special_c": {}, "probes:DrawingInPlans": {}},
        "participation": {"count": 4},
    },
    "memories and variates": {
        "methods": {"scaffold": {}, "der": {}, "fed_a_gem": {}, "special": {}},
        "model": {"name": "mlp", "hidden": [5], "dropout": 0.3, "batch_norm": True},
        "participation": {"count": 4},
    },
    "models of their own": {
        "methods": {"re_fed": {"epochs": 2}},
        "memory.capacity": 5,
        "scenario.boundaries": {"jittered": {"rounds": 1}},
        "clients.dropout": 0.2,
        "aggregation.weights": "samples",
    },
    "models that are tested": {
        "methods": {"fedper": {"layers": 2}, "ditto": {}},
        "model": {"name": "mlp", "hidden": [5], "dropout": 0.3, "batch_norm": True},
        "participation": {"count": 3},
        "evaluation": {"model": "local", "every_rounds": 1},
    },
    "all that came": {"methods": {"joint": {}, "fedadam": {}}, "training.local_epochs": 2},
    "streams of the user's own": {
        "methods": {"er": {}},
        "scenario": {
            "kind": "class_incremental",
            "tasks": 2,
            "boundaries": {
                "asynchronous": {
                    "window": 8, "windows": 3, "rounds_per_window": 2, "stream": f"{__name__}:endless"
                }
            },
        },
        "training.rounds_per_task": None,
    },
    "fedbuff": {"methods": {"er": {}, "fed_a_gem": {"reference": "with_update"}}, "schedule": FEDBUFF},
}  # fmt: skip


def endless(client, start):
    for position in count(start):
        yield np.random.default_rng([client, position]).standard_normal(6).astype(np.float32), position % 4


class Wandering(LocalRunner):
    """Hosts between which every second client moves with its first order of a round, as Ray's runner moves them."""

    def __init__(self, config, federation):
        super().__init__(config, federation)
        clients = [range(first, config.clients.count, HOSTS) for first in range(HOSTS)]
        self.hosts = [ClientHost(config, federation, own, torch.device("cpu")) for own in clients]
        self.home = {client: host for host, own in zip(self.hosts, clients, strict=True) for client in own}
        self.draws, self.asked, self.moved = random.Random(0), set(), 0
        del self.host

    def begin(self, order, message, broadcasts):
        for client in order.clients:
            if (order.round_info.round, client) not in self.asked and self.draws.random() < 0.5:
                old, new = self.home[client], self.draws.choice(self.hosts)
                new.restore(old.give([client]))
                self.home[client] = new
                self.moved += old is not new
            self.asked.add((order.round_info.round, client))
        reply = Reply(order.cohort_size)
        for host in self.hosts:
            own = tuple(client for client in order.clients if self.home[client] is host)
            if own:
                reply.merge(host.perform(order_of(order, own), message, broadcasts))
        return reply

    def evaluate(self, parts, broadcasts):
        return merge_scores([self.hosts[0].evaluate(parts, broadcasts)])

    def evaluate_clients(self, parts, broadcasts):
        return {
            client: found for host in self.hosts for client, found in host.evaluate_clients(parts, broadcasts).items()
        }

    def snapshot(self):
        return [host.snapshot() for host in self.hosts]


def order_of(order, own):
    return type(order)(**{**vars(order), "clients": own})


def plain(event):
    """The event of a round without its duration, and with its pictures as bytes."""
    pictures = {name: picture.images.tobytes() for name, picture in event.pictures.items()}
    return vars(event) | {"seconds": 0, "pictures": pictures}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_whose_clients_move_has_the_bits_of_one_whose_clients_stay(tiny, simulate, name):
    chosen = {"clients.count": 6, "dataset.train": 120, "training.rounds_per_task": 4, **RUNS[name]}
    config = tiny(**{key.replace(".", "__"): value for key, value in chosen.items()})
    with torch_untouched():
        federation = build_federation(config)
        runner = Wandering(config, federation)
        simulation = Simulation(config, federation, runner)
        events = list(simulation.events())
    stayed = simulate(config)
    rounds = [plain(event) for event in events if type(event).__name__ == "RoundDone"]
    assert rounds == [plain(event) for event in stayed.rounds]
    assert all(torch.equal(simulation.model.state_dict()[key], value) for key, value in stayed.state.items())
    assert runner.moved > 5
    clients = [client for host in runner.hosts for client in host.clients]
    assert sorted(clients) == list(range(6))  # each in one place
    records = {client: record for part in runner.snapshot() for client, record in part.items()}
    assert records == stayed.simulation.runner.snapshot()[0]
