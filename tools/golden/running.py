"""Golden runs in one process, and what is kept of each: the hashes of its model and results, and its accuracies."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bits.run import Run
from bits.trees import TOOLS

from golden.machine import Machine

AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
"""Variables by which torch, MKL and oneDNN take the instructions of a CPU without AVX-512."""
OF_A_ROUND = ("cohort", "loss", "bytes_up", "bytes_down", "steps", "virtual_time", "records", "evaluation")
"""The keys of a line of rounds.jsonl that are hashed. A new key moves no golden run."""


@dataclass(frozen=True)
class Outcome:
    """What a golden run gave.

    Attributes:
        model: the SHA-256 of the final model.
        results: the SHA-256 of the accuracies, and of the rounds' keys `OF_A_ROUND`.
        accuracy: by protocol, the accuracy matrix.
        samples: the number of test samples of each task.
    """

    model: str
    results: str
    accuracy: Mapping[str, list[list[float | None]]]
    samples: list[int]

    @property
    def hashes(self) -> dict[str, str]:
        """The two hashes, by what they are of."""
        return {"model": self.model, "results": self.results}


def outcome(found: Mapping[str, Any]) -> Outcome:
    """Return what is kept of a result of tools/bits. Raises RuntimeError if the run failed."""
    if "error" in found:
        raise RuntimeError(found["error"])
    accuracy = {protocol: metrics["accuracy"] for protocol, metrics in found["evaluation"].items()}
    rounds = [{key: line[key] for key in OF_A_ROUND if key in line} for line in found["rounds.jsonl"]]
    whole = json.dumps([accuracy, rounds], sort_keys=True)
    digest = hashlib.sha256(whole.encode()).hexdigest()
    return Outcome(found["model_sha256"], digest, accuracy, found["test_samples"])


def carry_out(
    runs: Mapping[str, Run], tree: Path = TOOLS.parent, variables: Mapping[str, str] | None = None
) -> tuple[Machine, dict[str, Outcome]]:
    """Carry out runs one after the other in a new process.

    Args:
        runs: by name.
        tree: the folder that holds raysim.
        variables: of the process, such as `AVX2`.

    Raises:
        RuntimeError: a run or the process failed.
    """
    with tempfile.TemporaryDirectory(prefix="golden-", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        asked, results, machine = folder / "runs.json", folder / "results.jsonl", folder / "machine.json"
        asked.write_text(json.dumps({name: asdict(run) for name, run in runs.items()}), encoding="utf-8")
        path = f"{tree}{os.pathsep}{TOOLS}"
        own = {"PYTHONPATH": path, "RAYSIM_BITS_TREE": str(tree), "OMP_NUM_THREADS": "1", **(variables or {})}
        files = (asked, results, folder / "work", machine)
        ended = subprocess.run(
            [sys.executable, "-m", "golden.child", *map(str, files)],
            cwd=tree,
            env={**os.environ, **own},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        if ended.returncode:
            said = ended.stdout.strip().splitlines() or ["nothing"]
            raise RuntimeError(f"the golden runs' process ended with status {ended.returncode} and said: {said[-1]}")
        lines = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
        found = {name: result for line in lines for name, result in line.items()}
        return Machine(**json.loads(machine.read_text(encoding="utf-8"))), {
            name: _named(name, found[name]) for name in runs
        }


def _named(name: str, found: Mapping[str, Any]) -> Outcome:
    try:
        return outcome(found)
    except RuntimeError as error:
        raise RuntimeError(f"the golden run `{name}` failed: {error}") from error
