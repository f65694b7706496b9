"""Frozen vision transformers: memory with 1,000 clients, and seconds per client update against a plain loop.

    python benchmarks/adapters.py memory [--clients N] [--repeats N]
    python benchmarks/adapters.py speed [--rounds N] [--repeats N]

`memory` measures the peak of whole runs (PSS of all processes, Ray's included), in one process and on Ray with one host
per CPU. All clients have replay memories (ER), and 4 of them take part in each of 4 rounds. It compares full
fine-tuning with LoRA and with prompts (L2P) on a ViT-Tiny with weights from a file, which are mapped if frozen. The
column "estimate" is what `raysim check` says.

`speed` compares raysim in one process with a serial loop of plain PyTorch: the same network, batch, rank, optimizer and
number of steps, in turn. Both compute on one thread, so the figures are CPU seconds, which other programs disturb less.
They are medians over rounds. The loop has a separate LoRA layer.

The images are noise of 3 x 32 x 32.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import workload
from rich.console import Console
from rich.table import Table
from timing import WARM_UP
from torch import Tensor, nn
from torch.nn import functional
from workload import noise, summary_of

import raysim
from raysim.config import load
from raysim.engine.events import Event, RoundDone
from raysim.engine.simulation import load_parts
from raysim.estimate import placement
from raysim.estimate.memory import estimate_memory
from raysim.launch.display import RunDisplay
from raysim.models.stages import Stage
from raysim.models.vit import VisionTransformer, vit
from raysim.system.capacity import this_machine
from raysim.system.seeding import torch_untouched

TINY: dict[str, Any] = {"width": 192, "depth": 12, "patch": 8, "input_size": None}
CLASSES, SIDE, BATCH, RANK, RATE = 10, 32, 16, 4, 3e-4
WHERE = ["attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2"]
MIB = 2**20
UPDATES, STEPS = 4, 2  # of a round, and of a client update


def config(data: Path, clients: int, rounds: int, model: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a config with one task."""
    training = {"rounds_per_task": rounds, "batch_size": BATCH, "optimizer": {"name": "adam", "lr": RATE}}
    more |= {"model": {"name": "vit", **TINY, **model}, "training": training, "participation": {"count": UPDATES}}
    return workload.config(data, clients, rounds, logging={"tensorboard": False}, **more)


def measure_memory(clients: int, repeats: int, folder: Path) -> Table:
    """Return the peaks of runs with a few samples per client, 4 of which train in a round."""
    weights, data = folder / "vit.pt", noise(folder, 8 * clients, (SIDE, SIDE, 3))
    torch.save(vit((3, SIDE, SIDE), CLASSES, **TINY).state_dict(), weights)
    trained: dict[str, dict[str, Any]] = {
        "all weights": {},
        "LoRA, rank 4": {"adapters": {"rank": RANK, "where": WHERE}},
        "prompts (L2P)": {"prompts": {"kind": "l2p"}},
    }
    ways = {"one process": ["--local"], "Ray, a host per CPU": []}
    table = Table("", "trained", "numbers sent", "peak, MiB", "estimate, MiB", "KiB per client")
    for way, options in ways.items():
        for name, model in trained.items():
            more = {"methods": {"er": {}}, "resources": {"clients_per_actor": "auto"}}
            asked = config(data, clients, 4, {**model, "weights": str(weights)}, **more)
            outs = [folder / f"{way[:3]}{name[:4]}{turn}" for turn in range(repeats)]
            peaks = [summary_of(asked, out, *options)["peak_memory_bytes"] / MIB for out in outs]
            sent, alone, on_ray, each = estimated(asked)
            estimate = alone if options else on_ray
            table.add_row(way, name, f"{sent:,}", f"{median(peaks):.0f}", f"{estimate:.0f}", f"{each:.2f}")
        table.add_section()
    table.title = f"{clients:,} clients with 8 images each, ViT-Tiny, ER: medians of {repeats}"
    return table


def estimated(asked: dict[str, Any]) -> tuple[int, float, float, float]:
    """Return the numbers of a sent model, the estimates in MiB for one process and for Ray, and KiB of a client."""
    resolved = load(asked)
    federation, model = load_parts(resolved)
    need = estimate_memory(resolved, federation, model)
    place = placement.place(resolved, this_machine(), need)
    return len(model.parameters), need.alone / MIB, place.memory_bytes / MIB, need.clients[0] / 1024


class PlainLora(nn.Module):
    """x W0^T + b + (x A^T) B^T, with W0 and b frozen (LoRA: Hu et al., ICLR 2022)."""

    def __init__(self, frozen: nn.Linear) -> None:
        super().__init__()
        self.frozen = frozen.requires_grad_(False)
        bound = frozen.in_features**-0.5
        self.a = nn.Parameter(torch.empty(RANK, frozen.in_features).uniform_(-bound, bound))
        self.b = nn.Parameter(torch.zeros(frozen.out_features, RANK))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.frozen(x) + functional.linear(functional.linear(x, self.a), self.b)
        return y


def plain_network(blocks: Sequence[int]) -> VisionTransformer:
    """Return a ViT with LoRA in these blocks and a trained head."""
    network = vit((3, SIDE, SIDE), CLASSES, **TINY).requires_grad_(False)
    assert isinstance(network, VisionTransformer)
    for number in blocks:
        for name in WHERE:
            owner, leaf = network.get_submodule(f"blocks.{number}.{name.split('.')[0]}"), name.split(".")[1]
            setattr(owner, leaf, PlainLora(getattr(owner, leaf)))
    network.get_submodule("head").requires_grad_(True)
    return network


def plain_rounds(blocks: Sequence[int], cache: bool, images: Tensor, labels: Tensor, rounds: int) -> list[float]:
    """Return the seconds of each round of a serial loop: every client copies, trains, subtracts; the mean is added."""
    network = plain_network(blocks)
    stages, inputs = network.stages(), images
    begin = blocks[0] + 1 if cache else 0  # the patches are a stage
    if cache:
        with torch.no_grad():
            inputs = through(stages[:begin], images.float() / 255)
    trained = [p for p in network.parameters() if p.requires_grad]
    server, seconds, samples = [p.detach().clone() for p in trained], list[float](), BATCH * STEPS
    for _ in range(WARM_UP + rounds):
        began = time.process_time()
        total = [torch.zeros_like(p) for p in server]
        for client in range(UPDATES):
            with torch.no_grad():
                for p, value in zip(trained, server, strict=True):
                    p.copy_(value)
            optimizer = torch.optim.Adam(trained, lr=RATE)
            for rows in (client * samples + torch.randperm(samples)).split(BATCH):
                optimizer.zero_grad()
                x = inputs[rows] if cache else inputs[rows].float() / 255
                functional.cross_entropy(through(stages[begin:], x), labels[rows]).backward()
                optimizer.step()
            for sum_of, p, value in zip(total, trained, server, strict=True):
                sum_of += (p.detach() - value) / UPDATES
        for value, sum_of in zip(server, total, strict=True):
            value += sum_of
        seconds.append(time.process_time() - began)
    return seconds[WARM_UP:]


def through(stages: Sequence[Stage], x: Tensor) -> Tensor:
    for stage in stages:
        x = stage.run(x)
    return x


class CpuWatch(RunDisplay):
    """A run's display that notes the CPU seconds of each round in this process."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._last = 0.0

    def take(self, event: Event) -> None:
        if isinstance(event, RoundDone):
            self.seconds.append(time.process_time() - self._last)
        self._last = time.process_time()


def raysim_rounds(data: Path, blocks: str, cache: bool, rounds: int, out: Path) -> list[float]:
    """Return the seconds of each round of raysim in this process."""
    model = {"adapters": {"rank": RANK, "where": [f"{blocks}.{name}" for name in WHERE]}, "cache": cache}
    watch = CpuWatch()
    raysim.run(config(data, UPDATES, WARM_UP + rounds + 1, model), out=out, local=True, display=watch)
    return watch.seconds[WARM_UP : WARM_UP + rounds]  # an evaluation follows the last one


def measure_speed(rounds: int, repeats: int, folder: Path) -> Table:
    """Return the seconds per client update of both, in turn."""
    path, last = noise(folder, UPDATES * STEPS * BATCH, (SIDE, SIDE, 3)), TINY["depth"] - 1
    with np.load(path) as arrays:
        images, labels = torch.from_numpy(arrays["x_train"].transpose(0, 3, 1, 2)), torch.from_numpy(arrays["y_train"])
    cases = {
        "LoRA in all blocks": (range(last + 1), "blocks.*", False),
        "LoRA in the last block": (range(last, last + 1), f"blocks.{last}", False),
        "LoRA in the last block, cache": (range(last, last + 1), f"blocks.{last}", True),
    }
    found: dict[tuple[str, str], list[float]] = {(name, who): [] for name in cases for who in ("loop", "raysim")}
    for turn in range(repeats):
        for name, (blocks, pattern, cache) in cases.items():
            with torch_untouched():
                torch.set_num_threads(1)
                found[name, "loop"] += plain_rounds(blocks, cache, images, labels, rounds)
            found[name, "raysim"] += raysim_rounds(path, pattern, cache, rounds, folder / f"{turn}{name}")
    table = Table("", "loop, s", "raysim, s", "raysim / loop", "as fast as no cache")
    without = median(found["LoRA in the last block", "raysim"])
    for name in cases:
        loop, ours = (median(found[name, who]) for who in ("loop", "raysim"))
        times = f"{without / ours:.1f} times" if cases[name][2] else ""
        table.add_row(name, f"{loop / UPDATES:.4f}", f"{ours / UPDATES:.4f}", f"{ours / loop:.2f}", times)
    table.title = f"CPU seconds per client update of {STEPS} steps, ViT-Tiny, batch {BATCH}, rank {RANK}, one thread"
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["memory", "speed"])
    parser.add_argument("--clients", type=int, default=1000, help="of the memory (1000)")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds (5)")
    parser.add_argument("--repeats", type=int, default=3, help="repetitions (3)")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["RAYSIM_DATA"] = name  # where features are stored
        table = (
            measure_memory(asked.clients, asked.repeats, folder)
            if asked.what == "memory"
            else measure_speed(asked.rounds, asked.repeats, folder)
        )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
