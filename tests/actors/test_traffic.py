"""What crosses between actors is the model, messages and sums, whatever clients hold; moving clients, by reference."""

import io
import pickle
from dataclasses import dataclass, field
from typing import Any

import pytest
import ray

from raysim import config as configs
from raysim.actors import reservation, serialization, workers
from raysim.actors import runner as ray_runner
from raysim.actors.host import Performed
from raysim.engine.replies import Reply
from raysim.engine.simulation import Simulation
from raysim.estimate.placement import place
from raysim.federation.federation import build_federation
from raysim.system.capacity import Capacity
from raysim.system.seeding import torch_untouched

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]

CLIENTS = 4
CPUS = 3
ROUNDS = 3  # of each of two tasks
LIMB = 8  # bytes of a parameter in an exact sum
OVERHEAD = 4096  # bytes of names, shares, records and pickle's own, per message


class _ByReference(pickle.Pickler):
    """An object in the object store counts where it is put, not where its reference goes."""

    def persistent_id(self, found: Any) -> str | None:
        return found.hex() if isinstance(found, ray.ObjectRef) else None


def size(message: Any) -> int:
    buffer = io.BytesIO()
    _ByReference(buffer, pickle.HIGHEST_PROTOCOL).dump(message)
    return buffer.tell()


@dataclass
class Traffic:
    """Everything that crosses after the start: what is put, what calls carry, what they return; all of it packed."""

    put: list[Any] = field(default_factory=list)
    calls: list[tuple[str, Any]] = field(default_factory=list)
    replies: list[Any] = field(default_factory=list)

    def sizes(self) -> dict[str, list[int]]:
        performs = [args for name, args in self.calls if name == "perform"]
        evaluates = [args for name, args in self.calls if name == "count"]
        gives = [args for name, args in self.calls if name == "give"]
        assert len(performs) + len(evaluates) + len(gives) == len(self.calls)
        return {
            "put": [size(value) for value in self.put],
            "perform": sorted(size(args) for args in performs),
            "evaluate": sorted(size(args) for args in evaluates),
            "give": sorted(size(args) for args in gives),
            "replies": sorted(
                size(reply) for reply in self.replies if isinstance(serialization.unpack(reply), Performed)
            ),
        }


class _Tapped:
    """A host's handle that notes every call."""

    def __init__(self, handle: Any, traffic: Traffic) -> None:
        self._handle = handle
        self._traffic = traffic

    def __getattr__(self, name: str) -> Any:
        return _TappedCall(name, getattr(self._handle, name), self._traffic)


@dataclass
class _TappedCall:
    name: str
    call: Any
    traffic: Traffic

    def remote(self, *args: Any, **more: Any) -> Any:
        self.traffic.calls.append((self.name, (args, more)))
        return self.call.remote(*args, **more)


class _TappedRay:
    """What the runner sees as Ray from its start on: puts and gets are noted."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self.wait = ray.wait

    def put(self, value: Any) -> Any:
        self._traffic.put.append(value)
        return ray.put(value)

    def get(self, reference: Any) -> Any:
        reply = ray.get(reference)
        self._traffic.replies.append(reply)
        return reply


def traffic_of(config: configs.Config, monkeypatch: pytest.MonkeyPatch) -> Traffic:
    """Run with this process in the coordinator's place, and note what crosses once the hosts are ready."""
    traffic = Traffic()
    with torch_untouched(), monkeypatch.context() as patch:
        federation = build_federation(config)
        places = reservation.Places(place(config, Capacity(CPUS, 0, None)))
        forked, _ = workers.choose_start(config.resources, places.nodes())  # spawned ones take seconds each
        hosts = ray_runner.start_hosts(config, ray.put(federation), places, forked)
        runner = ray_runner.RayRunner(config, federation.streams, hosts, places.placement)
        list(runner.start(places))
        try:
            runner._hosts = [_Tapped(host, traffic) for host in hosts]
            patch.setattr(ray_runner, "ray", _TappedRay(traffic))
            patch.setattr(serialization, "ray", _TappedRay(traffic))
            for _ in Simulation(config, federation, runner).events():
                pass
        finally:
            places.give_back()
    return traffic


@pytest.fixture
def run(small: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    def traffic(**overrides: object) -> Traffic:
        own = {key.replace("__", "."): value for key, value in overrides.items()}
        return traffic_of(configs.load(small, {"resources.rebalance": False, **own}), monkeypatch)

    return traffic


def posted(traffic: Traffic) -> list[Any]:
    """The broadcasts that calls carry: Weights by value, or None where a reference stands for them."""
    found = []
    for message, *_ in (arguments for name, (arguments, _) in traffic.calls if name != "give"):
        _, names, (_, *broadcasts) = pickle.loads(message)
        assert all(name == "model" for name, _ in names)
        found += [None if broadcast is None else serialization.unpack(broadcast) for broadcast in broadcasts]
    return found


def performed(traffic: Traffic) -> list[Reply]:
    return [answer.reply for answer in map(serialization.unpack, traffic.replies) if isinstance(answer, Performed)]


def hoard(**knobs: int) -> dict[str, Any]:
    return {"methods": {"misbehaving:Hoarder": knobs}}


def test_only_the_model_mail_and_sums_cross(run: Any) -> None:
    message = 2**18  # bytes
    traffic = run(
        resources__clients_per_actor=1, evaluation__every_rounds=1, dataset__test=1600, **hoard(mailed=message)
    )
    sizes, weights = traffic.sizes(), posted(traffic)
    # once to a host, though every version is trained from and evaluated: the initial model and one of each round, but
    # the last only to the hosts that evaluate, of which there are as many as CPUs
    assert len(weights) == CLIENTS * 2 * ROUNDS + CPUS
    assert len(sizes["put"]) == 2 * ROUNDS  # large message is put once for all hosts; the model is small
    assert sum(sizes["put"]) <= 2 * ROUNDS * (message + OVERHEAD)
    assert max(sizes["perform"] + sizes["evaluate"]) <= weights[0].nbytes + OVERHEAD
    assert max(sizes["replies"]) <= 4 * (len(weights[0].parameters) + 8) + OVERHEAD  # what its one client sends


def test_what_clients_hold_and_how_many_share_a_host_does_not_change_what_crosses(run: Any) -> None:
    rounds = 1  # of each of two tasks
    short = {"resources__clients_per_actor": 4, "training__rounds_per_task": rounds}
    few = run(**short, **hoard(kept=0))
    much = run(**short, **hoard(kept=2**23), dataset__train=2000)
    assert few.sizes() == much.sizes()
    assert all("Hoarder.digest" in reply.sums for reply in performed(few))

    crowd = run(clients__count=8, **short | {"resources__clients_per_actor": 8}, **hoard(kept=0))
    assert len(posted(crowd)) == len(posted(few)) == 2 * rounds + 1
    assert len(performed(crowd)) == len(performed(few)) == 2 * rounds
    assert {len(reply.bytes_up) for reply in performed(crowd)} == {8}
    assert max(crowd.sizes()["replies"]) < max(few.sizes()["replies"]) + 1000  # what 4 clients more record


def test_a_round_of_resnet18_moves_one_broadcast_and_one_sum_per_host(run: Any) -> None:
    """11,173,962 trainable parameters less 6 of 10 classes' 513 = 11,170,884, and 9,600 statistics of BatchNorm.

    The sum of a parameter is one integer of 8 bytes, that of a statistic two; a broadcast is 4 bytes of each.
    """
    parameters, statistics, hosts = 11_170_884, 9_600, 2
    traffic = run(
        model={"name": "resnet18"},
        dataset={"name": "synthetic", "classes": 4, "shape": [3, 8, 8], "train": 16, "test": 8},
        scenario={"kind": "class_incremental", "tasks": 1},
        training={"rounds_per_task": 1, "batch_size": 2},
        resources__clients_per_actor=2,
    )
    sizes, replies = traffic.sizes(), performed(traffic)
    assert len(replies) == hosts
    assert all(len(reply.bytes_up) == CLIENTS / hosts for reply in replies)
    whole = LIMB * (parameters + 2 * statistics)
    assert all(whole <= found <= whole + OVERHEAD for found in sizes["replies"])
    broadcast = 4 * (parameters + statistics)
    assert len(sizes["put"]) == 2  # the initial model, and the one that the round made
    assert posted(traffic) == [None] * 3  # both hosts train, and one has all test samples, before and after
    assert all(broadcast <= found <= broadcast + OVERHEAD for found in sizes["put"])
    assert max(sizes["perform"] + sizes["evaluate"]) <= OVERHEAD


def test_what_clients_encode_crosses_encoded_where_a_host_has_one(run: Any) -> None:
    """A hundredth of 55,004 parameters, 550 in 8 bytes each; a host of two clients sends a sum, 8 bytes for each."""
    parameters, sparse = 5000 * (6 + 1) + 4 * (5000 + 1), 8 * 550
    model = {
        "clients__count": 2,
        "model": {"name": "mlp", "hidden": [5000]},
        "methods": {"top_k": {"fraction": 0.01}},
        "training__rounds_per_task": 1,
    }
    alone = run(resources__clients_per_actor=1, **model)
    assert max(alone.sizes()["replies"]) <= sparse + OVERHEAD
    together = run(resources__clients_per_actor=2, **model)
    assert min(together.sizes()["replies"]) >= LIMB * parameters
    for traffic in (alone, together):
        assert {nbytes for reply in performed(traffic) for nbytes in reply.bytes_up.values()} == {sparse}


def test_a_client_that_moves_crosses_by_reference(run: Any) -> None:
    """Four slow clients of which two take part: where both live on one host, one of them moves, with its megabyte."""
    kept = 2**20
    slow = {"misbehaving:Slow": {"client": -1, "seconds": 0.04}}
    traffic = run(
        resources__clients_per_actor=2,
        resources__rebalance=True,
        participation={"count": 2},
        methods={"misbehaving:Hoarder": {"kept": kept}, **slow},
    )
    sizes = traffic.sizes()
    assert sizes["give"]
    assert max(sizes["give"] + sizes["perform"]) <= OVERHEAD
    assert max(sizes["replies"]) < kept // 10
    assert not sizes["put"]
    assert all(size(answer) < kept // 10 for answer in traffic.replies)
