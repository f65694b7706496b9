"""What halves draw is named: the same wherever a run goes on. What they draw from elsewhere is refused in one line."""

import gc
import random
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from raysim.api import ClientHalf, Method, Request, ServerHalf
from raysim.engine.compatibility import check_methods
from raysim.engine.events import Checkpoint, Finished
from raysim.engine.orders import Order, RoundInfo, Train
from raysim.engine.runner import LocalRunner
from raysim.engine.simulation import Simulation
from raysim.federation.federation import build_federation
from raysim.records.run_directory import sha256
from raysim.system import seeding
from raysim.system.errors import ConfigError, RunError

FEDBUFF = {"kind": "asynchronous", "concurrency": 2, "buffer_size": 1, "speeds": {"kind": "log_normal"}}
WAYS = {
    "synchronous": {"methods": {"probes:DrawingInPlans": {}}},
    "asynchronous": {"methods": {"probes:Drawing": {}}, "schedule": FEDBUFF},
}


@pytest.fixture(params=WAYS)
def drawing(request, tiny, quiet_torch, log):
    """A config of a method whose server half draws, under either schedule; a checkpoint after every round."""
    return tiny(**WAYS[request.param], model__dropout=0.3, checkpoint__every_rounds=1, training__rounds_per_task=3)


def test_what_the_server_draws_does_not_depend_on_the_packing(drawing, simulate):
    runs = [simulate(drawing, places=places) for places in (None, [[0, 1, 2]], [[2], [0, 1]], [[1], [0], [2]])]
    assert len({run.sha256 for run in runs}) == 1


def test_it_is_the_same_after_every_checkpoint(drawing, simulate):
    whole = simulate(drawing)
    saved = [event for event in whole.events if isinstance(event, Checkpoint)]
    assert len(saved) == 5
    federation = build_federation(drawing)
    for checkpoint in saved:
        torch.manual_seed(5)  # another process
        (clients,) = checkpoint.clients
        again = Simulation(drawing, federation, LocalRunner(drawing, federation, clients), checkpoint.server)
        states = [event.state for event in again.events() if isinstance(event, Finished)]
        assert sha256(states[0]) == whole.sha256


def test_a_rounds_draws_follow_one_another_in_the_stream_of_its_name(drawing, simulate, log):
    """Whichever hooks draw, and whatever clients draw meanwhile: torch's generator, seeded with the hashed name."""
    torch.manual_seed(5)
    simulate(drawing)
    name = next(iter(drawing.methods)).rpartition(":")[2]
    assert {number for number, _ in log} == set(range(1, 7))
    for number in range(1, 7):
        drawn = torch.stack([values for of, values in log if of == number])
        seed = seeding.hashed(0, "server", number, name, bits=64)
        assert torch.equal(drawn, torch.rand(drawn.shape, generator=torch.Generator().manual_seed(seed)))
    assert len({tuple(values.tolist()) for _, values in log}) == len(log)


def test_the_servers_generator_is_named_by_seed_round_and_purpose(drawing, simulate):
    server = simulate(drawing).simulation.server
    drawn = [server.generator("mine").random(), server.generator("mine").random()]
    assert drawn == seeding.generator(0, "server", 6, "mine").random(2).tolist()
    server.begin_round()
    assert server.generator("mine").random() == seeding.generator(0, "server", 7, "mine").random()


# draws that have no name


GLOBAL = {
    "torch's default generator": lambda: torch.rand(1),
    "NumPy's global generator": lambda: np.random.rand(),
    "the global generator of Python's random": lambda: random.random(),
}
SERVER = ["select", "prepare", "after an answer", "announce", "update", "conclude", "end_task"]
CLIENT = ["begin_task", "start", "gradient", "finish", "asked"]


class _Stray:
    """Draws from a global generator where the knobs say."""

    def draw(self, where, value=None):
        if where == self.method.where:
            GLOBAL[self.method.what]()
        return value


@dataclass(frozen=True, kw_only=True)
class Astray(Method):
    """Draws where and from what it must not."""

    where: str
    what: str

    class Client(ClientHalf, _Stray):
        def __init__(self, name, knobs):
            super().__init__(name, knobs)
            self.draw("client")

        def begin_task(self, client):
            self.draw("begin_task")

        def start(self, client, message):
            self.draw("start")

        def gradient(self, step, gradient):
            return self.draw("gradient", gradient)

        def finish(self, client, delta):
            return self.draw("finish", (delta, {}))

        def asked(self, client, message):
            self.draw("asked")

    class Server(ServerHalf, _Stray):
        def __init__(self, name, knobs):
            super().__init__(name, knobs)
            self.draw("server")

        def select(self, server):
            return self.draw("select", server.present)

        def prepare(self, server):
            self.draw("prepare")
            yield Request("asked")
            self.draw("after an answer")

        def announce(self, server):
            return self.draw("announce", (None, ()))

        def update(self, server, delta, reply):
            return self.draw("update", delta)

        def conclude(self, server):
            self.draw("conclude")
            yield Request("asked")

        def end_task(self, server):
            self.draw("end_task")
            yield Request("asked")


def astray(where, what="NumPy's global generator"):
    return {"test_drawing:Astray": {"where": where, "what": what}}


def own_streams(side):
    return (
        f", which the whole process shares; allowed, where a {side} is given: {side}.generator(name), or around "
        f"torch's own draws `with {side}.rng_scope(name):`, or around code that draws from all of them `with "
        f"{side}.global_draws(name):`"
    )


@pytest.mark.parametrize("what", GLOBAL)
@pytest.mark.parametrize("where", SERVER)
def test_a_server_half_that_draws_elsewhere_is_refused(tiny, simulate, where, what):
    with pytest.raises(RunError) as found:
        simulate(tiny(methods=astray(where, what)))
    hook = where.replace("after an answer", "prepare")
    assert str(found.value) == f"Astray: {hook} of its server half used {what}" + own_streams("server")


@pytest.mark.parametrize("where", CLIENT)
@pytest.mark.parametrize("what", list(GLOBAL)[1:])
def test_a_client_half_that_draws_elsewhere_is_refused(tiny, simulate, where, what):
    with pytest.raises(RunError) as found:
        simulate(tiny(methods=astray(where, what)))
    method = "Astray.asked" if where == "asked" else "Astray"
    who = f"round 1: a client half ({method}), the model or the data stream"
    assert str(found.value) == f"{who} used {what}" + own_streams("client")


@pytest.mark.parametrize("where", CLIENT)
def test_a_client_half_may_draw_from_torch_which_has_a_named_stream_there(tiny, simulate, where):
    config = tiny(methods=astray(where, "torch's default generator"), model__dropout=0.3)
    assert len({simulate(config, places=places).sha256 for places in (None, [[2], [0, 1]])}) == 1


@pytest.mark.parametrize("what", GLOBAL)
@pytest.mark.parametrize("side", ["client", "server"])
def test_a_half_that_draws_when_it_is_made_is_refused_before_the_run(tiny, side, what):
    with pytest.raises(ConfigError) as found:
        check_methods(tiny(methods=astray(side, what)))
    assert str(found.value) == f"methods.Astray: making its {side} half used {what}" + own_streams(side)


def draw_anew(server, count, draws):
    """A sampler with no regard for the generator that it is given."""
    return np.random.permutation(server.present)[:count]


def test_a_sampler_that_draws_elsewhere_is_refused(tiny, simulate):
    sampler = {"count": 2, "sampler": "test_drawing:draw_anew"}
    with pytest.raises(RunError, match=r"^participation\.sampler used NumPy's global generator, which"):
        simulate(tiny(participation=sampler))


def test_torch_is_where_it_was_after_an_order(tiny, host_of, quiet_torch):
    """The server half that waits for its reply may be in the same process, inside `rng_scope`."""
    host = host_of(tiny(model__dropout=0.3))
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    host.perform(Order(Train(), (0, 1), {0: 0.5, 1: 0.5}, 2, RoundInfo(1, 0, 0.5)), {})
    assert torch.equal(torch.random.get_rng_state(), state)


@dataclass(frozen=True, kw_only=True)
class Failing(Method):
    """Its plan waits, aside, for a client that fails."""

    class Client(ClientHalf):
        def fail(self, client, message):
            raise ZeroDivisionError

    class Server(ServerHalf):
        def prepare(self, server):
            with server.rng_scope(self.name):
                yield Request("fail")


def test_a_plan_that_fails_aside_is_closed_at_once(tiny, simulate):
    """And not when its frame is collected, which would then put torch's generator back to a state of long ago."""
    with pytest.raises(ZeroDivisionError) as found:
        simulate(tiny(methods={"test_drawing:Failing": {}}))
    with seeding.torch_untouched():
        torch.manual_seed(5)
        state = torch.random.get_rng_state()
        del found
        gc.collect()
        assert torch.equal(torch.random.get_rng_state(), state)
