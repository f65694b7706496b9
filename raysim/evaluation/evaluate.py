"""`raysim evaluate`: a finished run's model on another data set or split. It needs no Ray and no clients."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, cast

import torch

from raysim.config import Config, load, parse_overrides
from raysim.config.comparison import result_settings
from raysim.config.error_text import either
from raysim.config.lookup import only_named_by
from raysim.data.text import reword
from raysim.evaluation.metrics import ProtocolMetrics, describe_metric, metric_of, protocol_label
from raysim.evaluation.per_client import own_accuracies
from raysim.evaluation.scoring import (
    ClientSummary,
    accuracies,
    chunks_for,
    describe_clients,
    score,
    summarise_clients,
)
from raysim.federation.federation import build_federation, undealt
from raysim.models.building import check_model
from raysim.system.device import set_torch
from raysim.system.errors import ConfigError
from raysim.system.files import write_whole
from raysim.system.seeding import torch_untouched

MAY_DIFFER = ("dataset", "scenario", "evaluation")


@dataclass(frozen=True)
class Evaluated:
    """A model's accuracies on the tasks' samples.

    `tasks` are the tasks' names and `samples` the sizes of their test sets, or of what is held out for validation
    (`split`). `evaluation` maps a protocol (domain_il, class_il, task_il) to the accuracy on each task (fractions), and
    their average_accuracy; both are top-k accuracies where `top_k` is above 1, and another metric's values where it is
    named beside them. With evaluation.model=global_per_client they are the clients' means, beside the worst and std.
    `per_client` is as in summary.json, where it is asked for.
    """

    directory: Path
    split: str
    tasks: Sequence[str]
    samples: Sequence[int]
    evaluation: Mapping[str, Mapping[str, Any]]
    per_client: Mapping[str, ClientSummary] | None = None
    top_k: int = 1


def evaluate(
    directory: str | Path, overrides: Sequence[str] | Mapping[str, object] = (), *, trust: bool = False
) -> Evaluated:
    """Evaluate a run's final model, in this process.

    Args:
        directory: the run's, with its config.yaml and model.pt.
        overrides: keys of dataset, scenario and evaluation that are to be others than the run's.
        trust: import what the run's config names and raysim does not have.

    Raises:
        ConfigError: there is no such run, it names code of its own and is not trusted, an override is of another block,
            the data do not fit the model, it was trained on the samples that it would be validated on, or clients' own
            models are asked for, which a run does not leave behind.
    """
    own, config = _load_config(Path(directory), overrides, trust)
    device = torch.device("cuda" if config.resources.gpus_per_actor and torch.cuda.is_available() else "cpu")
    with torch_untouched():
        set_torch(device, config.resources.deterministic)
        federation = build_federation(config) if config.evaluation.by_client else undealt(config)
        if federation.dataset.words is not None and config.dataset != own.dataset:  # the model knows the run's words
            words = undealt(own).dataset.words
            federation = replace(federation, dataset=reword(federation.dataset, words or ()))
        model = check_model(config, federation.shape, federation.classes, federation.vocabulary, new_head=False)
        chunks = chunks_for(model, federation)
        module = model.module.to(device)
        source, top_k = federation.source("test", device), config.evaluation.top_k
        counted = score(module, model.dtype, source, federation, chunks, top_k)
        on_own = config.evaluation.model != "global"
        rows, spreads = own_accuracies(counted, federation) if on_own else (accuracies(counted, federation), {})
    return Evaluated(
        directory=Path(directory),
        split=config.evaluation.split,
        tasks=[task.name for task in federation.tasks],
        samples=[len(task.test) for task in federation.tasks],
        evaluation={
            protocol: {
                **describe_metric(federation.objective.metric),
                "accuracy": row,
                "average_accuracy": fmean(row),
                **spreads.get(protocol, {}),
            }
            for protocol, row in rows.items()
        },
        per_client=summarise_clients(counted, federation) if config.evaluation.by_client else None,
        top_k=top_k,
    )


def claim_file(path: Path) -> None:
    """Check that there is no such file yet. Raises ConfigError."""
    if os.path.lexists(path):
        raise ConfigError(f"--out {path}: this is there already, allowed: a new file")


def write_evaluation(evaluated: Evaluated, path: Path) -> None:
    """Write the accuracies as JSON, to a file that `claim_file` has checked. Raises ConfigError where it cannot."""
    try:
        write_whole(path, json.dumps(asdict(evaluated), indent=2, allow_nan=False, default=str) + "\n")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"--out {path}: {why}, allowed: a file that can be written") from error


def describe_evaluation(evaluated: Evaluated) -> Iterator[str]:
    """Describe the accuracies in lines of text, in %, or another metric in its unit."""
    for protocol, found in evaluated.evaluation.items():
        metric = metric_of(cast(ProtocolMetrics, found))
        label = protocol_label(protocol, evaluated.top_k, "global_per_client" if "worst" in found else "global")
        yield f"{metric.title}, {label}, {evaluated.split} samples of each task"
        for number, (name, samples, accuracy) in enumerate(
            zip(evaluated.tasks, evaluated.samples, found["accuracy"], strict=True), 1
        ):
            yield f"{number:>4}  {metric.figure(accuracy):>5}  {name} ({samples:,})"
        yield f"mean  {metric.figure(found['average_accuracy']):>5}"
    for protocol, clients in (evaluated.per_client or {}).items():
        yield describe_clients(protocol, clients, evaluated.top_k)


def _load_config(
    directory: Path, overrides: Sequence[str] | Mapping[str, object], trust: bool
) -> tuple[Config, Config]:
    """Return the run's config, and the same with other data and with its final model to start from."""
    for name in ("config.yaml", "model.pt"):
        if not (directory / name).is_file():
            raise ConfigError(f"{directory / name}: there is no such file; allowed: the directory of a run that ended")
    for given, _ in parse_overrides(overrides):
        block = str(given.keys[0])
        if block in Config.model_fields and block not in MAY_DIFFER:
            raise ConfigError(
                f"{given}: found a key of {block}, which the trained model cannot change, allowed: keys of "
                f"{either(MAY_DIFFER)}"
            )
    with only_named_by(trust=trust):
        own = load(directory / "config.yaml")
    asked = load(own, overrides)
    _check_held_out(own, asked)
    if asked.evaluation.model == "local":
        found = "evaluation.model: found local, but a run's directory has the server's model alone"
        raise ConfigError(f"{found}, allowed: global or global_per_client")
    return own, load(asked, {"model.weights": str(directory / "model.pt")})


def _check_held_out(own: Config, asked: Config) -> None:
    """Refuse to validate on samples that the model was trained on: only what the run itself held out is none of these.

    Raises:
        ConfigError: the run held nothing out, or other samples than those that are asked for.
    """
    if asked.evaluation.split == "validation" and _held_out(own) != _held_out(asked):
        raise ConfigError(
            "evaluation.split: found validation, of samples that the run may have been trained on, allowed: test, or "
            "what it held out itself: its own dataset, scenario and evaluation.validation_fraction"
        )


def _held_out(config: Config) -> dict[str, object]:
    """Return the keys that decide which samples a config holds out."""
    blocks = ("dataset.", "scenario.", "evaluation.validation_fraction")
    return {key: value for key, value in result_settings(config).items() if key.startswith(blocks)}
