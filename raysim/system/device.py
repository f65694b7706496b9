"""Devices that torch computes on: their settings, copies to them, and their kinds, on which a run's bits depend."""

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

AnyValue = TypeVar("AnyValue")
CPU_LIST = Path("/proc/cpuinfo")


def to_device(value: AnyValue, device: torch.device) -> AnyValue:
    """Return a tensor on a device, without waiting for the device's pending work; what is no tensor is returned as is.

    A copy from pinned memory is queued behind a GPU's other work; for a copy from other memory torch waits for it all.
    """
    moved: Any = value
    if isinstance(value, Tensor):
        from_memory = device.type == "cuda" and value.device.type == "cpu"
        moved = value.pin_memory().to(device, non_blocking=True) if from_memory else value.to(device)
    return cast(AnyValue, moved)


def set_torch(device: torch.device, deterministic: bool) -> None:
    """Set torch up for determinism: one thread per client computation, and on a GPU deterministic algorithms."""
    torch.set_num_threads(1)
    if device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA starts; for deterministic products
        torch.use_deterministic_algorithms(deterministic)
        torch.backends.cuda.matmul.allow_tf32 = not deterministic
        torch.backends.cudnn.allow_tf32 = not deterministic
        torch.backends.cudnn.benchmark = not deterministic


def describe_machine(device: torch.device) -> str:
    """Return this machine's CPU, the instructions that torch uses on it, torch's version, and its GPU if used."""
    instructions = torch.backends.cpu.get_cpu_capability()
    gpu = f", {torch.cuda.get_device_name(device)}" if device.type == "cuda" else ""
    return f"{_find_cpu()} with {instructions}, torch {torch.__version__}{gpu}"


def _find_cpu() -> str:
    """Return the CPU's model if the system lists it (Linux on x86), else Python's name for it."""
    lines = CPU_LIST.read_text(encoding="utf-8", errors="replace").splitlines() if CPU_LIST.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def describe_differences(kinds: Mapping[str, str]) -> str | None:
    """Describe the differences between nodes for the user; None if all are of one kind.

    Args:
        kinds: `describe_machine` of each node, by its address.
    """
    nodes: dict[str, list[str]] = {}
    for node, found in kinds.items():
        nodes.setdefault(found, []).append(node)
    if len(nodes) < 2:
        return None
    listed = "; ".join(f"{found} ({', '.join(sorted(where))})" for found, where in sorted(nodes.items()))
    return f"the nodes compute with {listed}: another run may place clients otherwise and differ in its last bits"
