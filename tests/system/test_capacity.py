"""The limits of a job, as Linux's control groups and Slurm report them: a fake tree of groups in a folder."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from raysim.actors import failures
from raysim.system import capacity
from raysim.system.capacity import GIB, MIB, count_killed, job_memory, this_machine

QUOTA, PERIOD = "cpu.cfs_quota_us", "cpu.cfs_period_us"
V1 = "8:memory:/slurm/job_7/step_0\n4:cpu,cpuacct:/slurm/job_7\n0::/\n"
V2 = "0::/slurm/job_7/step_0\n"
V1_LIMIT = "memory/memory.limit_in_bytes"
UNLIMITED = str(2**63 - 4096)  # in version 1

Tree = Callable[[str, Mapping[str, str]], None]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """A function: write the text of /proc/self/cgroup, and files of groups; no variable of Slurm is set."""
    for name in [*capacity.SLURM, *capacity.SLURM.values(), "SLURM_CPUS_ON_NODE"]:
        if name:
            monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(capacity, "GROUPS", tmp_path / "groups")
    monkeypatch.setattr(capacity, "OWN_GROUPS", tmp_path / "own")

    def write(own: str, files: Mapping[str, str]) -> None:
        (tmp_path / "own").write_text(own)
        for name, text in files.items():
            path = tmp_path / "groups" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return write


@pytest.mark.parametrize(
    ("variables", "lines"),
    [
        ({}, []),
        ({"SLURM_MEM_PER_NODE": "512"}, []),
        ({"SLURM_MEM_PER_CPU": "1000", "SLURM_CPUS_ON_NODE": "2"}, []),
        (
            {"SLURM_MEM_PER_CPU": "1000", "SLURM_CPUS_ON_NODE": ""},
            ["the memory limit of SLURM_MEM_PER_CPU=1000 is not used: SLURM_CPUS_ON_NODE is '', not a whole number"],
        ),
        (
            {"SLURM_MEM_PER_NODE": "4G", "SLURM_MEM_PER_GPU": "5"},
            [
                "the memory limit of SLURM_MEM_PER_NODE=4G is not used: SLURM_MEM_PER_NODE is '4G', not a whole number",
                "the memory limit of SLURM_MEM_PER_GPU=5 is not used: SLURM_GPUS_ON_NODE is None, not a whole number",
            ],
        ),
    ],
)
def test_a_limit_that_cannot_be_used_is_named(
    variables: Mapping[str, str], lines: list[str], tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert capacity.describe_ignored() == lines


@pytest.mark.parametrize(
    ("own", "files", "cpus", "memory"),
    [
        (V2, {"memory.max": f"{GIB}\n", "cpu.max": "250000 100000\n"}, 2.5, GIB),
        (V2, {"slurm/job_7/memory.max": str(GIB), "slurm/job_7/step_0/memory.max": "max"}, None, GIB),
        (V2, {"slurm/memory.max": str(2 * GIB), "slurm/job_7/memory.max": str(GIB)}, None, GIB),
        (V2, {"slurm/memory.max": str(GIB), "slurm/job_7/memory.max": str(2 * GIB)}, None, GIB),
        (V2, {"slurm/job_8/memory.max": str(GIB), "slurm/job_7/step_0/step_1/memory.max": str(GIB)}, None, None),
        (V2, {"slurm/job_7/step_0/cpu.max": "max 100000", "slurm/cpu.max": "100000 100000"}, 1, None),
        (V2, {"memory.max": "max\n", "cpu.max": "max 100000\n"}, None, None),
        ("0::/../..\n", {"memory.max": str(GIB)}, None, GIB),  # of a container, whose group is the topmost
        (V1, {V1_LIMIT: str(GIB), f"cpu/{QUOTA}": "50000", f"cpu/{PERIOD}": "100000"}, 0.5, GIB),
        (V1, {V1_LIMIT: UNLIMITED, V1_LIMIT.replace("/", "/slurm/job_7/"): str(GIB)}, None, GIB),
        (V1, {f"cpu/slurm/job_7/{QUOTA}": "100000", f"cpu/slurm/job_7/{PERIOD}": "100000"}, 1, None),
        (V1, {f"cpu/{QUOTA}": "-1", f"cpu/{PERIOD}": "100000"}, None, None),
        (V1, {}, None, None),
    ],
)
def test_the_least_limit_of_all_groups_of_this_process_counts(
    own: str, files: Mapping[str, str], cpus: float | None, memory: int | None, tree: Tree
) -> None:
    """Bytes, and quota over period, as versions 2 and 1 have them. Half a CPU is still one to use."""
    tree("", {})
    whole = this_machine()
    tree(own, files)
    found = this_machine()
    assert found.cpus == (whole.cpus if cpus is None else min(whole.cpus, max(1, int(cpus))))
    assert found.memory == (whole.memory if memory is None else memory)
    assert job_memory() == memory


@pytest.mark.parametrize(
    ("variables", "memory"),
    [
        ({"SLURM_MEM_PER_NODE": "512"}, 512 * MIB),
        ({"SLURM_MEM_PER_CPU": "100", "SLURM_CPUS_ON_NODE": "3"}, 300 * MIB),
        ({"SLURM_MEM_PER_GPU": "200", "SLURM_GPUS_ON_NODE": "2"}, 400 * MIB),
        ({"SLURM_MEM_PER_NODE": "2048"}, GIB),  # the group's limit is less
        ({"SLURM_MEM_PER_NODE": "0"}, GIB),  # Slurm's number for all of the node
        ({"SLURM_MEM_PER_NODE": "512M"}, GIB),
    ],
)
def test_slurms_limit_counts_where_no_group_has_less(
    variables: Mapping[str, str], memory: int, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree(V2, {"slurm/memory.max": str(GIB)})
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert job_memory() == memory
    assert this_machine().memory == memory


def test_slurms_cpus_count(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree(V2, {})
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "1")
    assert this_machine().cpus == 1


def events(killed: int) -> str:
    return f"low 0\nhigh 0\nmax 7\noom 3\noom_kill {killed}\n"


@pytest.mark.parametrize(
    ("own", "prefix", "name", "limit"),
    [
        (V2, "", "memory.events", "memory.max"),
        (V1, "memory/", "memory.oom_control", "memory.limit_in_bytes"),
    ],
)
def test_a_process_that_the_kernel_kills_is_reported_with_the_limit(
    own: str, prefix: str, name: str, limit: str, tree: Tree
) -> None:
    """The job's group has the limit. Groups above it count what is killed in other jobs."""
    job, step, above = (f"{prefix}{group}/" for group in ("slurm/job_7", "slurm/job_7/step_0", "slurm"))
    counts = {step + name: events(2), job + name: events(2), above + name: events(9)}
    tree(own, {job + limit: str(3 * GIB), **counts})
    ended = "the host of client 0 died: its process ended (killed, crashed, or out of memory)"
    failures.watch()
    for elsewhere in (above + name, f"{prefix}slurm/job_8/{name}"):
        tree(own, {elsewhere: events(10)})
        assert str(failures.death("the host of client 0", failures.RayActorError())) == ended
    for here in (step + name, job + name):
        tree(own, counts)
        failures.watch()
        tree(own, {here: events(3)})
        for _ in range(2):  # two actors may be lost at once
            lost = failures.death("the host of client 0", failures.RayActorError())
            killed = "the kernel killed it at the memory limit of 3.0 GiB of this job"
            assert str(lost) == f"the host of client 0 died: {killed}"
        failures.watch()  # the next attempt
        assert str(failures.death("the host of client 0", failures.RayActorError())) == ended


def test_without_a_limit_the_machines_memory_ran_out(tree: Tree) -> None:
    tree(V2, {"slurm/job_7/step_0/memory.events": events(0), "slurm/job_7/memory.events": events(0)})
    failures.watch()
    tree(V2, {"slurm/job_7/memory.events": events(1)})  # of others, where this group has no limit
    assert failures.killed_for_memory("it") is None
    tree(V2, {"slurm/job_7/step_0/memory.events": events(1)})
    assert failures.killed_for_memory("it") == "the kernel killed it, because this machine's memory ran out"


def test_where_the_kernel_does_not_count_nothing_is_said(tree: Tree) -> None:
    tree(V1, {"memory/slurm/job_7/step_0/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\n"})
    assert count_killed() == 0
    tree("", {})
    assert count_killed() == 0
