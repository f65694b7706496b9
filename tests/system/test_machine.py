"""The kind of a machine, and what is said where nodes differ."""

import torch

from raysim.system import device


def test_a_kind_names_cpu_instructions_and_torch(tmp_path, monkeypatch):
    listed = tmp_path / "cpuinfo"
    listed.write_text("processor\t: 0\nmodel name\t: A CPU: one\nflags : avx2\n\nmodel name\t: A CPU: one\n")
    monkeypatch.setattr(device, "CPU_LIST", listed)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    assert device.describe_machine(torch.device("cpu")) == f"A CPU: one with AVX2, torch {torch.__version__}"
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "A GPU")
    assert device.describe_machine(torch.device("cuda")).endswith(f"torch {torch.__version__}, A GPU")


def test_a_machine_that_lists_no_models_has_a_kind_too(tmp_path, monkeypatch):
    monkeypatch.setattr(device, "CPU_LIST", tmp_path / "none")
    assert " with " in device.describe_machine(torch.device("cpu"))
    assert not device.describe_machine(torch.device("cpu")).startswith(" ")


def test_nodes_of_one_kind_deserve_no_word():
    assert device.describe_differences({}) is None
    assert device.describe_differences({"10.0.0.1": "X", "10.0.0.2": "X"}) is None


def test_nodes_of_two_kinds_are_told_in_one_line():
    told = device.describe_differences({"10.0.0.3": "X", "10.0.0.2": "Y", "10.0.0.1": "X"})
    assert told == (
        "the nodes compute with X (10.0.0.1, 10.0.0.3); Y (10.0.0.2): "
        "another run may place clients otherwise and differ in its last bits"
    )
