"""`raysim evaluate`: evaluate a finished run's model on another dataset or split, without Ray and clients."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Unpack, cast

import torch

from raysim.config import Config, load, parse_overrides
from raysim.config.comparison import result_settings
from raysim.config.component import NamedComponent
from raysim.config.document import Overrides
from raysim.config.error_text import either, show
from raysim.config.keywords import CallbackKeys, add_keywords
from raysim.config.lookup import only_named_by
from raysim.data.loading import choose_root
from raysim.data.text import reword
from raysim.evaluation.accuracy_matrix import SEEN, ProtocolMetrics, describe_metric, metric_of, protocol_label
from raysim.evaluation.scoring import (
    ClientSummary,
    accuracies,
    chunks_for,
    describe_clients,
    mean_client_accuracies,
    score,
    summarise_clients,
)
from raysim.federation.federation import Federation, build_federation, federation_without_clients
from raysim.models.building import check_model
from raysim.system.errors import ConfigError
from raysim.system.files import write_whole
from raysim.system.home import expand
from raysim.system.seeding import torch_untouched
from raysim.system.switches import set_torch

DEEPEST_RUN = 3  # folders below runs/: NAME/seed-SEED/DATE-TIME-LABEL
MAY_DIFFER = ("dataset", "scenario", "objective", "evaluation")
LATER = (  # keys that do not matter for what is held out, since it is drawn before clients have samples
    *("dataset.root", "dataset.augment", "dataset.normalize", "dataset.input_scale"),
    *("scenario.online", "scenario.blur", "scenario.boundaries", "scenario.order"),
)


@dataclass(frozen=True)
class Evaluated:
    """A model's accuracies on the tasks' samples.

    >>> result = raysim.run("quickstart", methods="er", local=True)
    >>> evaluated = raysim.evaluate(result.directory)
    >>> evaluated.split, evaluated.samples
    ('test', [364, 364, 364])
    >>> evaluated.evaluation["domain_il"]["average_accuracy"] == result.accuracy()
    True
    """

    directory: Path
    split: str
    """test or validation."""
    tasks: Sequence[str]
    """The names of the tasks."""
    samples: Sequence[int]
    """The number of samples of each task in the split."""
    evaluation: Mapping[str, Mapping[str, Any]]
    """By protocol: the accuracy on each task and the average_accuracy, as fractions. Another metric is named with its
    values. With evaluation.model=global_per_client they are means over clients, and worst and std are added."""
    per_client: Mapping[str, ClientSummary] | None = None
    """As in summary.json, if requested."""
    top_k: int = 1
    """Above 1, accuracies are top-k accuracies."""


def evaluate(
    directory: str | Path,
    overrides: Sequence[str] | Mapping[str, object] = (),
    *,
    trust: bool = False,
    **keys: Unpack[CallbackKeys],
) -> Evaluated:
    """Evaluate a run's final model, in this process.

    >>> result = raysim.run("quickstart", methods="er", local=True)
    >>> evaluated = raysim.evaluate(result.directory, ["evaluation.top_k=5"])
    >>> evaluated.evaluation["domain_il"]["average_accuracy"] > result.accuracy()
    True

    Args:
        directory: the run's directory, with its config.yaml and model.pt.
        overrides: keys of dataset, scenario, objective and evaluation to change.
        trust: allow importing custom code named in the run's config.
        keys: the blocks dataset, scenario, objective and evaluation; further overrides.

    Raises:
        ConfigError: there is no such run, or it needs custom code and is not trusted. An override is of another block.
            The data do not fit the model, or the model was trained on the validation samples. Personalized models are
            requested, which a run does not store.
    """
    run_config, config = load_ended(Path(directory), add_keywords("evaluate", overrides, keys), trust)
    device = torch.device("cuda" if config.resources.gpus_per_actor and torch.cuda.is_available() else "cpu")
    with torch_untouched():
        set_torch(device, config.resources.deterministic)
        federation = (
            build_federation(config) if config.evaluation.reports_clients else federation_without_clients(config)
        )
        # all tasks are over, so class-IL among the seen classes says nothing new
        federation = replace(federation, protocols=tuple(name for name in federation.protocols if name != SEEN))
        federation = _as_trained(federation, config, run_config)
        model = check_model(config, federation.shape, federation.classes, federation.vocabulary, new_head=False)
        so_far = run_config.scenario.tasks  # whatever the tasks of this evaluation are
        chunks = [replace(chunk, so_far=so_far) for chunk in chunks_for(model, federation)]
        module = model.module.to(device)
        source, top_k = federation.source("test", device), config.evaluation.top_k
        scores = score(module, model.dtype, source, federation, chunks, top_k)
        if config.evaluation.averages_clients:
            rows, spreads = mean_client_accuracies(scores, federation)
        else:
            rows, spreads = accuracies(scores, federation), {}
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
        per_client=summarise_clients(scores, federation) if config.evaluation.reports_clients else None,
        top_k=top_k,
    )


def claim_file(path: Path) -> None:
    """Check that the file does not exist. Raises ConfigError."""
    if os.path.lexists(path):
        raise ConfigError(f"--out {path}: this is there already, allowed: a new file")


def write_evaluation(evaluated: Evaluated, path: Path) -> None:
    """Write the accuracies as JSON, to a file that `claim_file` has checked. Raises ConfigError if it cannot."""
    try:
        write_whole(path, json.dumps(asdict(evaluated), indent=2, allow_nan=False, default=str) + "\n")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"--out {path}: {why}, allowed: a file that can be written") from error


def describe_evaluation(evaluated: Evaluated) -> Iterator[str]:
    """Yield lines of text with the accuracies in %, or with another metric in its unit."""
    for protocol, values in evaluated.evaluation.items():
        metric = metric_of(cast(ProtocolMetrics, values))
        label = protocol_label(protocol, evaluated.top_k, "global_per_client" if "worst" in values else "global")
        yield f"{metric.title}, {label}, {evaluated.split} samples of each task"
        for number, (name, samples, accuracy) in enumerate(
            zip(evaluated.tasks, evaluated.samples, values["accuracy"], strict=True), 1
        ):
            yield f"{number:>4}  {metric.figure(accuracy):>5}  {name} ({samples:,})"
        yield f"mean  {metric.figure(values['average_accuracy']):>5}"
    for protocol, clients in (evaluated.per_client or {}).items():
        yield describe_clients(protocol, clients, evaluated.top_k)


def _find_ended(directory: Path) -> Path | None:
    """Return the newest run that ended below a directory, such as runs/ or a sweep's; None if there is none."""
    places = ("/".join(["*"] * deep + ["model.pt"]) for deep in range(1, DEEPEST_RUN + 1))
    runs = [
        file.parent for place in places for file in directory.glob(place) if (file.parent / "config.yaml").is_file()
    ]
    return max(runs, key=lambda run: (run / "model.pt").stat().st_mtime, default=None)


def load_ended(directory: Path, overrides: Overrides, trust: bool) -> tuple[Config, Config]:
    """Return the config of a run that ended, and the same config with the overrides and the run's final model.

    Raises:
        ConfigError: there is no such run, or an override is of another block. Custom code is needed and not trusted.
    """
    for name in ("config.yaml", "model.pt"):
        if not (directory / name).is_file():
            if below := _find_ended(directory):
                words = f"found runs below it, allowed: the directory of one of them; did you mean {below}?"
                raise ConfigError(words, str(directory))
            why = ", which a run writes at its end (a killed one continues with --resume)" if name == "model.pt" else ""
            words = f"there is no such file{why}; allowed: the directory of a run that is done"
            raise ConfigError(words, str(directory / name))
    for override, _ in parse_overrides(overrides):
        block = str(override.keys[0])
        if block in Config.model_fields and block not in MAY_DIFFER:
            raise ConfigError(
                f"{override}: found a key of {block}, which the trained model cannot change, allowed: keys of "
                f"{either(MAY_DIFFER)}"
            )
    with only_named_by(trust=trust):
        run_config = load(directory / "config.yaml")
    changed = load(run_config, overrides)
    check_held_out(run_config, changed)
    if changed.evaluation.model == "local":
        problem = "evaluation.model: found local, but a run's directory has the server's model alone"
        raise ConfigError(f"{problem}, allowed: global or global_per_client")
    final_model = {"model.weights": str(directory / "model.pt"), "model.prefix": "", "model.cache": False}
    return run_config, load(changed, final_model)


def _as_trained(federation: Federation, config: Config, run_config: Config) -> Federation:
    """Return a federation with the ids of words and the normalization that the model was trained with.

    Raises:
        ConfigError: the data are of another table, or have other classes. Or the run's data are needed and missing.
    """
    parts = [(one.dataset, one.scenario, one.evaluation.validation_fraction) for one in (config, run_config)]
    if parts[0] == parts[1]:
        return federation
    dataset, trained_on = federation.dataset, run_config.dataset
    others = {key for key, value in config.dataset.keys().items() if trained_on.keys().get(key) != value}
    if config.dataset.name in ("csv", "parquet") and others - {"test"}:
        raise ConfigError(
            f"dataset: found another {min(others - {'test'})}, with which numbers, categories and labels would have "
            "other meanings, allowed: the run's table, with other tests in dataset.test"
        )
    standard = config.dataset.normalize == trained_on.normalize == "standard"
    named = dataset.names is not None and config.dataset != trained_on
    texts = dataset.words is not None or dataset.tokenizer is not None
    if not texts and not standard and not named:
        return federation
    scale = {"dataset.input_scale": config.dataset.input_scale}  # of what is evaluated; the statistics are the run's
    trained = federation_without_clients(load(run_config, scale))
    if dataset.names != trained.dataset.names:
        raise ConfigError(
            f"dataset: found the classes {show(list(dataset.names or ()))}, allowed: those that the model was trained "
            f"on, {show(list(trained.dataset.names or ()))}"
        )
    if dataset.tokenizer != trained.dataset.tokenizer:
        allowed = "the tokenizer of the run, whose ids the model knows"
        raise ConfigError(f"dataset.tokenizer: found another one than the model was trained with, allowed: {allowed}")
    if dataset.words is not None:
        dataset = reword(dataset, trained.dataset.words or ())
    statistics = trained.normalization if standard else federation.normalization
    return replace(federation, dataset=dataset, normalization=statistics)


def check_held_out(run_config: Config, changed: Config) -> None:
    """Refuse to test or validate on training samples: only the samples that the run held out are safe.

    Raises:
        ConfigError: the run held out no samples, or other samples than requested.
    """
    trained_on = [_drawn_from(run_config, one) for one in (run_config.dataset, *(run_config.domains or ()))]
    for dataset in (changed.dataset, *(changed.domains or ())):
        drawn = _drawn_from(changed, dataset)
        if drawn not in trained_on and (drawn.path is not None or drawn.draw.get("test_fraction") is not None):
            for of_run in trained_on:
                _check_tests(drawn, of_run)
    if changed.evaluation.split == "validation" and _held_out(run_config) != _held_out(changed):
        raise ConfigError(
            "evaluation.split: found validation, of samples that the run may have been trained on, allowed: test, or "
            "what it held out itself: its own dataset, scenario and evaluation.validation_fraction"
        )


@dataclass(frozen=True)
class _Drawn:
    """What decides which of a dataset's samples are tests: a file of tests, or a draw among the training file's."""

    name: str
    path: tuple[str, ...] | None
    test: tuple[str, ...] | None
    draw: Mapping[str, object]
    train: tuple[str, ...] | None = field(compare=False)  # tests stay tests, whatever else is trained on


def _drawn_from(config: Config, dataset: NamedComponent) -> _Drawn:
    """Return where a dataset's tests are from. Files in the folder of the datasets have paths from there."""
    root, keys, files = choose_root(config.dataset.root)[1].resolve(), dataset.keys(), dict[str, tuple[str, ...]]()
    for key, name in keys.items():
        names = (name,) if isinstance(name, str) else name  # or several, of instructions
        if key in ("path", "test", "train") and isinstance(names, tuple):
            found = [(root / expand(f"dataset.{key}", one)).resolve() for one in names]
            files[key] = tuple(str(one.relative_to(root) if one.is_relative_to(root) else one) for one in found)
    by = ("test_fraction", "seed", "split", *(("label",) if "test_fraction" in keys else ()))  # a part of each label
    draw = {} if "test" in files else {key: keys.get(key) for key in by}
    return _Drawn(dataset.name, files.get("path"), files.get("test"), draw, files.get("train"))


def _check_tests(drawn: _Drawn, of_run: _Drawn) -> None:
    """Refuse tests that are among the samples that a run was trained on, or may be.

    Raises:
        ConfigError: they are.
    """
    same = (drawn.name, drawn.path) == (of_run.name, of_run.path)
    if drawn.test is not None:
        trained_on = {*(of_run.path or ()), *_splits_of(of_run.train if same else None)}
        if trained_on & {*drawn.test, *_splits_of(drawn.test)}:
            raise ConfigError("dataset.test: found what the run was trained on, allowed: another file or split")
    elif same:
        key, found, allowed = "test", "null", "a file of tests"
        if of_run.test is None:
            key = next(key for key in drawn.draw if drawn.draw[key] != of_run.draw[key])
            found, allowed = show(drawn.draw[key]), show(of_run.draw[key])
        raise ConfigError(
            f"dataset.{key}: found {found}, which draws tests among the samples that the run may have been trained on, "
            f"allowed: {allowed}, as in the run"
        )
    elif drawn.name == of_run.name and {*(drawn.path or ())} & {*(of_run.path or ())}:
        raise ConfigError(
            f"dataset.path: found {show([*(drawn.path or ())])}, with a file that the run was trained on in another "
            "list, so other tests would be drawn, allowed: the run's list, or files of tests in dataset.test"
        )


def _splits_of(names: Sequence[str] | None) -> set[str]:
    """Return the splits of which these are parts, as train of train[:90%]."""
    return {name.partition("[")[0] for name in names or ()}


def _held_out(config: Config) -> dict[str, object]:
    """Return the keys that determine the samples that a config holds out."""
    blocks = ("dataset.", "scenario.", "evaluation.validation_fraction")
    settings = result_settings(config).items()
    return {key: value for key, value in settings if key.startswith(blocks) and not key.startswith(LATER)}
