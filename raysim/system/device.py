"""torch devices: copies to them, and their kinds, on which a run's bits depend."""

import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

AnyValue = TypeVar("AnyValue")
CPU_LIST = Path("/proc/cpuinfo")
CHOOSE_INSTRUCTIONS = (  # variables of oneDNN and MKL
    *("ONEDNN_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_MAX_CPU_ISA", "DNNL_DEFAULT_FPMATH_MODE"),
    *("MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS"),
)


def to_device(value: AnyValue, device: torch.device) -> AnyValue:
    """Return a tensor on a device, without waiting for the device's pending work. Other values are unchanged.

    torch queues a copy from pinned memory after a GPU's other work. For other memory it would wait for that work.

    >>> to_device(torch.tensor([0, 2]), client.model.device)
    tensor([0, 2])
    """
    moved: Any = value
    if isinstance(value, Tensor):
        from_memory = device.type == "cuda" and value.device.type == "cpu"
        moved = value.pin_memory().to(device, non_blocking=True) if from_memory else value.to(device)
    return cast(AnyValue, moved)


def choose_device(gpus: float) -> torch.device:
    """Return the device of a process that has this share of GPUs: the first one that it sees, or the CPU."""
    return torch.device("cuda" if gpus else "cpu")


@contextmanager
def compute_on(threads: int) -> Iterator[None]:
    """Have torch compute on this many threads of the CPU. Afterwards it has its former number."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def describe_machine(device: torch.device) -> str:
    """Return this machine's CPU, torch's instruction set on it, torch's version, and the GPU if used.

    Variables that have its libraries choose other instructions are added if they are set.
    """
    instructions = torch.backends.cpu.get_cpu_capability()
    gpu = f", {torch.cuda.get_device_name(device)}" if device.type == "cuda" else ""
    chosen = "".join(f", {name}={os.environ[name]}" for name in CHOOSE_INSTRUCTIONS if os.environ.get(name))
    return f"{_find_cpu()} with {instructions}, torch {torch.__version__}{gpu}{chosen}"


def _find_cpu() -> str:
    """Return the CPU's model if the system lists it (Linux on x86), else Python's name for it."""
    lines = CPU_LIST.read_text(encoding="utf-8", errors="replace").splitlines() if CPU_LIST.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def describe_differences(kinds: Mapping[str, str]) -> str | None:
    """Return a message about different kinds of nodes, or None if all are of one kind.

    Args:
        kinds: `describe_machine` of each node, by address.
    """
    nodes: dict[str, list[str]] = {}
    for node, kind in kinds.items():
        nodes.setdefault(kind, []).append(node)
    if len(nodes) < 2:
        return None
    listed = "; ".join(f"{kind} ({', '.join(sorted(addresses))})" for kind, addresses in sorted(nodes.items()))
    return f"the nodes compute with {listed}: another run may place clients otherwise and differ in its last bits"
