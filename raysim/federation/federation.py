"""The data of a run: the dataset, its stream of tasks, and each client's samples by round."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from raysim.config import Config
from raysim.config.component import Component
from raysim.config.component_blocks import ChannelStatistics
from raysim.config.scenarios import ByColumn, ClassIncremental, OwnScenario
from raysim.data.by_column import by_column, doubt_order
from raysim.data.class_incremental import classes
from raysim.data.custom_stream import CustomStream, Opener
from raysim.data.custom_tasks import make_custom_tasks
from raysim.data.dataset import Dataset, MissingData, stand_in, subsample
from raysim.data.loading import load_dataset
from raysim.data.pixels import Source
from raysim.data.scenario import Task, domains, hold_out, permutations, rotations
from raysim.data.transforms import AUGMENTATIONS, CustomAugmentation, check_augmentation, normalization
from raysim.federation.assignment import make_streams
from raysim.federation.availability import Availability, plan_availability
from raysim.federation.forgetting import Requests, plan_forgetting
from raysim.federation.labels import divide_by_label
from raysim.federation.stream import Stream
from raysim.federation.targets import make_objective
from raysim.federation.unlabelled import Unlabelled, assign_unlabeled
from raysim.models.arrays import Arrays, NamedArray
from raysim.models.inputs import Ids, first_shape
from raysim.objectives import Objective
from raysim.objectives.classification import Classification
from raysim.system import seeding
from raysim.system.errors import ConfigError
from raysim.system.pinned import PinnedFile

Protocol = Literal["domain_il", "class_il", "class_il_seen", "task_il"]
CLASSIFICATION = Classification()


@dataclass(frozen=True, eq=False)
class Federation:
    """The data of a run. All hosts share it, and it never changes. `streams[k]` is client k's."""

    dataset: Dataset
    tasks: Sequence[Task]
    streams: Sequence[Stream]
    availability: Availability
    protocols: tuple[Protocol, ...]
    normalization: ChannelStatistics | None
    augment: tuple[str, ...]
    """The names of all augmentations."""
    custom_augment: tuple[CustomAugmentation, ...] = ()
    """The functions of the custom augmentations, in the order of their names in `augment`."""
    opener: Opener | None = None
    """Opens a client's custom stream, if there is one."""
    unlabelled: Unlabelled | None = None
    """The samples without labels, if there are any: a second dataset, or a part of the training samples."""
    objective: Objective = CLASSIFICATION
    raw_shape: tuple[int, ...] = ()
    """The shape of a sample before features took its place (model.cache); empty if none did."""
    cached: Mapping[str, str] = field(default_factory=dict)
    """The digests of the samples before that (`data`) and of the features (`features`)."""
    forgetting: Requests = field(default_factory=dict)
    """The requests to forget, by round; see raysim.federation.forgetting."""
    files: Sequence[PinnedFile] = ()
    """The files that the run uses and that must not change, such as weights; see raysim.engine.input_files."""

    @cached_property
    def classes(self) -> int:
        """The number of outputs of the model's head. The head has all classes from the start."""
        return self.objective.outputs(self.dataset.train.y, self.dataset.classes)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of a model's output for one sample."""
        return self.objective.output_shape(first_shape(self.shape, self.vocabulary), self.classes)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample, also if the dataset has its features."""
        return self.raw_shape or self.dataset.shape

    @property
    def vocabulary(self) -> Ids:
        """What samples are made of, see `Ids`."""
        if self.dataset.arrays:
            return Arrays(tuple(NamedArray(*one) for one in self.dataset.arrays))
        return self.dataset.categories or self.dataset.vocabulary

    def source(self, split: Literal["train", "test"], device: torch.device) -> Source:
        """Return a split on a device, with the tasks' transforms. Only training data are augmented."""
        maps, training = [task.pixels for task in self.tasks], split == "train"
        data = self.dataset.train if training else self.dataset.test
        augment, custom = (self.augment, self.custom_augment) if training else ((), ())
        return Source(data, maps, device=device, normalization=self.normalization, augment=augment, custom=custom)

    def unlabelled_source(self, training: Source) -> Source:
        """Return the samples without labels on the device of the training samples, normalized and transformed alike."""
        if self.unlabelled is None or self.unlabelled.split is None:
            return training
        return Source(self.unlabelled.split, [None], device=training.device, normalization=self.normalization)

    def open_stream(self, client: int, device: torch.device) -> CustomStream:
        """Return a client's custom stream."""
        assert self.opener is not None
        options = {"device": device, "normalization": self.normalization}
        return CustomStream(
            self.opener, client, self.dataset, augment=self.augment, custom=self.custom_augment, **options
        )

    def admitted(self, stream: Stream, window: int, logits: Literal["all", "task", "seen"]) -> tuple[int, ...] | None:
        """Return the classes in the training softmax of a client with this window, or None for all classes."""
        if logits == "all" or "class_il" not in self.protocols:
            return None
        present = stream.tasks_in(stream.stage(window) if logits == "task" else 0, window + 1)
        return self.classes_of(present)

    def class_counts(self) -> npt.NDArray[np.int64]:
        """Return the training samples of the whole run by client, task and class: [clients, tasks, classes].

        The count of a class without test samples in a task is 0.
        """
        classes, dataset = self.classes, self.dataset
        counts = np.zeros((len(self.streams), len(self.tasks), classes), np.int64)
        for counts_of_client, stream in zip(counts, self.streams, strict=True):
            for task, rows in zip(stream.tasks, stream.rows, strict=True):
                counts_of_client[task] += np.bincount(dataset.train.y[rows], minlength=classes)
        has_tests = [np.bincount(dataset.test.y[task.test], minlength=classes) > 0 for task in self.tasks]
        return counts * np.stack(has_tests)

    def classes_before(self, stage: int) -> tuple[int, ...]:
        """Return the classes of all clients' tasks before a stage, ascending. Without class-IL all classes count."""
        if "class_il" not in self.protocols:
            return tuple(range(self.classes))
        return self.classes_of({task for stream in self.streams for task in stream.tasks_before(stage)})

    def classes_of(self, tasks: Iterable[int]) -> tuple[int, ...]:
        """Return the classes of these tasks, ascending."""
        return tuple(sorted({label for task in tasks for label in self.tasks[task].classes}))


def build_federation(config: Config, download: bool = True, pretend: bool = False) -> Federation:
    """Load the data, make the tasks and assign their samples to the clients.

    With `pretend`, a placeholder without values replaces a dataset with missing files, if its size is published.

    Every draw is from a separate random stream, so the data do not depend on methods, actors or aggregation.

    Raises:
        ConfigError: the data are missing or do not suit the scenario.
    """
    federation = federation_without_clients(config, download, pretend)
    check_augmentation(federation.augment, federation.custom_augment, federation.dataset.train)
    streams, train = make_streams(config, federation.dataset, federation.tasks), federation.dataset.train
    if config.dataset.label_rate is not None:
        streams, others = divide_by_label(streams, train, config.dataset.label_rate, config.seed)
        federation = replace(federation, unlabelled=Unlabelled(others))
    federation = replace(federation, streams=streams, availability=plan_availability(config, streams))
    if config.clients.forget:
        planned = plan_forgetting(config, federation.dataset, streams, federation.availability)
        federation = replace(federation, forgetting=planned)
    if config.evaluation.averages_clients:
        _check_held_classes(config, federation)
    if config.dataset.unlabelled is None:
        return federation
    try:
        second = _load_component(config, config.dataset.unlabelled, download, pretend)
    except ConfigError as error:
        raise type(error)(f"dataset.unlabelled: {error}") from error
    dataset = federation.dataset
    dataset = replace(
        dataset,
        missing=(*dataset.missing, *second.missing),
        notes=(*dataset.notes, *(f"unlabelled: {line}" for line in second.notes)),
        doubts=(*dataset.doubts, *(f"unlabelled: {line}" for line in second.doubts)),
    )
    return replace(federation, dataset=dataset, unlabelled=assign_unlabeled(second, federation.dataset, config))


def federation_without_clients(config: Config, download: bool = True, pretend: bool = False) -> Federation:
    """Load the data and make the tasks, without clients and rounds, as for an evaluation.

    Raises:
        ConfigError: the data are missing or do not suit the scenario.
    """
    dataset, tasks = _load(config, download, pretend)
    if config.evaluation.validation_fraction is not None:
        dataset, tasks = hold_out(dataset, tasks, config.evaluation.validation_fraction, config.seed)
    if config.objective.has("counts"):
        _check_top_k(config.evaluation.top_k, tasks)
    stream = config.scenario.stream
    return Federation(
        dataset=dataset,
        tasks=tasks,
        streams=(),
        availability=Availability((), (), range(1, len(tasks) + 1)),
        protocols=_protocols(config, dataset, tasks),
        normalization=normalization(config.dataset.normalize, dataset, config.dataset.input_scale),
        augment=tuple(augment.name for augment in config.dataset.augment),
        custom_augment=tuple(
            augment.with_keys() for augment in config.dataset.augment if augment.name not in AUGMENTATIONS
        ),
        opener=None if stream is None else stream.with_keys(),
        objective=make_objective(config, dataset, tasks),
    )


def _protocols(config: Config, dataset: Dataset, tasks: Sequence[Task]) -> tuple[Protocol, ...]:
    """Return the protocols: domain-IL if every task has all classes, only task-IL if every task has a head.

    Class-IL among the seen classes needs a common order of tasks. A metric that is not counted may be undefined for it.
    """
    by_domain = config.scenario.by_domain
    if isinstance(config.scenario, OwnScenario):
        by_domain = all(len(task.classes) == dataset.classes for task in tasks)
        if by_domain and len(tasks) > 1 and config.training.logits == "task":
            raise ConfigError("training.logits: found task, but every task has all classes, allowed: all")
    if config.heads > 1:
        return ("task_il",)
    if by_domain:
        return ("domain_il",)
    seen: tuple[Protocol, ...] = ("class_il_seen",) if config.in_step and config.objective.has("counts") else ()
    return ("class_il", *seen, "task_il")


def _check_top_k(top_k: int, tasks: Sequence[Task]) -> None:
    """Check that every task has at least `top_k` classes, as task-IL predicts among a task's classes."""
    smallest = min(tasks, key=lambda task: len(task.classes))
    if top_k > len(smallest.classes):
        message = f"evaluation.top_k: found {top_k}, allowed: 1 to {len(smallest.classes)}"
        raise ConfigError(f"{message}, as many classes as the task with the fewest has ({smallest.name})")


def _check_held_classes(config: Config, federation: Federation) -> None:
    """Check that every task has test samples of a class that some client holds."""
    samples_by_task: npt.NDArray[np.int64] = federation.class_counts().sum(axis=(0, 2))
    for number, task in enumerate(federation.tasks):
        if not samples_by_task[number]:
            raise ConfigError(
                f"evaluation.model: found {config.evaluation.model}, but no client has samples of the classes that "
                f"{task.name or 'a task'} is tested on, allowed: global"
            )


def _load(config: Config, download: bool, pretend: bool) -> tuple[Dataset, Sequence[Task]]:
    spec = config.dataset

    def load(component: Component, number: int = 0) -> Dataset:
        dataset = _load_component(config, component, download, pretend)
        if spec.train_samples is None:
            return dataset
        return subsample(dataset, spec.train_samples, seeding.generator(config.seed, "train_samples", number))

    if config.domains is None:
        dataset = load(spec)
        make_objective(config, dataset)  # checks the targets, as tasks are made by label
        if isinstance(config.scenario, ByColumn):
            dataset = replace(dataset, doubts=(*dataset.doubts, *doubt_order(dataset, config.scenario.column)))
        return dataset, _tasks(config, dataset)
    reference = next(number for number, domain in enumerate(config.domains) if domain.same_as(spec))
    named = []
    for number, domain in enumerate(config.domains):
        try:
            named.append((domain.title, load(domain, number)))
        except ConfigError as error:
            raise type(error)(f"scenario.shift.domains.{number}: {error}") from error
    return domains(named, reference)


def _load_component(config: Config, component: Component, download: bool, pretend: bool) -> Dataset:
    """Return a dataset, or its placeholder if its files are missing and `pretend` is true."""
    spec = config.dataset
    try:
        return load_dataset(component.function(), spec.root, spec.download and download, component.keys())
    except MissingData as error:
        if not pretend or error.declared is None:
            raise
        return stand_in(error.declared, component.title)


def _tasks(config: Config, dataset: Dataset) -> list[Task]:
    spec = config.scenario
    draws = seeding.generator(config.seed, "tasks")
    if isinstance(spec, OwnScenario):
        tasks = make_custom_tasks(spec, dataset, draws)
        changed = [task.name for task in tasks if task.pixels is not None]
        if changed and spec.stream is not None:
            found = f"found '{spec.kind}', which changes the pixels of the task {changed[0]}"
            allowed = "pixels=None with a custom stream, whose samples they would not change"
            raise ConfigError(f"scenario.kind: {found}, allowed: tasks with {allowed}")
        return tasks
    if isinstance(spec, ClassIncremental):
        return classes(dataset, spec, draws)
    if isinstance(spec, ByColumn):
        return by_column(dataset, spec)
    make = rotations if spec.shift == "rotation" else permutations
    return make(dataset, spec.tasks, draws)
