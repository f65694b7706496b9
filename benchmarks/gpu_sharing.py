"""Forward and backward passes per second of several processes on one GPU, with and without NVIDIA's MPS.

    python benchmarks/gpu_sharing.py [--processes N] [--seconds S]

Without MPS, the GPU serves one process at a time. With MPS (Multi-Process Service), kernels of several processes run at
the same time. Each process replays the step of a CNN as a CUDA graph: 32 images of 32 x 32, forward and backward. Start
MPS with `nvidia-cuda-mps-control -d`, and stop it with `echo quit | nvidia-cuda-mps-control`. This does neither.
Without a GPU, this prints a message and exits.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

BATCH, CLASSES, STEPS = 32, 100, 20


def count_steps(seconds: float, barrier: Any, found: Any) -> None:
    """Put the passes per second of this process into `found`. It counts when all processes are ready."""
    torch.manual_seed(0)
    convolutions = [nn.Conv2d(3, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5, padding=2)]
    dense = [nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4096, 512), nn.ReLU(), nn.Linear(512, CLASSES)]
    x = torch.randn(BATCH, 3, 32, 32, device="cuda")
    y = torch.randint(0, CLASSES, (BATCH,), device="cuda")
    model: Any = torch.cuda.make_graphed_callables(nn.Sequential(*convolutions, *dense).cuda(), (x,))

    def take_steps() -> None:
        for _ in range(STEPS):
            cross_entropy(model(x), y).backward()
        torch.cuda.synchronize()

    take_steps()
    barrier.wait(120)
    begin, steps = time.perf_counter(), 0
    while time.perf_counter() < begin + seconds:
        take_steps()
        steps += STEPS
    found.put(steps / (time.perf_counter() - begin))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=8, help="processes that share the GPU (8)")
    parser.add_argument("--seconds", type=float, default=4.0, help="length of the measurement (4)")
    asked = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU here: nothing to measure")
        return
    context = multiprocessing.get_context("spawn")
    barrier, found = context.Barrier(asked.processes), context.Queue()
    started = [
        context.Process(target=count_steps, args=(asked.seconds, barrier, found)) for _ in range(asked.processes)
    ]
    for process in started:
        process.start()
    rate = sum(found.get(timeout=600) for _ in started)
    for process in started:
        process.join()
    print(f"{torch.cuda.get_device_name()}: {asked.processes} processes, {rate:.0f} passes per second")


if __name__ == "__main__":
    main()
