"""A config as it stands, made small: what every command of the documentation is run with."""

import json

from small_runs import hyperparameters

from raysim.config import Config

HERE = ("digits", "synthetic", "digit_attributes", "friedman")  # datasets that need no files
CLASSES = {"cifar100": 100}


def small(config: Config) -> list[str]:
    """The overrides that make a run of this config take a fraction of a second, and need no file and no GPU.

    Data that need files become made-up ones with as many classes; the model becomes a small one for them.
    """
    values: dict[str, object] = {
        "logging.tensorboard": False,
        "resources.gpus_per_actor": 0,
        "model": {"name": "mlp", "hidden": [8]},
    }
    if config.objective.named == "detection":
        return [f"{key}={json.dumps(value)}" for key, value in (values | _streets(config)).items()]
    if config.training.local_steps is None:
        values["training.local_epochs"] = 1
    classes = CLASSES.get(config.dataset.name, 10)
    samples = 4 * max(classes, config.clients.count)
    made_up = {"name": "synthetic", "classes": classes, "train": samples, "test": max(classes, 20)}
    if config.domains is not None and not all(domain.name in HERE for domain in config.domains):
        values["dataset"] = _domain(made_up, 0)
        values["scenario.shift"] = {"domains": [_domain(made_up, number) for number in range(len(config.domains))]}
    elif config.scenario.kind == "by_column" and config.dataset.name not in HERE:
        column = {"scenario.column": "ink", "scenario.cuts": None, "partition": "iid"}
        values |= {"dataset": {"name": "digits", "train_samples": 200}, **column}
    elif config.dataset.name not in HERE:
        values["dataset"] = made_up
    else:
        values["dataset.train_samples"] = 200
    if config.scenario.windows is not None:
        values["scenario.boundaries.asynchronous.rounds_per_window"] = 1
    else:
        values["training.rounds_per_task"] = 2 * config.scenario.jitter + 1
    if config.partition.kind == "dirichlet":
        values["partition.min_samples"] = 0
    if config.evaluation.top_k > 1:
        values["evaluation.top_k"] = 1  # the made-up tasks have fewer classes
    if {"lander", "mfcl", "target"} & config.methods.keys():  # they need images and BatchNorm
        values["model"] = {"name": "mlp", "hidden": [8], "batch_norm": True}
        if "dataset" in values:
            values["dataset"] = {**made_up, "shape": [1, 8, 8]}
    for method in config.methods:
        values |= {f"methods.{method}.{key}": value for key, value in hyperparameters(method).items()}
    return [f"{key}={json.dumps(value)}" for key, value in values.items()]


def _streets(config: Config) -> dict[str, object]:
    """Some small frames of the drawn streets, and a small detector."""
    one: dict[str, object] = {"name": "driving", "frames": 4, "tests": 3, "seconds": 5.0, "size": 32}
    return {
        "model": {"name": "tiny_yolo", "width": 1, "stride": 8},
        "dataset": _domain(one, 0),
        "scenario.shift": {"domains": [_domain(one, number) for number in range(config.scenario.tasks)]},
        "training.rounds_per_task": 1,
    }


def _domain(made_up: dict[str, object], number: int) -> dict[str, object]:
    return {**made_up, "seed": number}
