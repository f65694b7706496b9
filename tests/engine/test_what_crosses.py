"""What server and clients send each other is the same in one process and in several, or the run is refused.

A local run hands over the objects themselves; between processes they are copies. Which clients share a process must
not change a bit, either.
"""

import math
from collections import deque
from dataclasses import dataclass
from typing import Any

import crossing
import numpy as np
import pytest
import torch

from raysim.api import Broadcast, ClientHalf, Delta, Method, Request, ServerHalf, Weights
from raysim.system.errors import RunError, WrongResult
from raysim.system.shared_memory import Snapshot, separate

HERE = "test_what_crosses:"
ONE_ROUND = {"training__rounds_per_task": 1}
APART = [[0], [1], [2]]


@pytest.mark.parametrize(
    ("what", "hook", "path"),
    [
        ("message", "Changes.Client.start", "['list'][1]"),
        ("data", "Changes.Client.start", "['list'][1]"),
        ("key", "Changes.Client.start", "['more']"),
        ("array", "Changes.Client.start", "['array']"),
        ("set", "Changes.Client.start", "['set']"),
        ("ask", "Changes.Client.ask", "['w']"),
        ("plan", "Changes.Client.plan", "['w']"),
    ],
)
def test_a_changed_message_is_named_with_hook_key_client_and_round(tiny, simulate, what, hook, path):
    with pytest.raises(WrongResult) as caught:
        simulate(tiny(**ONE_ROUND, methods={"crossing:Changes": {"what": what}}))
    text = str(caught.value)
    assert text.startswith(f"methods.Changes: {hook} ({crossing.__file__}:")
    assert f" changed the message{path} in place, which all clients of a process share, allowed: " in text
    assert text.endswith("a changed copy, as from clone(); client 0, round 1")


def test_a_change_that_no_hook_was_seen_to_make_names_those_that_ran(tiny, simulate):
    """The third call of a hook in the loop is not looked after: the end of the phase finds the change."""
    with pytest.raises(
        WrongResult, match=r"one of Changes.Client.penalty \(.*\) changed|Changes.Client.penalty \(.*\) c"
    ):
        simulate(tiny(**ONE_ROUND, methods={"crossing:Changes": {"what": "later"}}))


def test_a_method_that_changes_nothing_runs(tiny, simulate):
    """NaN in a message is equal to itself."""
    simulate(tiny(**ONE_ROUND, methods={"crossing:Changes": {"what": "nothing"}}))


@pytest.mark.parametrize("what", ["message", "received", "broadcast", "view"])
def test_what_is_kept_and_changed_later_is_the_same_however_clients_share_processes(tiny, simulate, what):
    """Each host of these is a process of Ray's in all that matters: of the clients' halves it has its own."""
    config = tiny(methods={"crossing:Keeps": {"what": what}}, training__rounds_per_task=2)
    together, apart, pairs = (simulate(config, places=places) for places in (None, APART, [[0, 1], [2]]))
    assert together.sha256 == apart.sha256 == pairs.sha256
    for one, other, third in zip(together.rounds, apart.rounds, pairs.rounds, strict=True):
        assert one.records == other.records == third.records


def test_what_was_sent_stays_what_it_was(tiny, simulate):
    """Round 1: the clients see the broadcast of ones, 3 clients of 3 numbers, though the half has changed its own."""
    run = simulate(tiny(**ONE_ROUND, methods={"crossing:Keeps": {}}))
    assert run.rounds[0].records["seen"] == 9.0


class Spoils(Method):
    """Changes in place all data that it is given, once the run has used them."""

    class Client(ClientHalf):
        def start(self, client, message):
            for part in (*client.samples(client.arrived[:3]), client.labels(client.arrived)):
                part.zero_()

        def observe(self, step):
            for part in (step.x, step.y, step.positions):
                part.zero_()

        def finish(self, client, delta):
            client.arrived.zero_()
            return delta, {}


def test_data_that_a_hook_has_changed_are_there_again_in_the_next_round(tiny, simulate):
    """Else they would be there only for clients that have moved to another process since, or after a resume."""
    plain, spoiled = (simulate(tiny(methods=methods)) for methods in ({}, {f"{HERE}Spoils": {}}))
    assert plain.sha256 == spoiled.sha256


@dataclass(frozen=True, kw_only=True)
class Damages(Method):
    """Its server half changes the server's model in one of its hooks."""

    hook: str = "announce"
    what: str = "parameters"

    class Client(ClientHalf):
        def ask(self, client, message):
            return {}

    class Server(ServerHalf):
        method: "Damages"

        def _damage(self, server, hook):
            if self.method.hook == hook:
                if self.method.what == "assigned":
                    server.parameters = server.parameters * 0.5
                elif self.method.what == "replaced":
                    server.replace_model(Weights(server.parameters * 0.5, server.buffers, server.integers))
                else:
                    getattr(server, self.method.what).add_(1)

        def select(self, server):
            self._damage(server, "select")
            return server.present

        def prepare(self, server):
            self._damage(server, "prepare")
            yield Request("ask")

        def trains(self, server):
            self._damage(server, "trains")
            return True

        def announce(self, server):
            self._damage(server, "announce")
            return None, ()

        def update(self, server, delta, reply):
            self._damage(server, "update")
            return delta

        def conclude(self, server):
            yield Request("ask")
            self._damage(server, "conclude")

        def end_task(self, server):
            self._damage(server, "end_task")

        def evaluated(self, server):
            self._damage(server, "evaluated")


BATCH_NORM = {"model__name": "mlp", "model__batch_norm": True}


@dataclass(frozen=True, kw_only=True)
class Lists(Method):
    """A half changes a list that is a hyperparameter."""

    side: str
    numbers: list[float]

    class Client(ClientHalf):
        method: "Lists"

        def start(self, client, message):
            if self.method.side == "client":
                self.method.numbers.append(1.0)

    class Server(ServerHalf):
        method: "Lists"

        def update(self, server, delta, reply):
            if self.method.side == "server":
                self.method.numbers[0] = 2.0
            return delta


@pytest.mark.parametrize(("side", "hook", "path"), [("client", "start", "[1]"), ("server", "update", "[0]")])
def test_a_changed_hyperparameter_is_refused(tiny, simulate, side, hook, path):
    """All clients of a process share it. In a local run so does the server."""
    said = rf"Lists\.{side.title()}\.{hook} \(.*\) changed the hyperparameters\['numbers'\]\{path[:-1]}\] in place"
    with pytest.raises(WrongResult, match=said):
        simulate(tiny(**ONE_ROUND, methods={f"{HERE}Lists": {"side": side, "numbers": [0.5]}}))


@pytest.mark.parametrize(
    "hook", ["select", "prepare", "trains", "announce", "update", "conclude", "end_task", "evaluated"]
)
def test_a_server_half_that_changes_the_model_is_named(tiny, simulate, hook):
    with pytest.raises(
        WrongResult, match=rf"methods.Damages: Damages.Server.{hook} \(.*\) changed server.parameters"
    ) as e:
        simulate(tiny(**ONE_ROUND, methods={f"{HERE}Damages": {"hook": hook}}))
    assert "allowed: a delta that update returns, or server.replace_model(weights)" in str(e.value)
    assert f"server, round {0 if hook == 'evaluated' else 1}" in str(e.value)


@pytest.mark.parametrize("what", ["buffers", "integers", "assigned"])
def test_its_other_vectors_count_too_and_an_assignment(tiny, simulate, what):
    path = "parameters" if what == "assigned" else what
    with pytest.raises(WrongResult, match=f"changed server.{path}, of which hosts have a copy"):
        simulate(tiny(**ONE_ROUND, **BATCH_NORM, methods={f"{HERE}Damages": {"what": what, "hook": "conclude"}}))


def test_a_model_may_be_replaced(tiny, simulate):
    simulate(tiny(**ONE_ROUND, methods={f"{HERE}Damages": {"what": "replaced", "hook": "end_task"}}))


def damaging_sampler(server, count, draws):
    server.parameters.add_(1)
    return server.present[:count]


def test_a_sampler_that_changes_the_model_is_named(tiny, simulate):
    taking_part = {"count": 2, "sampler": f"{HERE}damaging_sampler"}
    with pytest.raises(WrongResult, match=r"participation.sampler: damaging_sampler \(.*\) changed server.parameters"):
        simulate(tiny(**ONE_ROUND, participation=taking_part))


class Decays(Method):
    """Decays all parameters of the module by hand, frozen ones, too."""

    class Client(ClientHalf):
        def finish(self, client, delta):
            with torch.no_grad():
                for parameter in client.model.module.parameters():
                    parameter.mul_(0.9)
            return delta, {}


class ServerDecays(Method):
    class Server(ServerHalf):
        def update(self, server, delta, reply):
            next(server.network.module.parameters()).data.mul_(0.9)
            return delta


@pytest.mark.parametrize("method", ["Decays", "ServerDecays"])
def test_a_changed_frozen_parameter_is_refused(tiny, simulate, method):
    """No message carries it: clients that share the process would train another network from then on."""
    simulate(tiny(**ONE_ROUND, methods={f"{HERE}{method}": {}}))  # trained ones begin anew
    model = {"model__name": "mlp", "model__freeze": ["1.*"]}
    with pytest.raises(
        WrongResult, match=f"a hook of {method} or the model changed the frozen parameter 1.weight, whic"
    ):
        simulate(tiny(**ONE_ROUND, **model, methods={f"{HERE}{method}": {}}))


@dataclass(frozen=True, kw_only=True)
class Attached(Method):
    """Something that it keeps or sends has autograd's graph."""

    what: str = "step"

    class Client(ClientHalf):
        method: "Attached"
        old: Any = None

        def penalty(self, step):
            if self.method.what == "step":
                zero = (
                    step.loss * 0 if self.old is None else (step.logits.mean(0) - self.old[0]["mean"]).square().mean()
                )
                self.old = [{"mean": step.logits.mean(0)}]
                return zero
            if self.method.what == "late" and step.number == 2:
                self.old = step.logits.mean(0)
            return step.loss.new_zeros(())

        def start(self, client, message):
            if self.method.what == "leaf":
                self.old = (torch.zeros(2, requires_grad=True),)

    class Server(ServerHalf):
        method: "Attached"

        def __init__(self, name, method):
            super().__init__(name, method)
            self.sum = {}

        def announce(self, server):
            graph = 2 * torch.ones(2, requires_grad=True)
            if self.method.what == "server":
                self.sum["graph"] = graph
            broadcasts = [Broadcast(self.name, 0, [graph])] if self.method.what == "broadcast" else []
            return {"w": graph} if self.method.what == "message" else None, broadcasts


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (
            "step",
            r"attribute old, set by Attached.Client.penalty \(.*\) holds a tensor that has autograd's graph, .*detach",
        ),
        ("late", r"Attached: its client side's attribute old holds a tensor that has autograd's graph"),
        (
            "leaf",
            r"attribute old, set by Attached.Client.start \(.*\) holds a tensor that requires a gradient, .*detach",
        ),
        ("server", r"attribute sum, set by Attached.Server.announce \(.*\) holds a tensor that has autograd's graph"),
        (
            "message",
            r"Attached.Server.announce \(.*\) returned a message with autograd's graph in \['w'\], allowed: det",
        ),
        (
            "broadcast",
            r"Attached.Server.announce \(.*\) returned the broadcast Attached with autograd's graph in \[0\]",
        ),
    ],
)
def test_autograd_s_graph_is_neither_kept_nor_sent(tiny, simulate, what, words):
    with pytest.raises(RunError, match=words):
        simulate(tiny(**ONE_ROUND, methods={f"{HERE}Attached": {"what": what}}))


class Box:
    """An object of no dataclass, as an encoded value may be."""

    whole: "Box | None" = None

    def __init__(self, inside: Any) -> None:
        self.inside = inside


@pytest.mark.parametrize(
    ("value", "change", "path"),
    [
        ({"a": [torch.zeros(2)]}, lambda v: v["a"][0].add_(1), "['a'][0]"),
        ({"a": [torch.zeros(2)]}, lambda v: v["a"].append(1), "['a'][1]"),
        ({"a": 1, "b": 2}, lambda v: v.pop("b"), "['b']"),
        (Delta(torch.zeros(2), torch.zeros(1)), lambda v: v.buffers.add_(1), ".buffers"),
        ((np.zeros(2), None), lambda v: v[0].fill(1), "[0]"),
        ([torch.tensor([math.nan, 0.0])], lambda v: v[0].clamp_(min=1), "[0]"),
        ({"b": Box(torch.zeros(2))}, lambda v: v["b"].inside.add_(1), "['b'].inside"),
        ({"b": Box({"n": 1})}, lambda v: v["b"].inside.update(n=2), "['b'].inside['n']"),
        ((deque([1, 2]),), lambda v: v[0].append(3), "[0][2]"),
        ([math.nan, torch.tensor(math.nan), np.array(math.nan), {1}], lambda v: None, None),
    ],
)
def test_a_changed_part_is_found_by_its_path(value, change, path):
    watched = Snapshot(value)
    assert watched.change() is None
    change(value)
    assert watched.change() == path


def test_an_object_may_hold_itself():
    box = Box(torch.zeros(2))
    box.whole = box
    watched = Snapshot({"b": box})
    assert watched.change() is None
    box.inside.add_(1)
    assert watched.change() == "['b'].inside"


def test_a_separate_copy_shares_nothing():
    value = {"t": torch.zeros(3)[:1], "a": (np.zeros(2), [1])}
    copy = separate(value)
    copy["t"].add_(1)
    copy["a"][0].fill(1)
    copy["a"][1].append(2)
    assert float(value["t"]) == 0
    assert value["a"][0].tolist() == [0, 0]
    assert value["a"][1] == [1]
