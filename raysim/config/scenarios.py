"""The block of the config that describes the scenario: the tasks, and how they differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, SerializeAsAny, ValidatorFunctionWrapHandler, WrapValidator

from raysim.config.block import Allowed, BelowOne, Block, Count, WholeNumber
from raysim.config.component import Component, ComponentName
from raysim.config.component_blocks import Domains
from raysim.config.document import Mistake
from raysim.config.error_text import show
from raysim.config.timing import Apart, OwnStream, Windows

MOST_TASKS = 1000  # an accuracy matrix of a million numbers

BY_NAME = "each by its number, from 0, or its name"
ClassList = Annotated[tuple[WholeNumber | str, ...], Field(strict=False, min_length=1)]
ClassLists = Annotated[tuple[ClassList, ...], Field(strict=False)]


class _Scenario(Block):
    by_domain: ClassVar = False  # whether every task has all classes
    ordered: ClassVar = False  # whether a task's samples arrive in the order of its rows, not at random

    kind: str
    tasks: Annotated[int, Field(ge=1, le=MOST_TASKS, examples=[5])]
    """The number of tasks."""
    order: Literal["same", "per_client"] = "same"
    """Whether all clients have the tasks in the same order, or each in a separate random order."""
    online: bool = False
    """Whether a task's samples are divided among its rounds, so that each is trained on once."""
    blur: BelowOne = 0.0
    """The fraction of a client's samples of a task that arrives during the neighboring tasks: half during the task
    before and half during the one after. Tests are still by task."""
    boundaries: Literal["synchronous"] | Apart = "synchronous"
    """When the task changes: for all clients in the same round (synchronous), a few rounds apart ({jittered: {rounds:
    2}}), or unknown to the clients, which get windows of samples ({asynchronous: {window: 500}})."""

    @property
    def windows(self) -> Windows | None:
        """The asynchronous boundaries, or None if clients know their task."""
        return None if isinstance(self.boundaries, str) else self.boundaries.asynchronous

    @property
    def stream(self) -> OwnStream | None:
        """The custom stream under asynchronous boundaries, or None."""
        return None if self.windows is None else self.windows.stream

    @property
    def jitter(self) -> int:
        """The most rounds by which a client's boundary is shifted."""
        jittered = None if isinstance(self.boundaries, str) else self.boundaries.jittered
        return 0 if jittered is None else jittered.rounds


class DomainIncremental(_Scenario):
    """Every task has all classes, in images that look different."""

    by_domain: ClassVar = True

    kind: Literal["domain_incremental"]
    """Tasks differ in what the images look like."""
    shift: Literal["rotation", "permutation"] | Domains = "rotation"
    """What differs between tasks: the images' angle, the order of their pixels, or the dataset, as in {domains:
    [mnist, usps]}."""

    def contradictions(self) -> Iterator[Mistake]:
        """Yield the mistake of another number of tasks than datasets."""
        if isinstance(self.shift, Domains) and len(self.shift.domains) != self.tasks:
            words = f"found {self.tasks}, allowed: {len(self.shift.domains)}, one for each of scenario.shift.domains"
            yield Mistake(("tasks",), words)


class ByColumn(_Scenario):
    """Every task is an interval of a column of the data, such as the time."""

    by_domain: ClassVar = True
    ordered: ClassVar = True

    kind: Literal["by_column"]
    """Tasks are intervals of a column, ascending. Samples arrive in the order of the column."""
    column: Annotated[str, Field(examples=["time"])]
    """The column: a time stamp, a site, or any number or text that the dataset has for each sample."""
    cuts: Annotated[
        tuple[float | str, ...] | None,
        Field(strict=False),
        Allowed("null or a list with the value at which each later task begins"),
    ] = None
    """The values at which the second and later tasks begin; null makes tasks of equal numbers of training samples, or
    of equal numbers of values if these are texts."""
    per: Literal["run", "client"] = "run"
    """Whether the intervals are the same for all samples (run), or divide the samples of each client id separately
    (client)."""

    def contradictions(self) -> Iterator[Mistake]:
        """Yield the mistake of cuts that do not fit the tasks."""
        cuts = self.cuts
        if cuts is None:
            return
        if self.per == "client":
            yield Mistake(("cuts",), f"found {show([*cuts])}, allowed: null with scenario.per=client")
        elif len(cuts) != self.tasks - 1:
            words = f"found {len(cuts)} values, allowed: {self.tasks - 1}, one less than scenario.tasks ({self.tasks})"
            yield Mistake(("cuts",), words)
        elif len({type(cut) for cut in cuts}) > 1:
            yield Mistake(("cuts",), f"found {show([*cuts])}, allowed: all numbers or all texts")


class Repetition(Block):
    """How classes are repeated."""

    probability: Annotated[float, Field(gt=0, le=1)]
    """The probability that a class returns in a task after its first one, drawn with the seed."""
    introduced_by: Count | None = None
    """The task by which every class has occurred: the classes are divided among the tasks up to it; null is the last
    task."""


class ClassIncremental(_Scenario):
    """Every task has new classes, or, with `repetition`, also earlier ones."""

    kind: Literal["class_incremental"]
    """Tasks differ in their classes."""
    first_task_classes: Count | None = None
    """The number of classes of the first task, such as 50 of 100 in B50; null is the same as for the others."""
    class_order: Annotated[
        Literal["natural", "seeded"] | ClassList, Allowed(f"natural, seeded or a list of all classes, {BY_NAME}")
    ] = "natural"
    """The order in which classes are divided among the tasks, in nearly equal parts: by number, drawn with the seed, or
    a list of the classes' numbers or names."""
    classes: Annotated[
        ClassLists | None, Allowed(f"null or a list with a list of classes for each task, {BY_NAME}")
    ] = None
    """The classes of each task, listed as in class_order; null divides them among the tasks."""
    repetition: Literal["listed"] | Repetition | None = None
    """Whether classes return in later tasks: as `classes` lists them (listed), by a draw ({probability: 0.2}), or never
    (null). A class's samples are divided equally among its tasks."""

    @property
    def dealt(self) -> int:
        """The number of tasks among which the classes are divided."""
        repeats = self.repetition if isinstance(self.repetition, Repetition) else None
        return self.tasks if repeats is None or repeats.introduced_by is None else repeats.introduced_by

    def contradictions(self) -> Iterator[Mistake]:
        """Yield the first contradiction between the keys that assign classes to tasks."""
        for is_wrong, key, found, allowed in self._rules():
            if is_wrong:
                yield Mistake(tuple(key.split(".")), f"found {found}, allowed: {allowed}")
                return

    def _rules(self) -> Iterator[tuple[bool, str, str, str]]:
        """Yield whether a key contradicts the others, the key, its value, and the allowed ones."""
        listed, first, repetition = self.classes, self.first_task_classes, self.repetition
        if listed is not None:
            each = f"{len(listed)}, one for each list of scenario.classes"
            yield len(listed) != self.tasks, "tasks", str(self.tasks), each
            beside = "null with scenario.classes, which lists the first"
            yield first is not None, "first_task_classes", str(first), beside
            order = "natural with scenario.classes, which has an order"
            yield self.class_order != "natural", "class_order", show(self.class_order), order
            drawn = "listed or null with scenario.classes, which says when each class comes"
            yield isinstance(repetition, Repetition), "repetition", "a block", drawn
        else:
            drawn = "{probability: 0.2} or null without scenario.classes, which lists them"
            yield repetition == "listed", "repetition", "listed", drawn
        key = "tasks" if self.tasks == 1 else "repetition.introduced_by"
        whole = f"null with scenario.{key}=1, a task of all classes"
        yield first is not None and self.dealt == 1, "first_task_classes", str(first), whole
        most = f"1 to {self.tasks} (scenario.tasks)"
        yield self.dealt > self.tasks, "repetition.introduced_by", str(self.dealt), most


class OwnScenario(_Scenario, Component):
    """Tasks that a custom function makes of the dataset."""

    what = "task scenario"
    decides = "kind"
    kind: ComponentName
    """Your own, as package.module:name."""


def _own_or(value: object, handler: ValidatorFunctionWrapHandler) -> object:
    """Validate a custom scenario by its own block, and others by `handler`."""
    own = isinstance(value, Mapping) and ":" in str(value.get("kind"))
    return OwnScenario.model_validate(value) if own else handler(value)


if TYPE_CHECKING:
    Scenario = DomainIncremental | ClassIncremental | ByColumn | OwnScenario
else:
    Scenario = Annotated[
        DomainIncremental | ClassIncremental | ByColumn,
        Field(discriminator="kind"),
        WrapValidator(_own_or),
        SerializeAsAny(),
    ]
