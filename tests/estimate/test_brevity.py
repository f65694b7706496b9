"""The server's time and memory before a run: counts with `Repeats` are made small, and the rest is extrapolated."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
import pytest
import torch
from annotated_types import Ge
from costs import cost_of
from torch import nn

from raysim.algorithms.lander import Lander
from raysim.algorithms.target import Target
from raysim.api import ClientHalf, Delta, Method, Repeats, Request, ServerHalf, Term
from raysim.estimate import pace as pacing
from raysim.estimate.brevity import counts_of, shorten
from raysim.estimate.cost import Cost
from raysim.estimate.halves import measure_halves, rehearse_halves
from raysim.estimate.memory import estimate_memory
from raysim.estimate.pace import Pace
from raysim.estimate.rehearsal import in_small, rehearse
from raysim.estimate.saved_tensors import SavedTensors
from raysim.federation.federation import build_federation
from raysim.models.building import check_model

NOW = [0.0]  # the time of the clock; methods below move it


@pytest.fixture(autouse=True)
def midnight():
    NOW[0] = 0.0


def clock():
    return NOW[0]


def spend(seconds):
    NOW[0] += seconds


@pytest.mark.parametrize(
    ("name", "given", "samples", "counts"),
    [
        # calls and warmup by 1/10, a step's samples by 4/256: 10,000 images by 1/640 are 16
        ("lander", {}, 4, {"warmup": 1, "calls": 4, "batch": 4, "images": 16, "steps": 1, "student_steps": 1}),
        ("target", {"client_batch": 128}, 8, {"calls": 1, "warmup": 2, "batch": 8, "client_batch": 4, "images": 25}),
        ("mfcl", {"w_bn": 0.0}, 64, {"generated": 64, "batch_size": 64, "steps": 1}),
        ("fedcil", {"server_steps": 0}, 4, {"server_steps": 0, "server_batch": 4}),
        ("scaffold", {}, 4, {}),
    ],
)
def test_counts_of_a_loop_shrink_by_the_same_factor(tiny, name, given, samples, counts):
    short, _ = shorten(tiny(methods={name: given}, **IMAGES), samples)
    assert {key: short.methods[name][key] for key in counts} == counts


def test_how_much_less_is_made_and_computed(tiny):
    """TARGET: calls by 1/10, steps by 1/10, samples by 8/256; what is sent follows from calls and samples."""
    _, brevity = shorten(tiny(methods={"target": {}}, **IMAGES), 8)
    assert brevity.samples == 1 / 32
    assert brevity.made == pytest.approx(1 / 320)
    assert brevity.work == pytest.approx(1 / 3200)
    _, longer = shorten(tiny(methods={"target": {}}, **IMAGES), least=2)
    assert (longer.samples, longer.work) == (1, pytest.approx(1 / 25))
    assert {name for name, *_ in counts_of(Target(kd=1.0))} >= {"calls", "steps", "images"}
    assert "client_batch" not in {name for name, *_ in counts_of(Lander())}  # null: it is the config's batch size


def test_what_a_graph_keeps_is_noted_once_and_until_it_is_gone():
    """exp keeps its result, 4 * 8 bytes, and so does the product, which keeps both factors: x is 32 bytes as well."""
    saved, x = SavedTensors(), torch.ones(8, requires_grad=True)
    with saved.noted():
        for _ in range(7):
            y = x.exp()
            (y * x).sum().backward()
            del y
    assert saved.peak == 64
    assert torch.allclose(x.grad, 7 * 2 * torch.e * torch.ones(8))  # (x exp x)' = 2e at 1, in seven steps


IMAGES = {"dataset__shape": [1, 8, 8], "scenario": {"kind": "class_incremental", "tasks": 2}}


def seen_of(config, rounds, clock=clock):
    """What a rehearsal shows, with so many rounds of each task."""
    federation = build_federation(config)
    model = check_model(config, federation.shape, federation.classes)
    return rehearse(*in_small(config, federation, 2, 2, rounds), model, rounds, clock=clock)


def generator():
    return nn.Linear(3, 5)


@dataclass(frozen=True, kw_only=True)
class Generating(Method):
    """Trains a network at the end of a task, and takes a moment in every round."""

    steps: Annotated[int, Ge(1), Repeats("steps")] = 50

    replies: ClassVar = {"one": "mean"}

    class Client(ClientHalf):
        def one(self, client, message):
            spend(1000)  # the clients' time is no time of the server
            return {"one": Term(torch.ones(()))}

        def finish(self, client, delta):
            spend(20)
            return delta, {}

    class Server(ServerHalf):
        def update(self, server, delta, terms):
            spend(7)
            return Delta(delta.parameters, delta.buffers)

        def end_task(self, server):
            network = server.auxiliary_network("generator", generator)
            yield Request("one")
            for _ in range(self.method.steps):
                spend(2)
                network(torch.ones(4, 3)).sum().backward()
            yield Request("one")
            spend(3 if server.task else 0)


def test_a_rehearsal_has_the_seconds_of_the_servers_hooks(tiny):
    """7 s in each round, 50 * 2 s at a task's end and, from the second task on, 3 s more. Clients' seconds are 20.

    In the last round there are 2 requests of 1,000 s. No gradient step has a length on this clock.
    """
    seen = seen_of(tiny(methods={f"{__name__}:Generating": {}}), [2, 2])
    assert [done.serving for done in seen] == [7] * 4
    assert [done.ending for done in seen] == [0, 100, 0, 103]
    assert [done.is_final for done in seen] == [False, False, False, True]
    assert [done.seconds for done in seen] == [20, 2020, 20, 2020]
    assert NOW[0] == 4 * 27 + 2 * (50 * 2 + 2000) + 3


def test_the_seconds_of_all_steps_follow_from_those_of_few(tiny, monkeypatch):
    """7 s in a round. At an end, 1 step and 2 steps take 2 and 4 s, so 50 take 100; with 3 s more in the last task."""
    monkeypatch.setattr(pacing, "_clock", lambda config: clock)
    monkeypatch.setattr(pacing, "_seconds_per_sample", lambda *_: 1e-3)
    config = tiny(methods={f"{__name__}:Generating": {}})
    federation = build_federation(config)
    found = pacing.pace(config, federation, check_model(config, federation.shape, federation.classes))
    assert found.serving == dict.fromkeys([(False, True), (False, False), (True, True), (True, False)], 7)
    assert found.ending == {(False, False): pytest.approx(100), (True, True): pytest.approx(103)}


def test_the_seconds_of_kinds_are_those_of_a_run():
    """4 tasks of 5 rounds: 1 + 4 rounds of the first task, 3 + 12 of later ones; 1 + 2 ends, and the run's."""
    cost = Cost(20)
    cost.kinds = Counter({(False, True): 1, (False, False): 4, (True, True): 3, (True, False): 12})
    cost.ends = Counter({(False, False): 1, (True, False): 2, (True, True): 1})
    pace = Pace(1, 0, 0, 0, 0, 0)
    assert pace.seconds_of_server(cost) == (0, 0)
    serving = {(False, True): 1.0, (False, False): 2.0, (True, True): 3.0, (True, False): 4.0}
    measured = replace(pace, serving=serving, ending={(False, False): 5.0, (True, False): 6.0, (True, True): 0.5})
    assert measured.seconds_of_server(cost) == (1 + 8 + 9 + 48, 5 + 12 + 0.5)
    only_first = replace(pace, serving={(False, True): 1.0, (False, False): 2.0}, ending={(False, False): 5.0})
    assert only_first.seconds_of_server(cost) == (1 + 8 + 3 + 24, 20)


def test_the_kinds_of_rounds_are_counted(tiny):
    found = cost_of(tiny(scenario__tasks=3, training__rounds_per_task=4))
    assert found.kinds == {(False, True): 1, (False, False): 3, (True, True): 2, (True, False): 6}
    assert found.ends == {(False, False): 1, (True, False): 1, (True, True): 1}


def test_networks_of_the_server_count_with_gradient_and_moments(tiny):
    """The layer 3-5 has 20 numbers. What its steps keep is measured of raysim's own methods alone (see below).

    So is all of it before a run; `raysim check` rehearses the user's methods, too.
    """
    config = tiny(methods={f"{__name__}:Generating": {}})
    federation = build_federation(config)
    need = estimate_memory(config, federation, check_model(config, federation.shape, federation.classes))
    assert need.server_gpu == 0
    held = seen_of(config, [1, 1])[-1].held
    assert held.serving == 4 * 80
    assert held.beside == 0


def test_the_memory_of_a_whole_batch_follows_from_few_rows(tiny):
    """MFCL's generator has z [n, 2] for n rows. With 30 rows a step takes 27 rows more than with 3, each the same."""

    def serving(rows, counted):
        keys = {"generated": 2, "steps": 2, "batch_size": rows, "latent": 2, "width": 2, "w_bn": 0.0}
        config = tiny(methods={"mfcl": keys}, **IMAGES)
        federation = build_federation(config)
        model = check_model(config, federation.shape, federation.classes)
        if counted:
            return measure_halves(rehearse_halves(config, federation, model), np.array([1]))[2][0]
        return rehearse(*in_small(config, federation, 2, 2, [1, 1]), model, [1, 1])[-1].held.serving

    assert serving(30, counted=True) == pytest.approx(serving(30, counted=False), rel=0.02)


@dataclass(frozen=True, kw_only=True)
class Beside(Method):
    """Has a network at every client, with the client's own weights."""

    class Client(ClientHalf):
        def finish(self, client, delta):
            client.auxiliary_network("generator", generator)
            return delta, {}


def test_networks_of_a_client_are_kept_and_a_host_has_an_instance(tiny):
    """80 bytes for the client's weights; the host has the initial ones, an instance, its gradient and two moments."""
    seen = seen_of(tiny(methods={f"{__name__}:Beside": {}}), [1, 1])[-1].held
    assert (seen.kept, seen.beside, seen.serving) == (80, 5 * 80, 0)
