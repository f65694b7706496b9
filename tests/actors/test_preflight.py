"""Which nodes suit a run: judged from what their tasks would return, without Ray."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from raysim.actors import compat, node_capacity, preflight, reservation, runs
from raysim.actors.preflight import SHARED, TEMPORARY, Found, Preflight, differing, lacking
from raysim.cli import main
from raysim.estimate.memory import MemoryNeed
from raysim.estimate.placement import Placement
from raysim.system.capacity import GIB, MIB, Capacity
from raysim.system.errors import ConfigError

HERE = {"raysim": "0.1.0 (code 12345678)", "Python": "3.11", "torch": "2.14.1", "Ray": "2.60.0"}
DRIVER, OTHER = "a" * 56, "b" * 56
FREE = {TEMPORARY: 10 * GIB, SHARED: 4 * GIB}


def found(memory: int = 8 * GIB, store: str = SHARED, free: dict[str, int] = FREE, **versions: str) -> Found:
    return Found({**HERE, **versions}, memory, free, store)


def test_a_node_with_other_software_is_told_by_what_differs() -> None:
    assert differing(found(), HERE) is None
    assert differing(found(torch="2.13.0", Python="3.12"), HERE) == "Python 3.12, here 3.11, torch 2.13.0, here 2.14.1"


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (found(), None),
        (found(memory=GIB - 1), "1,024 MiB of memory are available, a host needs 1,024 MiB"),
        (found(free={TEMPORARY: 255 * MIB, SHARED: GIB}), "/tmp has 255 MiB free, a run needs 256 MiB"),
        (found(free={TEMPORARY: GIB, SHARED: 63 * MIB}), "/dev/shm has 63 MiB free, a run needs 100 MiB"),
        (found(free={TEMPORARY: 355 * MIB, SHARED: 0}, store=TEMPORARY), "/tmp has 355 MiB free, a run needs 356 MiB"),
        (found(free={TEMPORARY: 356 * MIB, SHARED: 0}, store=TEMPORARY), None),
        (found(free={TEMPORARY: GIB}, store=TEMPORARY), None),  # a system without /dev/shm
    ],
)
def test_a_node_needs_room_for_the_data_where_its_store_is_and_memory_for_a_host(there: Found, said: str) -> None:
    assert lacking(there, data=100 * MIB, memory=GIB) == said


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A function that sets what the nodes of a cluster answer, and the config of a run there."""

    def answer(
        wanted: str = "refuse", cpus: float = 2, leaving: Sequence[str] = (), **answers: Found | str
    ) -> Preflight:
        ids = {"driver": DRIVER, "other": OTHER}
        table = [
            {
                "NodeID": ids[name],
                "Alive": True,
                "NodeManagerAddress": f"10.0.0.{number}",
                "Resources": {"CPU": cpus, "memory": 6.0 * GIB, "object_store_memory": 1.0 * GIB},
            }
            for number, name in enumerate(answers, start=1)
        ]
        asked: list[str] = []

        def ask(function: object, arguments: dict[str, Any]) -> Any:
            assert function is preflight.look_around
            assert set(arguments.values()) <= {(GIB,)}
            asked.extend(arguments)
            told = {ids[name]: answer for name, answer in answers.items() if ids[name] in arguments}
            good = {key: answer for key, answer in told.items() if isinstance(answer, Found)}
            return good, {key: answer for key, answer in told.items() if isinstance(answer, str)}

        monkeypatch.setattr(preflight.ray, "nodes", lambda: table)
        monkeypatch.setattr(compat, "draining_nodes", lambda: [ids[name] for name in leaving])
        driver = SimpleNamespace(get_node_id=lambda: DRIVER)
        monkeypatch.setattr(preflight.ray, "get_runtime_context", lambda: driver)
        monkeypatch.setattr(preflight, "ask_nodes", ask)
        monkeypatch.setattr(preflight, "versions", lambda: HERE)
        config: Any = SimpleNamespace(resources=SimpleNamespace(memory=wanted))
        made: Any = Preflight(config, MemoryNeed(data=100 * MIB, host=GIB))
        made.asked = asked
        return made

    return answer


def test_a_node_that_is_unfit_is_named_once_and_left_out(there: Callable[..., Any]) -> None:
    nodes = there(driver=found(memory=5 * GIB), other="ModuleNotFoundError: No module named 'raysim'")
    assert nodes.ask() == [f"10.0.0.2 ({OTHER[:8]}): ModuleNotFoundError: No module named 'raysim'"]
    assert [*nodes.unfit] == [OTHER]
    fit = nodes.capacity()
    assert (fit.cpus, len(fit.nodes)) == (2, 1)
    assert fit.nodes[0].memory == 5 * GIB - 100 * MIB  # what is available, less the copy of the data
    assert nodes.ask() == []
    assert nodes.asked == [DRIVER, OTHER]  # each once
    first, second = nodes.lines()
    versions = "raysim 0.1.0 (code 12345678), Python 3.11, torch 2.14.1, Ray 2.60.0"
    rooms = "5,120 MiB of memory, 10,240 MiB in /tmp, 4,096 MiB in /dev/shm"
    assert first == f"10.0.0.1 ({DRIVER[:8]}): fit, 2 CPUs and 0 GPUs, {rooms}, {versions}"
    assert second.startswith(f"10.0.0.2 ({OTHER[:8]}): left out (ModuleNotFoundError: ")
    told = r"^too few \(nodes that were left out: 10\.0\.0\.2 \(b{8}\): ModuleNotFoundError"
    with pytest.raises(ConfigError, match=told), nodes.naming():
        raise ConfigError("too few")


def test_what_ray_counts_is_the_most_even_if_more_is_available(there: Callable[..., Any]) -> None:
    nodes = there(driver=found(memory=50 * GIB))
    assert nodes.ask() == []
    assert nodes.capacity().nodes[0].memory == 6 * GIB
    with pytest.raises(ConfigError, match=r"^too few$"), nodes.naming():
        raise ConfigError("too few")


def test_a_node_that_is_about_to_leave_gets_no_host(there: Callable[..., Any]) -> None:
    nodes = there(driver=found(), other=found(), leaving=["other"])
    assert nodes.ask() == []
    assert len(nodes.capacity().nodes) == 1


def test_memory_is_only_warned_of_where_the_config_says_so(there: Callable[..., Any]) -> None:
    little = {"driver": found(), "other": found(memory=GIB)}
    assert len(there("refuse", **little).ask()) == 1
    assert there("warn", **little).ask() == []


def test_a_head_without_cpus_needs_no_room(there: Callable[..., Any]) -> None:
    assert there(cpus=0, driver=found(free={TEMPORARY: 0, SHARED: 0})).ask() == []


def test_a_run_is_refused_if_the_node_of_its_coordinator_has_other_software(there: Callable[..., Any]) -> None:
    nodes = there(driver=found(Ray="2.59.0"), other=found())
    told = r"^resources\.address: the run's coordinator cannot run on 10\.0\.0\.1 \(a{8}\): Ray 2\.59\.0, here 2\.60"
    with pytest.raises(ConfigError, match=told):
        nodes.ask()


def test_this_machine_is_fit_for_what_runs_on_it() -> None:
    here = preflight.look_around(2**60)
    assert differing(here, preflight.versions()) is None
    assert here.store == TEMPORARY  # no /dev/shm has an exabyte
    assert here.memory > 0
    assert set(here.versions) == set(HERE)
    assert "+" not in here.versions["torch"]


def test_hosts_are_reserved_on_the_other_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, Any] = {}

    def group(bundles: Any, strategy: str, **how: Any) -> Any:
        made.update(how)
        return SimpleNamespace(wait=lambda _: False, bundle_specs=bundles)

    monkeypatch.setattr(reservation, "placement_group", group)
    monkeypatch.setattr(reservation, "remove_placement_group", lambda _: None)
    fit = Capacity(2, 0, None)
    monkeypatch.setattr(node_capacity, "present_nodes", lambda: {DRIVER: fit, OTHER: fit})
    with pytest.raises(reservation.Lost):  # the node to avoid would have room for the third host
        reservation.Places(Placement([[0], [1], [2]], 1, 0, 0, avoid=[OTHER]))
    assert made["bundle_label_selector"] == [{"ray.io/node-id": f"!in({OTHER})"}] * 3
    monkeypatch.setattr(reservation, "this_node", lambda: DRIVER)
    monkeypatch.setattr(reservation, "PATIENCE", 1)
    with pytest.raises(
        reservation.RunError, match=r"^2 hosts need 1 CPU each, and the server 2 CPU, 0\.5 GPU on this node"
    ):
        reservation.Places(Placement([[0], [1]], 1, 0, 0, server=(2, 0.5)))
    assert made["bundle_label_selector"] == [{"ray.io/node-id": DRIVER}, {}, {}]  # first, as Ray gives shares in order
    own = Capacity(2, 0, None, has_driver=True)
    monkeypatch.setattr(node_capacity, "present_nodes", lambda: {DRIVER: own, OTHER: fit})
    with pytest.raises(reservation.Lost):  # of the CPUs of the driver's node, one is left
        reservation.Places(Placement([[0], [1], [2], [3]], 1, 0, 0, server=(1, 0)))


def test_a_run_of_a_sweep_is_on_another_node(tiny: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, Any] = {}

    class Stop(Exception):
        pass

    def options(**how: Any) -> None:
        made.update(how)
        raise Stop

    monkeypatch.setattr(runs.ray, "remote", lambda _: SimpleNamespace(options=options))
    for avoid, selector in (([OTHER], {"ray.io/node-id": f"!in({OTHER})"}), ([], None)):
        with pytest.raises(Stop):
            runs.RunActor(tiny(), None, None, lambda _: None, avoid)
        assert made["label_selector"] == selector


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("null", "resources.address: found null, allowed with --cluster: the address of a cluster"),
        ("127.0.0.1:1", "resources.address: no cluster answers at 127.0.0.1:1 "),
    ],
)
def test_a_cluster_that_is_not_there_is_refused(address: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Without --cluster, the command would say what the hosts request."""
    assert main(["check", "quickstart", f"resources.address={address}", "--cluster"]) == 2
    assert told in capsys.readouterr().err
