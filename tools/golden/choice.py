"""The golden runs: which of the runs of tools/bits they are, and what kind of run each stands for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import version

from bits.reference import RUNS
from bits.run import Run
from bits.trees import TOOLS

KINDS = {
    "fedavg, batch norm": "no memory, and buffers that are averaged",
    "fedadam": "an optimizer at the server",
    "quantize + scaffold": "control variates, and compressed updates",
    "er": "a replay memory",
    "er, forgetting": "clients, classes and samples that are forgotten",
    "fed_a_gem": "gradients on memories, which the server combines",
    "icarl": "exemplars, and distillation from the previous model",
    "ewc": "a penalty, with importances from a pass of its own",
    "c_flag": "a method that owns the local loop",
    "ditto": "personalized models",
    "mfcl": "a generator at the server",
    "lorm": "low-rank adapters",
    "fed_coda_prompt": "prompts on a vision transformer",
    "analytic, grid": "a head in closed form",
    "texts, transformer": "texts",
    "texts, hugging face": "a model of transformers with drawn weights",
    "next token": "a language model",
    "table": "a table",
    "roads in rain": "object detection",
    "resumed, fedbuff": "FedBuff with stored logits, resumed from a checkpoint",
    "asynchronous boundaries": "task boundaries of each client",
    "arrivals": "clients that arrive",
    "together": "clients that train as one program",
    "kept momentum, bf16": "bfloat16, and an optimizer that is kept",
}
"""Run -> its kind. A run more or less is also a move of `golden.kept`."""

GOLDEN: dict[str, Run] = {name: RUNS[name] for name in KINDS}


def precision_of(run: Run) -> str:
    """Return the lowest precision that a run computes in: float32 or bfloat16."""
    config = run.config()
    lower = config["training"].get("precision") == "bf16" or config["model"].get("precision") == "bfloat16"
    return "bfloat16" if lower else "float32"


PRECISIONS = {name: precision_of(run) for name, run in GOLDEN.items()}

PACKAGES = {"texts, hugging face": "transformers"}
"""Run -> a package with code of the network. The bits are kept with its version in constraints.txt."""


def other_versions(installed: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the runs that are kept with another version of a package than the installed one, and what differs.

    Args:
        installed: the version of each package, by default that of this environment.
    """
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)", (TOOLS.parent / "constraints.txt").read_text(encoding="utf-8"), re.M))
    found = installed or {package: version(package) for package in PACKAGES.values()}
    return {
        name: f"found {package} {found[package]}, the bits are kept with {pins[package]}"
        for name, package in PACKAGES.items()
        if found[package] != pins[package]
    }
