"""The server's time and memory before a run: loops of `server.steps` are cut short, and the rest is extrapolated."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from costs import cost_of
from torch import nn

from raysim.api import ClientHalf, Delta, Method, Request, ServerHalf, Term
from raysim.estimate.cost import Cost
from raysim.estimate.halves import measure_halves
from raysim.estimate.memory import estimate_memory
from raysim.estimate.pace import Pace
from raysim.estimate.rehearsal import in_small, rehearse
from raysim.estimate.server_loops import ServerLoops
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


def test_steps_that_are_not_carried_out_take_as_long_as_the_last_one_that_is():
    """10 steps: the first takes 4 s (imports), the second 1 s, so the other 8 take 8 s: 13 s in all."""
    loops = ServerLoops(clock)
    done = []
    for index in loops(10):
        done.append(index)
        spend(4 if index == 0 else 1)
    assert (done, NOW[0], loops.seconds) == ([0, 1], 5, 8)
    assert (loops.rows(256), loops.asked) == (256, 0)


def test_a_long_step_is_carried_out_once():
    loops = ServerLoops(clock)
    assert [spend(6) for _ in loops(10)] == [None]
    assert (NOW[0], loops.seconds) == (6, 54)


def test_where_only_bytes_are_wanted_one_step_has_few_rows():
    """The row count that was asked for in a step is kept, for the memory of a whole batch."""
    loops = ServerLoops(clock, few=2)
    assert (loops.rows(300), loops.asked) == (2, 0)
    assert [[loops.rows(count) for count in (256, 1)] for _ in loops(10)] == [[2, 1]]
    assert loops.asked == 256


@pytest.mark.parametrize(("count", "elapsed"), [(0, 0), (1, 3), (2, 6)])
def test_short_loops_are_carried_out(count, elapsed):
    loops = ServerLoops(clock)
    for _ in loops(count):
        spend(3)
    assert (NOW[0], loops.seconds) == (elapsed, 0)


def test_nested_loops_multiply():
    """5 calls of 1 s and of 100 steps of 1/4 s and 4 evaluations of 1/8 s each: 5 * (1 + 100 * 3/4) = 380 s.

    One call is carried out, as it takes 76 s, of 2 steps with 2 evaluations each: 1 + 2 * (1/4 + 2/8) = 2 s. In calls
    of 3 steps it would take 1 + 9/4 s, so two are carried out: 4 s of 5 * 3.25 = 16.25 s.
    """
    for steps, elapsed, whole in ((100, 2, 380), (3, 4, 16.25)):
        loops, began = ServerLoops(clock), NOW[0]
        for _ in loops(5):
            spend(1)
            for _ in loops(steps):
                spend(1 / 4)
                for _ in loops(4):
                    spend(1 / 8)
        assert (NOW[0] - began, NOW[0] - began + loops.take()) == (elapsed, whole)
    assert loops.take() == 0


def test_a_loop_that_ends_early_adds_nothing():
    loops = ServerLoops(clock)
    for _ in loops(100):
        spend(1)
        break
    assert (NOW[0], loops.seconds) == (1, 0)
    with torch.enable_grad():  # and torch keeps tensors in the usual way again
        assert torch.ones(2, requires_grad=True).exp().grad_fn is not None


def test_what_a_step_keeps_for_its_backward_pass_is_noted_once():
    """exp keeps its result, 4 * 8 bytes, and so does the product, which keeps both factors: x is 32 bytes as well."""
    loops = ServerLoops(clock)
    x = torch.ones(8, requires_grad=True)
    for _ in loops(7):
        y = x.exp()
        (y * x).sum().backward()
    assert loops.peak == 64
    assert torch.allclose(x.grad, 2 * 2 * torch.e * torch.ones(8))  # (x exp x)' = 2e at 1, in two steps


def seen_of(config, rounds, clock=clock):
    """What a rehearsal shows, with so many rounds of each task."""
    federation = build_federation(config)
    model = check_model(config, federation.shape, federation.classes)
    return rehearse(*in_small(config, federation, 2, 2, rounds), model, rounds, clock)


def generator():
    return nn.Linear(3, 5)


@dataclass(frozen=True, kw_only=True)
class Generating(Method):
    """Trains a network at the end of a task, and takes a moment in every round."""

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
            network = server.make("generator", generator)
            yield Request("one")
            for _ in server.steps(50):
                spend(2)
                network(torch.ones(4, 3)).sum().backward()
            yield Request("one")
            spend(3 if server.task else 0)


def test_a_rehearsal_has_the_seconds_of_the_servers_hooks(tiny):
    """7 s in each round, 50 * 2 s at a task's end and, from the second task on, 3 s more. Clients' seconds are 20.

    In the last round there are 2 requests of 1,000 s. No gradient step has a length on this clock.
    """
    seen = seen_of(tiny(methods={f"{__name__}:Generating": {}}), [2, 2]).rounds
    assert [done.serving for done in seen] == [7] * 4
    assert [done.ending for done in seen] == [0, 100, 0, 103]
    assert [done.is_final for done in seen] == [False, False, False, True]
    assert [done.seconds for done in seen] == [20, 2020, 20, 2020]
    assert NOW[0] == 4 * 27 + 2 * (2 * 2 + 2000) + 3


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
    """The layer 3-5 has 20 numbers. A step keeps its input, 4 * 3 numbers, and may keep its weight, 15 (20 with bias).

    A method of raysim's would be measured; this one is the user's, so it is not.
    """
    config = tiny(methods={f"{__name__}:Generating": {}})
    federation = build_federation(config)
    need = estimate_memory(config, federation, check_model(config, federation.shape, federation.classes))
    assert need.server_gpu == 0
    seen = seen_of(config, [1, 1])
    assert 4 * 80 + 48 <= seen.serving <= 4 * 80 + 48 + 80
    assert seen.beside == 0


def test_the_memory_of_a_whole_batch_follows_from_few_rows(tiny):
    """MFCL's generator has z [n, 2] for n rows. With 30 rows a step takes 27 rows more than with 3, each the same."""

    def serving(rows, counted):
        images = {"dataset__shape": [1, 8, 8], "scenario": {"kind": "class_incremental", "tasks": 2}}
        keys = {"generated": 2, "steps": 2, "batch_size": rows, "latent": 2, "width": 2, "w_bn": 0.0}
        config = tiny(methods={"mfcl": keys}, **images)
        federation = build_federation(config)
        model = check_model(config, federation.shape, federation.classes)
        if counted:
            return measure_halves(config, federation, model, np.array([1]))[2][0]
        return rehearse(*in_small(config, federation, 2, 2, [1, 1]), model, [1, 1]).serving

    assert serving(30, counted=True) == pytest.approx(serving(30, counted=False), rel=0.02)


@dataclass(frozen=True, kw_only=True)
class Beside(Method):
    """Has a network at every client, with the client's own weights."""

    class Client(ClientHalf):
        def finish(self, client, delta):
            client.make("generator", generator)
            return delta, {}


def test_networks_of_a_client_are_kept_and_a_host_has_an_instance(tiny):
    """80 bytes for the client's weights; the host has the initial ones, an instance, its gradient and two moments."""
    seen = seen_of(tiny(methods={f"{__name__}:Beside": {}}), [1, 1])
    assert (seen.kept, seen.beside, seen.serving) == (80, 5 * 80, 0)
