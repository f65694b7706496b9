"""What `raysim check` says, on a machine of 2 CPUs and 8 GiB whose every step takes a second."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
from estimates import made, memory_of
from small_runs import config_keys, hyperparameters

import raysim
from raysim.config.lookup import table
from raysim.estimate.memory import MemoryNeed
from raysim.estimate.pace import Pace, pace
from raysim.launch import check as checking
from raysim.launch.amounts import in_milliseconds
from raysim.launch.display import RunDisplay
from raysim.system.capacity import Capacity
from raysim.system.errors import ConfigError, RunError

GIB = 2**30
ALONE = MemoryNeed(forked=True)  # processes that hold nothing


def test_it_says_what_would_start_and_what_that_costs(check):
    """3 clients x 12 samples, 2 tasks x 2 rounds: 12 updates of 3 steps; 236 bytes of the MLP with 59 numbers.

    Time: 36 steps of a second and 9 beginnings of two, on two cores 27 s; 3 evaluations of 2 x 20 samples, there 6 s.
    A round is an order to 3 hosts, an evaluation one to the 2 that have a chunk: 4 s for rounds, 4.5 for 12 + 6 calls.
    In one process it is all one after the other, 54 + 12 s, and half a second a round.
    """
    said = check()
    assert said["tasks"] == "2: permutation 1; permutation 2"
    assert said["clients"] == "3, each with 12 samples at a time"
    assert said["model"] == "mlp: 59 trained parameters, 236 bytes as sent"
    assert said["rounds"] == "4 with 12 client updates"
    assert said["steps"] == "36 gradient steps"
    assert said["bytes up"] == said["bytes down"] == "2,832 (2.8 KiB; 708 bytes a round)"
    here = "1 coordinator and 3 hosts on this machine (2 CPUs, 0 GPUs)"
    assert said["actors"] == f"{here}; each host has 1 client, 0.6666 CPUs, 0 GPUs"
    assert said["memory"].endswith(" of the 8.0 GiB here, a host up to 36.0 MiB")
    hosts, each = "2 hosts at a time, or 68.0 s with --local", "1.0 s a step and 100 ms a test sample"
    beside = "2.1 s more a round"
    assert said["time"] == f"about 41.5 s plus startup, {hosts}: {each}, measured here; {beside}"


def test_the_servers_part_of_the_time_is_said(check, monkeypatch):
    """4 rounds of half a second and 2 ends of 3 minutes: 362 s, beside the 41.5 s on Ray or 68 s in one process."""
    assert "server" not in check()
    kinds = dict.fromkeys([(False, True), (False, False), (True, True), (True, False)], 0.5)
    measured = Pace(1.0, 2.0, 0.1, 0.5, 1.0, 0.25, kinds, {(False, False): 180.0, (True, True): 180.0})
    monkeypatch.setattr(checking, "pace", lambda *_: measured)
    said = check()
    assert said["time"].startswith("about 6.7 min plus startup, 2 hosts at a time, or 7.2 min with --local: ")
    assert said["server"] == "about 6.0 min of 6.7 min: 2 times 3.0 min at tasks' ends"
    monkeypatch.setattr(checking, "pace", lambda *_: replace(measured, ending={(False, False): 1.5, (True, True): 0.5}))
    assert check()["server"] == "about 4.0 s of 45.5 s: 4 times 0.5 s in rounds, 2 times 1.0 s at tasks' ends"
    said = check(resources={"address": NOBODY})
    assert said["time"].startswith("about 70.0 s of one core like this one")
    assert said["server"].startswith("about 4.0 s of 70.0 s: ")


def test_the_servers_share_is_said(check):
    """Of 2 CPUs, 3 hosts have 1 beside the coordinator's."""
    said = check(resources={"server_cpus": 1})["actors"]
    assert said.startswith("1 coordinator with 1 CPU and 3 hosts on this machine (2 CPUs, 0 GPUs); ")
    assert said.endswith(", 0.3333 CPUs, 0 GPUs")
    said = check(resources={"address": NOBODY, "server_gpus": 0.2, "server_cpus": 4})["actors"]
    assert said.startswith("1 coordinator with 4 CPUs and 0.2 GPUs and 3 hosts, spread over ")


@pytest.mark.parametrize(
    ("seconds", "said"), [(0, "0 ms"), (4.23e-5, "0.042 ms"), (0.0079, "7.9 ms"), (0.129, "130 ms"), (1.06, "1.1 s")]
)
def test_short_times_are_said_to_two_digits(seconds, said):
    assert in_milliseconds(seconds) == said


def test_of_many_tasks_a_few_are_named(check):
    said = check(scenario__tasks=9)
    assert said["tasks"] == "9: permutation 1; permutation 2; permutation 3; permutation 4; ...; permutation 9"


def test_bytes_are_shown_by_method(check):
    assert check(methods={"scaffold": {}})["bytes up"].endswith(
        ": model 2,832 (708 bytes a round), scaffold 2,832 (708 bytes a round)"
    )


def test_one_client_at_a_time_keeps_one_core_busy(check):
    said = check(participation={"count": 1}, resources={"clients_per_actor": "auto"})
    assert "2 hosts on this machine" in said["actors"]
    assert "1 or 2 clients" in said["actors"]
    assert "1 host at a time" in said["time"]


NOBODY = "127.0.0.1:1"


def test_where_no_cluster_answers_it_says_what_actors_would_ask_for(check):
    wanted = {"address": NOBODY, "clients_per_actor": 2, "cpus_per_actor": 0.5, "custom": {"fast": 0.1}}
    said = check(resources=wanted)
    where = f"spread over the nodes of {NOBODY}; each host asks for 0.5 CPUs; 0 GPUs; 0.1 fast"
    assert said["actors"] == f"1 coordinator and 2 hosts, {where}"
    assert said["cluster"].startswith(f"resources.address: no cluster answers at {NOBODY} (")
    assert "on a node, and up to" in said["memory"]
    assert said["time"].startswith("about 66.0 s of one core like this one")
    said = check(resources={"address": NOBODY, "clients_per_actor": "auto", "placement": "pack"})
    assert "as many hosts as there is room for, packed onto few nodes of" in said["actors"]
    assert "an equal share of the CPUs, at most 1; 0 GPUs" in said["actors"]


NODES = [Capacity(2, 0, 8 * GIB, {"fast": 1}), Capacity(2, 0, 8 * GIB), Capacity(1, 0, 8 * GIB, {"fast": 1})]


@pytest.fixture(autouse=True)
def without_compiler(monkeypatch):
    """Another test of this process may have imported torch's compiler, which an estimate then has."""
    monkeypatch.setattr("raysim.estimate.memory.COMPILER_BYTES", 0)


@pytest.fixture
def answering(monkeypatch):
    """A cluster of three nodes at NOBODY."""
    there = Capacity(5, 0, None, {"fast": 2}, NODES)
    monkeypatch.setattr("raysim.actors.joining.joined_cluster", lambda address: nullcontext(there))


def test_of_a_cluster_it_says_where_the_actors_would_go(check, answering):
    """5 CPUs, so five hosts of a client each, or what `fast` has room for; 3 clients of 12 samples are few bytes."""
    nodes = "(of 2 nodes with 2 CPUs, 0 GPUs, 1 node with 1 CPU, 0 GPUs)"
    said = check(clients__count=5, resources={"address": NOBODY})
    where = f"5 hosts at {NOBODY}, 2 on 2 nodes, 1 on 1 node {nodes}; each host has 1 client, 1 CPU, 0 GPUs"
    assert said["actors"] == f"1 coordinator and {where}"
    assert " on a node with 2 hosts, " in said["memory"]
    assert said["memory"].endswith(" more on this one, a host up to 36.0 MiB")
    said = check(resources={"address": NOBODY, "placement": "pack", "custom": {"fast": 0.5}, "clients_per_actor": 2})
    where = f"2 hosts at {NOBODY}, 2 on 1 node {nodes}; each host has 1 or 2 clients, 1 CPU, 0 GPUs, 0.5 fast"
    assert said["actors"] == f"1 coordinator and {where}"
    with pytest.raises(ConfigError, match=r"^resources\.custom: found 'fats', allowed: fast; did you mean"):
        check(resources={"address": NOBODY, "custom": {"fats": 0.5}})


def test_what_does_not_fit_is_refused_with_the_setting_that_would(check):
    with pytest.raises(
        ConfigError, match=r"3 actors would take about .* set resources\.clients_per_actor=auto"
    ) as found:
        check(memory=int((ALONE.total(2, 2) + 0.5 * ALONE.process) / 0.8))
    assert "\n" not in str(found.value)


def test_a_run_may_start_where_memory_may_be_lacking(tiny, check, monkeypatch, tmp_path):
    """`warn` shows the line that `refuse` ends with, in `raysim check` and in a run, and goes on."""
    with pytest.raises(ConfigError, match=r"nothing fits: .* set resources\.memory=warn") as refused:
        check(memory=2**20)
    said = check(memory=2**20, resources={"memory": "warn"})
    assert said["memory warning"] == str(refused.value)
    assert "time" in said
    lines = []
    monkeypatch.setattr(RunDisplay, "say", lambda self, text: lines.append(text))
    monkeypatch.setattr("raysim.launch.run.this_machine", lambda: Capacity(2, 0, 2**20))
    with pytest.raises(ConfigError, match=r"clients\.count: 3 in one process would take"):
        raysim.run(tiny(), out=tmp_path / "refused", local=True)
    done = raysim.run(tiny(resources={"memory": "warn"}), out=tmp_path / "warned", local=True)
    assert done.status == "done"
    assert lines[0].startswith("clients.count: 3 in one process would take about ")


def test_what_may_depend_on_values_is_about(check):
    """Watchful is user-defined, and Curious selects clients."""
    said = check(methods={"probes:Watchful": {}})
    assert said["rounds"] == "4 with 12 client updates"
    assert said["steps"] == "about 36 gradient steps"
    assert all(said[f"bytes {way}"].startswith("about 2,832") for way in ("up", "down"))
    assert "time" in said
    assert check(methods={"probes:Curious": {}})["rounds"] == "4 with about 12 client updates"


def test_what_fails_in_a_rehearsal_fails_the_check_after_the_rest(lines):
    said = {}
    with pytest.raises(RunError, match=r"^ValueError: no, way \(Failing\.Server\.announce, .*it failed in a rehearsal"):
        said.update(lines(methods={"probes:Failing": {}}))
    assert said["rounds"].startswith("4; a rehearsal with one client and few samples failed: ")
    assert not {"steps", "bytes up", "time"} & set(said)
    assert "3 hosts" in said["actors"]


def test_a_users_own_halves_do_nothing_before_the_run(tiny, log):
    """They may print, write files or take long; a half of raysim's own beside them is measured all the same."""
    config = tiny(methods={"probes:Everything": {}, "scaffold": {}})
    kept = memory_of(config).clients
    assert log == []
    alone = tiny(methods={"scaffold": {}})
    assert kept == memory_of(alone).clients
    assert min(kept) > 0


def test_a_clients_own_bytes_are_its_methods_and_its_memory(tiny):
    """236 bytes for a variate; 5 positions of 8 bytes and 4 logits of 4; of the model a client keeps nothing."""
    memory = {"capacity": 5}

    def clients(**overrides):
        config = tiny(memory=memory, **overrides)
        return memory_of(config).clients

    assert clients() == [0] * 3
    assert clients(methods={"scaffold": {}}) == [236] * 3
    assert clients(methods={"der": {}}) == [5 * (8 + 16)] * 3
    assert clients(methods={"er": {}}, memory__per="task") == [10 * 8] * 3
    # C-FLAG: its loss and gradient between the phases; with a table that is kept 3 rows more, of 12 samples by 4
    assert clients(methods={"c_flag": {"alpha": 0.01}}) == [4 + 236 + 40] * 3
    assert clients(methods={"c_flag": {"alpha": 0.01, "table": "keep"}}) == [4 + 4 * 236 + 40] * 3


@pytest.mark.parametrize("name", ["c_flag", "fedtrack"])
def test_tables_that_do_not_fit_are_refused_at_the_start(tiny, check, monkeypatch, tmp_path, name):
    """12 rows of 236 bytes (batches of 1) for each of 3 clients are kept, or for one at a time built again.

    So `keep` takes 2 * 12 * 236 bytes more than `rebuild` where one host has all clients, and 3 * 12 * 236 are kept.
    The machine has room for one host with `rebuild`, to the byte; in this process that is less.
    """

    def config(table):
        return {"methods": {name: {"table": table}}, "training__batch_size": 1, "logging": {"tensorboard": False}}

    def asks(table):
        made = tiny(**config(table))
        return memory_of(made)

    assert asks("rebuild").savings() == {}
    assert asks("keep").savings() == {f"methods.{name}.table=rebuild": 3 * 12 * 236}
    assert asks("keep").total(1, 1) - asks("rebuild").total(1, 1) == 2 * 12 * 236
    assert asks("keep").alone - asks("rebuild").alone == 2 * 12 * 236
    words = rf"; set methods\.{name}\.table=rebuild, which keeps 0\.0 GiB less, or take a smaller model"
    packed = {"resources": {"clients_per_actor": 3}}
    room = int(asks("rebuild").total(1, 1) / 0.8) + 1
    assert "1 host on" in check(memory=room, **config("rebuild"), **packed)["actors"]
    with pytest.raises(ConfigError, match=rf"nothing fits: one actor .*{words}"):
        check(memory=room, **config("keep"), **packed)
    room = int(asks("rebuild").alone / 0.8) + 1
    monkeypatch.setattr("raysim.launch.run.this_machine", lambda: Capacity(2, 0, room))
    raysim.run(tiny(**config("rebuild")), out=tmp_path / "rebuilt", local=True)
    with pytest.raises(ConfigError, match=rf"^clients\.count: 3 in one process would take about .*{words}"):
        raysim.run(tiny(**config("keep")), out=tmp_path / "kept", local=True)
    assert not (tmp_path / "kept").exists()


WINDOWS = {"boundaries": {"asynchronous": {"window": 7, "rounds_per_window": 2}}}
PACED = {name: {"methods": {name: hyperparameters(name)}, **config_keys(name)} for name in table("method")} | {
    "classes": {"scenario": {"kind": "class_incremental", "tasks": 4}},
    "windows": {"scenario": {"kind": "class_incremental", "tasks": 2, **WINDOWS}, "training__rounds_per_task": None},
    "fedbuff": {
        "schedule": {"kind": "asynchronous"},
        "clients__dropout": 0.5,
        "clients__arrive": {"first": 2, "per_task": 1},
    },
}
# a third of the methods, and the scenarios; the soak tests have the others
IN_TURN = [
    pytest.param(what, marks=pytest.mark.soak if what in table("method") and number % 3 else ())
    for number, what in enumerate(PACED)
]


@pytest.mark.parametrize("what", IN_TURN)
def test_a_pace_is_measured_of_every_method_and_scenario(tiny, what):
    config = tiny(**PACED[what])
    found = pace(*made(config))
    assert min(found.step, found.sample) > 0
    assert found.beginning >= 0
