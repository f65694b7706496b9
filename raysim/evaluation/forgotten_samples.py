"""How well a model knows what is forgotten: its accuracy there and elsewhere, and a membership inference by the loss.

The attack says that a sample was trained on if its loss is below a threshold (Yeom et al., CSF 2018, arXiv 1709.01604).
Its AUC is over all thresholds. It is the probability that a forgotten training sample has a smaller loss than a test
sample. If it is 0.5, losses do not tell them apart. Test samples are of the tasks and classes that are forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from raysim.evaluation.evaluated_model import EvaluatedModel
from raysim.evaluation.scoring import chunk_size
from raysim.federation.federation import Federation
from raysim.federation.forgetting import ForgetRequest, merge_positions
from raysim.models.activations import measure_activations
from raysim.models.flat import FlatModel, Weights
from raysim.models.inputs import two_samples
from raysim.models.task_heads import select_head, tell_task
from raysim.system import seeding
from raysim.system.device import compute_on

MOST = 1000
"""The most samples of each kind, drawn if there are more."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ProbeSamples:
    """ProbeSamples of one split: their rows and tasks, int64 [n]."""

    split: Literal["train", "test"]
    rows: Ints
    tasks: Ints


@dataclass(frozen=True)
class Probe:
    """The samples that show what a model knows of a request."""

    forgotten: ProbeSamples
    """Training samples that it names, of those that have arrived."""
    rest: ProbeSamples
    """Training samples that have arrived, and that no request so far names."""
    test: ProbeSamples
    """Test samples of the tasks and classes of those that are forgotten."""
    arrived: int
    """How many samples it names that have arrived, also those that were not drawn."""


@dataclass(frozen=True)
class Known:
    """What a model knows of a request. None if it is undefined, as there are no such samples."""

    accuracy_forgotten: float | None
    accuracy_rest: float | None
    attack: float | None
    """The attack's AUC."""


def make_probe(federation: Federation, request: ForgetRequest, seed: int) -> Probe:
    """Return the samples that show what a model knows of a request."""
    so_far = [each for round, of in federation.forgetting.items() if round <= request.round for each in of]
    so_far = [each for each in so_far if (each.round, each.number) <= (request.round, request.number)]
    known, received = merge_positions(so_far), federation.availability.received
    forgotten, rest = [], []
    for client in range(len(federation.streams)):
        end = received(client, request.round)
        if client in request.positions:
            named = request.positions[client].numpy()
            forgotten.append(_locate(federation, client, named[named < end]))
        left = np.arange(end)
        rest.append(_locate(federation, client, np.setdiff1d(left, known[client]) if client in known else left))
    draws = seeding.generator(seed, "forget", request.number)
    arrived = sum(len(rows) for rows, _ in forgotten)
    of_request = _draw("train", forgotten, draws)
    return Probe(of_request, _draw("train", rest, draws), _draw("test", _like(federation, of_request), draws), arrived)


def _locate(federation: Federation, client: int, positions: Ints) -> tuple[Ints, Ints]:
    """Return the rows and tasks of these positions of a client's stream."""
    rows, tasks = federation.streams[client].locate(torch.from_numpy(positions))
    return rows.numpy().astype(np.int64), np.broadcast_to(np.asarray(tasks), rows.shape).astype(np.int64)


def _like(federation: Federation, samples: ProbeSamples) -> Iterator[tuple[Ints, Ints]]:
    """Yield the rows and the tasks of the test samples with a task and class of these samples."""
    has_classes, train, test = federation.objective.classes, federation.dataset.train.y, federation.dataset.test.y
    for task in np.unique(samples.tasks).tolist():
        rows = np.asarray(federation.tasks[task].test, np.int64)
        if has_classes:
            rows = rows[np.isin(test[rows], train[samples.rows[samples.tasks == task]])]
        yield rows, np.full(len(rows), task)


def _draw(
    split: Literal["train", "test"], parts: Iterable[tuple[Ints, Ints]], draws: np.random.Generator
) -> ProbeSamples:
    """Return these samples, or as many of them as are tested."""
    nothing = np.zeros(0, np.int64)
    rows, tasks = (np.concatenate([nothing, *column]) for column in zip((nothing, nothing), *parts, strict=True))
    chosen = np.sort(draws.choice(len(rows), MOST, replace=False)) if len(rows) > MOST else np.arange(len(rows))
    return ProbeSamples(split, rows[chosen], tasks[chosen])


def measure(
    model: FlatModel, weights: Weights, federation: Federation, probe: Probe, threads: int, so_far: int | None
) -> Known:
    """Return what a model with these weights knows of a request. Heads and `so_far` are as in an evaluation.

    The model is left as it was: methods may use the server's, and a resumed run has not measured with it.
    """
    two = two_samples(model.module, federation.shape, federation.vocabulary)
    with compute_on(threads), torch.no_grad(), _put_back(model):
        model.load(weights)
        size = chunk_size(measure_activations(model, two)[1])
        model.module.eval()
        (forgotten, right), (_, right_rest), (test, _) = (
            _pass(model, federation, samples, size, so_far) for samples in (probe.forgotten, probe.rest, probe.test)
        )
    return Known(_mean(right), _mean(right_rest), attack_auc(forgotten, test))


@contextmanager
def _put_back(model: FlatModel) -> Iterator[None]:
    """Restore the model's weights, modes and head afterwards."""
    layers, before = [*model.module.modules()], model.copy()
    modes = [layer.training for layer in layers]
    try:
        yield
    finally:
        model.load(before)
        select_head(model.module, 0)
        for layer, mode in zip(layers, modes, strict=True):
            layer.training = mode


def _pass(
    model: FlatModel, federation: Federation, samples: ProbeSamples, size: int, so_far: int | None
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Return the samples' losses, and whether their label is predicted; without counted labels no such numbers."""
    objective, module = federation.objective, model.module
    source = federation.source(samples.split, model.device)
    evaluated = EvaluatedModel(module, model.dtype, federation)
    losses, right = [np.zeros(0)], [np.zeros(0, dtype=bool)]
    for task in np.unique(samples.tasks).tolist():
        select_head(module, task)
        tell_task(module, None, so_far or len(federation.tasks))
        for rows in torch.from_numpy(samples.rows[samples.tasks == task]).split(size):
            rows = rows.to(model.device)
            outputs, y = evaluated(evaluated.begin(source.fetch(rows, task))), source.labels(rows)
            pairs = zip(outputs.split(1), y.split(1), strict=True)
            losses.append(np.array([float(objective.loss(one, of_one)) for one, of_one in pairs]))
            if objective.counts:
                right.append((outputs.argmax(1) == y).cpu().numpy())
    return np.concatenate(losses), np.concatenate(right)


def _mean(right: npt.NDArray[np.bool_]) -> float | None:
    return float(right.mean()) if len(right) else None


def attack_auc(forgotten: npt.NDArray[np.float64], test: npt.NDArray[np.float64]) -> float | None:
    """Return the probability that a forgotten sample's loss is below a test sample's; ties count one half."""
    if not len(forgotten) or not len(test) or not (np.isfinite(forgotten).all() and np.isfinite(test).all()):
        return None
    ordered = np.sort(forgotten)
    below, up_to = np.searchsorted(ordered, test, "left"), np.searchsorted(ordered, test, "right")
    return float((below + up_to).sum() / (2 * len(forgotten) * len(test)))
