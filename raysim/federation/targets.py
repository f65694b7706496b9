"""Make the objective and check that the dataset's targets suit it. A custom objective is tried on two targets."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from raysim.config import Config
from raysim.data.dataset import Array, Dataset
from raysim.data.scenario import Task
from raysim.objectives import IGNORED, Metric, Objective
from raysim.objectives.classification import Classification
from raysim.objectives.continuation import IDS, MASK
from raysim.system.custom_code import is_custom, place_of
from raysim.system.errors import ConfigError, WrongResult, locate_errors

TRIED = 2  # targets
COUNTED = ("predict", "measure", "value")  # what counting right answers by class takes the place of
ADVICE = "; save y.astype(int), y.argmax(1) of one-hot rows, or y[:, 0] of one column; or set another objective"


def make_objective(config: Config, dataset: Dataset, tasks: Sequence[Task] = ()) -> Objective:
    """Return the run's objective. Before there are tasks, only the training samples are checked.

    Raises:
        ConfigError: the dataset's targets do not suit it, or a custom metric would not be used.
        RunError: a custom objective failed, or returned an invalid result.
    """
    name = config.objective.named
    with locate_errors(f"objective {name}"):
        objective: Objective = config.objective.make()
        for where, targets in _targets_by_split(dataset, tasks):
            problem = _find_ignored(objective, targets) or objective.check(targets, dataset.classes)
            if problem is not None:
                raise ConfigError(f"objective: {name} in {where}: {problem}{ADVICE * objective.classes}")
        _check_continued(config, dataset, objective)
        if is_custom(type(objective)):
            with locate_errors(f"objective {name}, tried on {TRIED} targets"):
                _try(objective, dataset)
    return objective


def _targets_by_split(dataset: Dataset, tasks: Sequence[Task]) -> Iterator[tuple[str, Array]]:
    yield "the training samples", dataset.train.y
    for task in tasks:
        test = dataset.test.y
        yield f"the test samples of task {task.name}", test if len(task.test) == len(test) else test[task.test]


def _find_ignored(objective: Objective, targets: Array) -> str | None:
    """Return a problem with ignored targets of an objective without positions, or None."""
    if objective.positions or targets.ndim != 2 or targets.dtype != np.int64 or not (targets == IGNORED).any():
        return None
    return f"found targets of {IGNORED}, which only an objective with an output at each position ignores; allowed: ids"


def _check_continued(config: Config, dataset: Dataset, objective: Objective) -> None:
    """Refuse samples that an objective cannot continue in evaluations. Raises ConfigError."""
    if not objective.continues:
        return
    name, metric, arrays = config.objective.named, objective.metric.name, dataset.arrays
    if config.model.cache:
        allowed = f"false with objective={name} and {metric}, which continues texts; or measure it by raysim evaluate"
        raise ConfigError(f"model.cache: found true, allowed: {allowed}")
    if dataset.tokenizer is not None and objective.tokenizer_digest not in (None, dataset.tokenizer):
        raise ConfigError("objective.tokenizer: found another one than dataset.tokenizer, allowed: the same, or null")
    shape, names = (arrays[0][1], [one[0] for one in arrays]) if arrays else (dataset.shape, [IDS])
    if (
        dataset.train.x.dtype != np.int64
        or shape != dataset.train.y.shape[1:]
        or {*names} - {IDS, MASK}
        or names[0] != IDS
    ):
        found = f"{' and '.join(names) if arrays else dataset.train.x.dtype} {list(shape)}"
        allowed = f"ids (int64) [N, length] as the targets have, alone or as {IDS} with {MASK}"
        raise ConfigError(f"objective: {name} measures {metric} of samples that are {found}, allowed: {allowed}")


def _refuse_unused(objective: Objective) -> None:
    """Refuse another metric if right answers are counted, as evaluations would not use it. Raises ConfigError."""
    if not objective.counts:
        return
    own, counted = type(objective), Classification
    unused = [name for name in COUNTED if getattr(own, name) is not getattr(counted, name)]
    if objective.metric != counted.metric:
        unused.append("metric")
    if unused:
        raise ConfigError(
            f"objective: found {place_of(own)} with its own {', '.join(unused)} and counts = True, which counts the "
            f"samples whose largest output is the label's, allowed: {', '.join(COUNTED)} and metric of Classification; "
            "set counts = False, or subclass raysim.objectives.Objective"
        )


def _try(objective: Objective, dataset: Dataset) -> None:
    """Compute the loss and the metric of zero outputs."""
    if not isinstance(getattr(objective, "metric", None), Metric):
        allowed = "allowed: one, metric = raysim.objectives.Metric(name, ...)"
        raise WrongResult(f"objective: {place_of(type(objective))} has no metric, {allowed}")
    _refuse_unused(objective)
    targets = torch.from_numpy(np.array(dataset.train.y[:TRIED]))
    size = objective.outputs(dataset.train.y, dataset.classes)
    first = dataset.arrays[0][1] if dataset.arrays else dataset.shape
    shape = objective.output_shape(first, size)
    outputs = torch.zeros(len(targets), *shape, requires_grad=True)
    check_loss(objective, objective.loss(outputs, targets), outputs)
    measured = (
        objective.measure(objective.predict(outputs.detach()), targets)
        if not (objective.counts or objective.continues)
        else None
    )
    if measured is not None:
        check_measured(objective, measured, len(targets))


def check_loss(objective: Objective, loss: object, outputs: Tensor) -> Tensor:
    """Return an objective's `loss` after a check of its type. Checking its value would wait for the GPU.

    Raises:
        WrongResult: the loss is not a scalar of the outputs' dtype.
    """
    if not (isinstance(loss, Tensor) and not loss.shape and loss.dtype == outputs.dtype):
        kind = f"{loss.dtype} {list(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        allowed = f"the batch's mean loss, a tensor [] of {outputs.dtype}"
        raise WrongResult(f"objective: {place_of(type(objective))}.loss returned {kind}, allowed: {allowed}")
    return loss


def refuse_infinite(objective: Objective, excluded: str | None) -> None:
    """Raise WrongResult for a loss that is not finite although the model's outputs are.

    `excluded` is the value of training.logits if it excludes classes, and their logits are -inf.
    """
    who, allowed = place_of(type(objective)), "allowed: finite losses of finite outputs"
    if excluded is not None:
        allowed = (
            f"allowed: a finite loss, also with training.logits={excluded}, which gives excluded classes the logit "
            "-inf; set training.logits=all, or leave these classes out in loss"
        )
    raise WrongResult(f"objective: {who}.loss returned what is not finite, {allowed}")


def check_measured(objective: Objective, measured: object, samples: int) -> None:
    """Check the shape of an objective's `measure`.

    Raises:
        WrongResult: the result is not a matrix with a row for each sample.
    """
    if not (isinstance(measured, Tensor) and measured.dim() == 2 and len(measured) == samples):
        kind = f"{measured.dtype} {list(measured.shape)}" if isinstance(measured, Tensor) else type(measured).__name__
        allowed = f"numbers for each of the {samples} samples, a tensor [{samples}, m]"
        raise WrongResult(f"objective: {place_of(type(objective))}.measure returned {kind}, allowed: {allowed}")
