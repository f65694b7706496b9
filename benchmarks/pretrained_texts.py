"""Texts with a pretrained encoder: raysim against a loop in plain transformers and peft, and memory of ten actors.

    python benchmarks/pretrained_texts.py speed [FILE] [--rounds N]
    python benchmarks/pretrained_texts.py memory [FILE]

`speed` measures CPU seconds on one thread, as other programs disturb them less. raysim and the loop take turns round by
round in one process. They start from the same weights and train on the same batches: 16 texts of at most 32 tokens, cut
to the longest one. Both use AdamW. The benchmark fails if their weights differ in the end. With a cache, the loop
stores the hidden states in front of the first adapted block. It then calls the remaining blocks.

`memory` measures ten clients with an actor each. The peak is of a whole run: PSS of all its processes, Ray's included.
The estimate is that of `raysim check`. The last columns are the mapped file of weights. The last row is one process of
the loop, which ten clients would need ten times.

The model is MiniLM (the extra pretrained) in the development environment, which has peft. FILE has JSON lines with
`text`, `label` and `split`, also as .gz. Without it, texts are random words.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import tempfile
import time
import warnings
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional

import raysim
from raysim.config import load
from raysim.engine.events import Event, RoundDone
from raysim.engine.simulation import load_parts
from raysim.estimate import placement
from raysim.estimate.memory import estimate_memory
from raysim.launch.display import RunDisplay
from raysim.models.hugging_face.folder import quiet
from raysim.system import seeding
from raysim.system.capacity import this_machine
from raysim.system.hub_files import find_folder

MODEL, BLOCKS, LENGTH, BATCH, RANK, RATE = "minilm-l6", 6, 32, 16, 8, 1e-3
CLIENTS, STEPS, WARM_UP = 2, 4, 1  # of `speed`: a client's steps in a round, and rounds that are not timed
ACTORS = 10  # of `memory`
MIB = 2**20
CLOSE = 1e-2  # of the weights' change: AdamW's steps depend on the last bits of small gradients


@dataclass(frozen=True)
class Case:
    """What is trained besides the head: LoRA in these blocks. With `cache`, earlier blocks are computed once."""

    name: str
    blocks: range
    cache: bool = False

    @property
    def without_cache(self) -> Case:
        return Case(self.name.removesuffix(", cache"), self.blocks)

    def model(self) -> dict[str, Any]:
        """Return the config's block `model`."""
        where = [f"layer.{number}.*.{name}" for number in self.blocks for name in ("query", "value")]
        adapters = {"rank": RANK, "where": where} if where else {"rank": 0, "where": ["*"]}
        return {"name": "hugging_face", "path": MODEL, "dropout": 0.0, "adapters": adapters, "cache": self.cache}


WHERE = {
    "LoRA in all blocks": range(BLOCKS),
    "LoRA in the last two blocks": range(BLOCKS - 2, BLOCKS),
    "LoRA in the last block": range(BLOCKS - 1, BLOCKS),
    "head": range(0),
}
CASES = [
    Case(name + ", cache" * cache, blocks, cache)
    for name, blocks in WHERE.items()
    for cache in (False, True)
    if not cache or len(blocks) < BLOCKS
]


def read_texts(file: Path | None, count: int) -> list[dict[str, Any]]:
    """Return the text and label of random training texts of a file, or of random words."""
    draws = np.random.default_rng(0)
    if file is None:
        words = ("".join(draws.choice([*"abcdeilmnorst"], size)) for size in draws.integers(2, 9, 1000))
        known, sizes = [*words], draws.integers(3, 24, count)
        return [{"text": " ".join(draws.choice(known, n)), "label": int(n) % 10} for n in sizes]
    with gzip.open(file, "rt") if file.suffix == ".gz" else file.open() as lines:
        rows = [row for row in map(json.loads, lines) if row.get("split", "train") == "train"]
    return [{name: rows[at][name] for name in ("text", "label")} for at in draws.permutation(len(rows))[:count]]


def write_texts(file: Path | None, count: int, folder: Path) -> Path:
    """Write training texts, and a few of them as tests, as evaluation is not timed. Return the file."""
    path, texts = folder / f"{count}.jsonl", read_texts(file, count)
    lines = [{**row, "split": split} for split, rows in (("train", texts), ("test", texts[:BATCH])) for row in rows]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return path


def config(path: Path, case: Case, clients: int, rounds: int, **more: Any) -> dict[str, Any]:
    """Return the config of a run with one task."""
    return {
        "name": "pretrained-texts",
        "dataset": {"name": "text_jsonl", "path": str(path), "tokenizer": MODEL, "length": LENGTH},
        "scenario": {"kind": "class_incremental", "tasks": 1},
        "clients": {"count": clients},
        "model": case.model(),
        "training": {"rounds_per_task": rounds, "batch_size": BATCH, "optimizer": {"name": "adamw", "lr": RATE}},
        "logging": {"tensorboard": False},
        **more,
    }


class PlainLoop:
    """Federated averaging in plain transformers and peft. All clients have equally many texts.

    Args:
        asked: the config of the same run, for the labels, the clients' texts, and the initial weights.
        path: the file of texts.
        case: what is trained.

    Attributes:
        server: the trained weights, in the order of raysim's model.
    """

    def __init__(self, asked: dict[str, Any], path: Path, case: Case) -> None:
        import peft
        import transformers

        self._config = load(asked)
        federation, model = load_parts(self._config)
        self._streams, self._labels = federation.streams, torch.from_numpy(np.array(federation.dataset.train.y))
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        texts, folder = [row["text"] for row in rows if row["split"] == "train"], find_folder("model.path", MODEL)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        sizes: dict[str, Any] = {"padding": "max_length", "truncation": True, "max_length": LENGTH}
        tokens = tokenizer(texts, return_tensors="pt", **sizes)
        self._ids, self._mask = tokens["input_ids"], tokens["attention_mask"]
        none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        with quiet():
            body: Any = transformers.AutoModel.from_pretrained(folder, add_pooling_layer=False, **none)
        self._features = self._once(body, case) if case.cache else None
        self._late = [body.encoder.layer[number] for number in case.blocks]
        self._body, self._head = body.requires_grad_(False), nn.Linear(body.config.hidden_size, federation.classes)
        if case.blocks:
            where = rf".*layer\.[{case.blocks[0]}-{case.blocks[-1]}]\..*\.(query|value)"
            lora = peft.LoraConfig(r=RANK, lora_alpha=RANK, target_modules=where)
            with warnings.catch_warnings(action="ignore", category=FutureWarning):  # of transformers, for peft
                self._body = peft.get_peft_model(body, lora)
        self._body.train()
        parameters = (*self._body.parameters(), *self._head.parameters())
        self._trained = [parameter for parameter in parameters if parameter.requires_grad]
        self.names = [*model.layout]
        self.initial = [value.clone() for value in model.named(model.parameters).values()]
        self.server = [value.clone() for value in self.initial]
        self._done = 0

    def _once(self, body: Any, case: Case) -> Tensor:
        """Return the hidden states [N, L, W] in front of the first adapted block, or the texts' vectors [N, W]."""
        parts = []
        with torch.no_grad():
            for ids, mask in zip(self._ids.split(BATCH), self._mask.split(BATCH), strict=True):
                hidden = body.eval()(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states
                parts.append(hidden[case.blocks[0]] if case.blocks else mean_of(hidden[-1], mask))
        return torch.cat(parts)

    def round(self) -> None:
        """Train all clients one after the other, and add the mean of their changes."""
        total = [torch.zeros_like(value) for value in self.server]
        self._done += 1
        for client, stream in enumerate(self._streams):
            with torch.no_grad():
                for parameter, value in zip(self._trained, self.server, strict=True):
                    parameter.copy_(value)
            optimizer = torch.optim.AdamW(self._trained, lr=RATE)
            draws = seeding.generator(self._config.seed, client, self._done, 0, "batches")  # as raysim's
            order = torch.from_numpy(draws.permutation(len(stream)))
            for rows in torch.from_numpy(stream.rows[0].astype(np.int64))[order].split(BATCH):
                optimizer.zero_grad()
                functional.cross_entropy(self._head(self._vectors(rows)), self._labels[rows]).backward()
                optimizer.step()
            for sum_of, parameter, value in zip(total, self._trained, self.server, strict=True):
                sum_of += (parameter.detach() - value) / len(self._streams)
        for value, sum_of in zip(self.server, total, strict=True):
            value += sum_of

    def _vectors(self, rows: Tensor) -> Tensor:
        """Return the vectors [B, W] of texts."""
        if self._features is not None and not self._late:
            return self._features[rows]
        mask = self._mask[rows]
        mask = mask[:, : int(mask.sum(1).max())]
        if self._features is None:
            ids = self._ids[rows, : mask.shape[1]]
            return mean_of(self._body(input_ids=ids, attention_mask=mask).last_hidden_state, mask)
        hidden, real = self._features[rows, : mask.shape[1]], mask[:, None, None].bool()
        for block in self._late:
            hidden = block(hidden, real)
        return mean_of(hidden, mask)

    def difference(self, path: Path) -> float:
        """Return how far these weights are from those of a model.pt, relative to the change in training."""
        state = torch.load(path, weights_only=True)
        theirs, own, first = (
            torch.cat([value.flatten() for value in values])
            for values in ([state[name] for name in self.names], self.server, self.initial)
        )
        return float((theirs - own).norm() / (own - first).norm())


def mean_of(hidden: Tensor, mask: Tensor) -> Tensor:
    """Return the mean [B, W] over the tokens of hidden states [B, L, W] in the mask [B, L]."""
    weights = mask[..., None].float()
    return (hidden * weights).sum(1) / weights.sum(1)


class InTurn(RunDisplay):
    """Runs a round of the loop after each round of raysim, and notes the CPU seconds of both."""

    def __init__(self, loop: PlainLoop) -> None:
        self._loop = loop
        self.seconds: dict[str, list[float]] = {"raysim": [], "loop": []}
        self._last = 0.0

    def take(self, event: Event) -> None:
        super().take(event)
        if isinstance(event, RoundDone):
            middle = time.process_time()
            self.seconds["raysim"].append(middle - self._last)
            with torch.random.fork_rng(devices=[]), torch.enable_grad():
                self._loop.round()
            self._last = time.process_time()
            self.seconds["loop"].append(self._last - middle)


def measure_speed(file: Path | None, rounds: int, folder: Path) -> Table:
    """Return the seconds per step of both."""
    path, steps = write_texts(file, CLIENTS * STEPS * BATCH, folder), CLIENTS * STEPS
    table = Table("", "loop, ms", "raysim, ms", "raysim / loop", "range", "loop without cache / raysim", "difference")
    plain: dict[str, float] = {}
    for number, case in enumerate(CASES):
        asked, out = config(path, case, CLIENTS, WARM_UP + rounds + 1), folder / str(number)
        loop = PlainLoop(asked, path, case)
        watch = InTurn(loop)
        raysim.run(asked, out=out, local=True, display=watch)
        difference = loop.difference(out / "model.pt")
        if difference > CLOSE:
            raise SystemExit(f"{case.name}: the loop's weights differ by {difference:.2g} of their change")
        loops, ours = (watch.seconds[who][WARM_UP:-1] for who in ("loop", "raysim"))  # the last has an evaluation
        ratios = [own / other for own, other in zip(ours, loops, strict=True)]
        plain.setdefault(case.without_cache.name, median(loops))
        times = [1000 * median(seconds) / steps for seconds in (loops, ours)]
        gain = f"{plain[case.without_cache.name] / median(ours):.1f}" if case.cache else ""
        shown = (f"{median(ratios):.2f}", f"{min(ratios):.2f} to {max(ratios):.2f}", gain, f"{difference:.0e}")
        table.add_row(case.name, *(f"{one:.1f}" for one in times), *shown)
    table.title = f"CPU milliseconds per step of {BATCH} texts, MiniLM, rank {RANK}, one thread: {rounds} rounds"
    return table


class Mapped(RunDisplay):
    """Notes in the second round what hosts have alone, and how all processes have the file of weights in memory."""

    def __init__(self) -> None:
        self.found: list[tuple[int, int]] = []
        self.private: list[int] = []

    def take(self, event: Event) -> None:
        super().take(event)
        if isinstance(event, RoundDone) and event.round == 2:
            for process in psutil.process_iter():
                try:
                    maps = [one for one in process.memory_maps() if one.path.endswith(".safetensors")]
                except psutil.Error:
                    continue
                self.found += [(one.rss, one.pss) for one in maps]
                if maps and "Host" in process.name():
                    self.private.append(process.memory_full_info().uss)


def measure_memory(file: Path | None, folder: Path) -> Table:
    """Return the peaks of runs with an actor for each client, and the memory of a process of the loop."""
    path = write_texts(file, ACTORS * BATCH, folder)
    names = ("peak", "estimate", "private memory of a host", "RSS of the file in all processes", "PSS of it")
    table = Table("MiB", *names)
    for number, case in enumerate((CASES[1], CASES[2])):
        resources = {"clients_per_actor": 1, "memory": "warn"}
        asked, watch = config(path, case, ACTORS, 3, resources=resources), Mapped()
        resolved = load(asked)
        federation, model = load_parts(resolved)
        need = estimate_memory(resolved, federation, model)
        estimate = placement.place(resolved, this_machine(), need).memory_bytes
        del federation, model
        peak = raysim.run(asked, out=folder / f"m{number}", display=watch).peak_memory_bytes or 0
        host = median(watch.private) if watch.private else 0
        sizes = (peak, estimate, host, *map(sum, zip(*watch.found, strict=True)))
        table.add_row(f"raysim, {case.name}", *(f"{size / MIB:.0f}" for size in sizes))
    with get_context("spawn").Pool(1) as pool:
        loop = pool.apply(loop_memory, (path,))
    table.add_row(f"a process of the loop, {CASES[1].name}", "", "", f"{loop / MIB:.0f}")
    table.title = f"{ACTORS} clients with MiniLM, rank {RANK}, {int(this_machine().cpus)} cores"
    return table


def loop_memory(path: Path) -> int:
    """Return the bytes that belong to this process alone after a round of the loop."""
    torch.set_num_threads(1)
    case = CASES[1]
    loop = PlainLoop(config(path, case, ACTORS, 3), path, case)
    loop.round()
    private: int = psutil.Process().memory_full_info().uss
    return private


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "memory"])
    parser.add_argument("file", type=Path, nargs="?", help="JSON lines with text, label and split (random words)")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds (5)")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        os.environ["RAYSIM_DATA"] = name  # where features are stored
        folder = Path(name)
        table = (
            measure_memory(asked.file, folder)
            if asked.what == "memory"
            else measure_speed(asked.file, asked.rounds, folder)
        )
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
