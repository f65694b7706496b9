"""What `raysim check` says where a run's data or hardware are not: the machine has 2 CPUs, 8 GiB and no GPU."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from estimates import memory_of

import raysim
from raysim.data.dataset import Declared, MissingData
from raysim.estimate.memory import estimate_memory
from raysim.launch import check as checking
from raysim.system.capacity import GIB, Capacity
from raysim.system.errors import ConfigError

SOMEWHERE = "127.0.0.1:1"


def absent(root: Path, download: bool, *, declares: bool = True):
    """The data of `tiny`, without their files."""
    declared = Declared((6,), train=36, test=20, classes=4, dtype="float32")
    raise MissingData("dataset absent: no files", declared if declares else None)


def without_files(**keys):
    return {"dataset": {"name": f"{__name__}:absent", "root": "/", **keys}}


# data


@pytest.mark.parametrize(
    "alike",
    [
        {},
        {"partition": {"kind": "shards", "shards_per_client": 2}, "dataset__normalize": "standard"},
        {"dataset__train_samples": 20, "evaluation__split": "validation"},
    ],
)
def test_where_files_are_missing_their_declared_size_is_exact(check, alike):
    """Who has how many samples does not depend on labels here: all but the time is as with the files."""
    there, said = check(**alike), check(**without_files(), **alike)
    assert said.pop("data") == (
        f"{there.pop('data')}, as declared: the files of {__name__}:absent are not in /; a run downloads what raysim "
        "can"
    )
    assert there.pop("time").startswith("about ")
    assert said.pop("time") == "not known: it is measured where the data are"
    assert said == there


@pytest.mark.parametrize(
    "by_label",
    [
        {"partition": {"kind": "dirichlet", "alpha": 0.5, "min_samples": 1}},
        {"scenario": {"kind": "class_incremental", "tasks": 2}},
        {
            "scenario": {"kind": "domain_incremental", "tasks": 2, "shift": {"domains": [f"{__name__}:absent"] * 2}},
            "partition": {"kind": "shards", "shards_per_client": 1, "per": "run"},  # by class across both domains
        },
    ],
)
def test_what_depends_on_missing_labels_is_about_so_much(check, by_label):
    said = check(**without_files(download=False), **by_label)
    assert f", 4 classes, as declared, its classes equally frequent: the files of {__name__}:absent" in said["data"]
    assert said["data"].endswith("absent are not in /")
    assert said["clients"].startswith("3, each with about ")
    assert said["rounds"] == "4 with about 12 client updates"
    for label in ("steps", "bytes up", "bytes down"):
        assert said[label].startswith("about ")


def test_rounds_depend_on_labels_where_windows_arrive(check):
    windows = {"boundaries": {"asynchronous": {"window": 7, "rounds_per_window": 2}}}
    scenario = {"scenario": {"kind": "class_incremental", "tasks": 2, **windows}, "training__rounds_per_task": None}
    dirichlet = {"partition": {"kind": "dirichlet", "alpha": 0.5, "min_samples": 1}}
    assert check(**without_files(), **scenario, **dirichlet)["rounds"].startswith("about ")
    assert not check(**scenario, **dirichlet)["rounds"].startswith("about ")


def test_where_data_declare_nothing_it_says_what_is_known_and_what_is_missing(lines):
    said = []
    with pytest.raises(MissingData, match=r"^dataset absent: no files$"):
        said.extend(lines(**without_files(declares=False)))  # extend keeps what came before the error
    assert [label for label, _ in said] == ["run", "rounds", "actors"]
    assert dict(said)["rounds"] == "4; steps, bytes, memory and time depend on the data, which are not here"
    assert dict(said)["actors"].startswith("1 coordinator and 3 hosts on this machine")


def test_a_run_needs_the_files(tiny, tmp_path):
    with pytest.raises(ConfigError, match=r"^dataset absent: no files$"):
        raysim.run(tiny(**without_files()), out=tmp_path / "out", local=True)


# GPUs


def test_a_config_for_gpus_is_priced_where_there_are_none(check, tiny, tmp_path):
    here, said = check(), check(resources={"gpus_per_actor": 0.25})
    where = "1 coordinator and 3 hosts, on a machine with GPUs, which this one is not"
    assert said["actors"] == f"{where}; each host asks for an equal share of the CPUs, at most 1; 0.25 GPUs"
    assert said["time"] == "not known: it is measured where the GPUs are"
    assert "on a node, and up to" in said["memory"]
    for label in ("data", "rounds", "steps", "bytes up", "bytes down"):
        assert said[label] == here[label]
    with pytest.raises(ConfigError, match=r"^resources\.gpus_per_actor: found 0\.25, and this machine has no GPU "):
        raysim.run(tiny(resources__gpus_per_actor=0.25), out=tmp_path / "out")
    with pytest.raises(ConfigError, match=r"^resources\.custom: found 'fast', allowed: none"):
        check(resources={"gpus_per_actor": 0.25, "custom": {"fast": 1}})


def test_a_gpu_for_the_server_alone_is_lacking_as_well(check, monkeypatch):
    """On one GPU, the server's fifth leaves four fifths: three hosts of 0.25, and not three of 0.3."""
    said = check(resources={"server_gpus": 0.2})
    assert said["actors"].startswith("1 coordinator with 0.2 GPUs and 3 hosts, on a machine with GPUs, which this one")
    assert said["time"] == "not known: it is measured where the GPUs are"
    assert "3 hosts on" in check(gpus=1, resources={"server_gpus": 0.2, "gpus_per_actor": 0.25})["actors"]
    with pytest.raises(
        ConfigError, match=r"found 0\.3 for each of 3 actors, the cluster has 0\.8 GPUs beside the server"
    ):
        check(gpus=1, resources={"server_gpus": 0.2, "gpus_per_actor": 0.3})
    monkeypatch.setattr(checking, "estimate_memory", lambda *given: replace(estimate_memory(*given), server_gpu=2048))
    assert check(resources={"server_gpus": 0.2})["GPU memory of the server"].startswith("about 2.0 KiB for its ")
    assert "GPU memory of the server" not in check()


def test_where_there_are_gpus_too_few_of_them_are_refused(check):
    """Three hosts of 0.25 fit on one GPU, and not three of 0.5."""
    assert "3 hosts on this machine (2 CPUs, 1 GPU)" in check(gpus=1, resources={"gpus_per_actor": 0.25})["actors"]
    with pytest.raises(ConfigError, match=r"^resources\.gpus_per_actor: found 0\.5 for each of 3 actors"):
        check(gpus=1, resources={"gpus_per_actor": 0.5})


@pytest.fixture
def cluster(monkeypatch):
    """A function that makes a cluster of one node with so many GPUs answer at SOMEWHERE."""

    def answer(gpus):
        node = Capacity(8, gpus, 8 * GIB)
        there = Capacity(8, gpus, None, {}, [node])
        monkeypatch.setattr("raysim.actors.joining.joined_cluster", lambda address: nullcontext(there))

    return answer


def test_a_cluster_with_gpus_is_priced_from_a_head_without(check, cluster):
    cluster(gpus=1)
    said = check(resources={"address": SOMEWHERE, "gpus_per_actor": 0.25})
    assert f"3 hosts at {SOMEWHERE}, 3 on 1 node (of 1 node with 8 CPUs, 1 GPU)" in said["actors"]
    assert said["time"] == "not known: it is measured where the GPUs are"
    assert "GPU memory" in said


def test_a_cluster_without_gpus_is_told_what_would_be_asked_of_it(check, cluster):
    cluster(gpus=0)
    said = check(**without_files(), resources={"address": SOMEWHERE, "gpus_per_actor": 0.25})
    nodes = f"spread over the nodes of {SOMEWHERE}, none of which has a GPU now"
    assert said["actors"].startswith(f"1 coordinator and 3 hosts, {nodes}; each host asks for ")
    assert said["time"] == "not known: it is measured where the data and the GPUs are"


def test_gpu_memory_is_arithmetic_of_data_vectors_activations_and_clients(check, tiny):
    """Of the MLP 6-5-4, 59 numbers: a host has its parameters, their gradient, a broadcast, the sum (2) and an update,

    and packs a layer. (2 + 1 + 4) * 236 = 1,652 bytes; (36 + 20) samples of 6 float32 and an int64 are 1,792.
    Evaluating 20 samples takes four times the widest output, 20 * 6 * 4 * 4 = 1,920, a batch of 4 only
    4 * (6 + 5 + 5 + 4) * 4 = 320. SCAFFOLD's broadcasts add a vector, its sum 7, and each of its clients keeps one.
    Graphs keep the batch's activations while it evaluates, and a gradient each, of eight.
    """
    config = tiny(resources={"gpus_per_actor": 0.25})
    assert memory_of(config).gpu_with([0]) == 1652 + 1792 + 1920
    said = check(resources={"gpus_per_actor": 0.25})["GPU memory"]
    assert said.startswith("up to 5.2 KiB for a host, 21.0 KiB for the 4 that share one, by arithmetic: ")
    config = tiny(methods={"scaffold": {}})
    assert memory_of(config).gpu_with([0, 1]) == 1652 + 1792 + 1920 + (1 + 7 + 2) * 236
    config = tiny(resources={"gpus_per_actor": 0.25, "cuda_graphs": True})
    assert memory_of(config).gpu_with([0]) == 1652 + 1792 + 1920 + 320 + 8 * 236
    assert "share" not in check(resources={"gpus_per_actor": 1})["GPU memory"]
    assert "GPU memory" not in check()
