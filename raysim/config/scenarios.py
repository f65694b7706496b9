"""The block of the config that describes the scenario: the tasks, and how they differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import (
    Field,
    SerializeAsAny,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from raysim.config.block import BelowOne, Block, Count, WholeNumber
from raysim.config.component import Component, ComponentName
from raysim.config.component_blocks import Domains
from raysim.config.document import explain, validation_error
from raysim.config.error_text import show
from raysim.config.key_schema import Allowed
from raysim.config.timing import Apart, Windows

MOST_TASKS = 1000  # an accuracy matrix of a million numbers

BY_NAME = "each by its number, from 0, or its name"
ClassList = Annotated[tuple[WholeNumber | str, ...], Field(strict=False, min_length=1)]
ClassLists = Annotated[tuple[ClassList, ...], Field(strict=False)]


class _Scenario(Block):
    kind: str
    tasks: Annotated[int, Field(ge=1, le=MOST_TASKS)]
    """How many tasks follow one another."""
    order: Literal["same", "per_client"] = "same"
    """Whether all clients meet the tasks in one order, or each in its own."""
    online: bool = False
    """Whether a task's samples are dealt to its rounds, so that each is trained on once."""
    blur: BelowOne = 0.0
    """The share of each task's samples that comes in its neighbours' time: of each client's, half of it in the time of
    the task before and half in that of the one after. Tests stay by task."""
    boundaries: Literal["synchronous"] | Apart = "synchronous"
    """When the task changes: synchronous is for all clients at once; {jittered: {rounds: 2}} a few rounds apart;
    {asynchronous: {window: 500}} after so many samples, wherever a task ends."""

    @property
    def windows(self) -> Windows | None:
        """What asynchronous boundaries are, or None where clients know their task."""
        return None if isinstance(self.boundaries, str) else self.boundaries.asynchronous

    @property
    def jitter(self) -> int:
        """By how many rounds, at most, boundaries differ between clients."""
        jittered = None if isinstance(self.boundaries, str) else self.boundaries.jittered
        return 0 if jittered is None else jittered.rounds


class DomainIncremental(_Scenario):
    """Every task has all classes, in images that look different."""

    kind: Literal["domain_incremental"]
    """Tasks differ in what the images look like."""
    shift: Literal["rotation", "permutation"] | Domains = "rotation"
    """What changes: the images' angle, the order of their pixels (one draw per task), or the data set, as in {domains:
    [mnist, usps]}."""

    @model_validator(mode="after")
    def _one_task_per_domain(self) -> DomainIncremental:
        if isinstance(self.shift, Domains) and len(self.shift.domains) != self.tasks:
            words = f"found {self.tasks}, allowed: {len(self.shift.domains)}, one for each of scenario.shift.domains"
            raise validation_error(explain(("tasks",), words))
        return self


class Repetition(Block):
    """How classes come again."""

    probability: Annotated[float, Field(gt=0, le=1)]
    """The probability with which a class comes again in each task after its first, drawn with the seed."""
    introduced_by: Count | None = None
    """The task by which every class has come for the first time: the classes are dealt to so many tasks; null is the
    last."""


class ClassIncremental(_Scenario):
    """Every task has classes of its own, or, with `repetition`, some that came before."""

    kind: Literal["class_incremental"]
    """Tasks differ in their classes."""
    first_task_classes: Count | None = None
    """How many classes the first task has, such as 50 of 100 in B50; null is as many as the others."""
    class_order: Annotated[
        Literal["natural", "seeded"] | ClassList, Allowed(f"natural, seeded or a list of all classes, {BY_NAME}")
    ] = "natural"
    """The order in which classes are dealt to tasks, in parts as equal as they go: by number, drawn with the seed, or
    listed, each class by its number or its name."""
    classes: Annotated[
        ClassLists | None, Allowed(f"null or a list with a list of classes for each task, {BY_NAME}")
    ] = None
    """The classes of each task, listed as in class_order; null deals them out."""
    repetition: Literal["listed"] | Repetition | None = None
    """Whether classes come again in later tasks, a class's samples being dealt to its tasks in equal parts: listed is
    where `classes` lists them again; {probability: 0.2} draws; null is never."""

    @property
    def dealt(self) -> int:
        """To how many tasks classes are dealt, each to one."""
        repeats = self.repetition if isinstance(self.repetition, Repetition) else None
        return self.tasks if repeats is None or repeats.introduced_by is None else repeats.introduced_by

    @model_validator(mode="after")
    def _classes_are_dealt_or_listed(self) -> ClassIncremental:
        if self.classes is not None:
            if len(self.classes) != self.tasks:
                words = f"found {self.tasks}, allowed: {len(self.classes)}, one for each list of scenario.classes"
                raise validation_error(explain(("tasks",), words))
            if self.first_task_classes is not None:
                words = f"found {self.first_task_classes}, allowed: null beside scenario.classes, which lists the first"
                raise validation_error(explain(("first_task_classes",), words))
            if self.class_order != "natural":
                words = f"found {show(self.class_order)}, allowed: natural beside scenario.classes, which has an order"
                raise validation_error(explain(("class_order",), words))
        if self.first_task_classes is not None and self.dealt == 1:
            key = "tasks" if self.tasks == 1 else "repetition.introduced_by"
            words = f"found {self.first_task_classes}, allowed: null with scenario.{key}=1, a task of all classes"
            raise validation_error(explain(("first_task_classes",), words))
        return self

    @model_validator(mode="after")
    def _repetition_is_listed_or_drawn(self) -> ClassIncremental:
        if self.repetition == "listed" and self.classes is None:
            words = "found listed, allowed: {probability: 0.2} or null without scenario.classes, which lists them"
            raise validation_error(explain(("repetition",), words))
        if isinstance(self.repetition, Repetition) and self.classes is not None:
            words = "found a block, allowed: listed or null beside scenario.classes, which says when each class comes"
            raise validation_error(explain(("repetition",), words))
        if self.dealt > self.tasks:
            words = f"found {self.dealt}, allowed: 1 to {self.tasks} (scenario.tasks)"
            raise validation_error(explain(("repetition", "introduced_by"), words))
        return self


class OwnScenario(_Scenario, Component):
    """Tasks that a function of the user's own makes of the data set."""

    what = "task scenario"
    decides = "kind"
    kind: ComponentName
    """Your own, as package.module:name."""


def _own_or(value: object, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> object:
    """Validate a scenario of the user's own as such; the keys of raysim's depend on each other, and have blocks."""
    if isinstance(value, OwnScenario):
        return value
    if not (isinstance(value, Mapping) and ":" in str(value.get("kind"))):
        return handler(value)
    try:
        return OwnScenario.model_validate(value, context=info.context)
    except ValidationError as error:  # with a name in front of the keys, as a union's options have
        raise validation_error(
            *(explain(("own", *line["loc"]), **line["ctx"]) for line in error.errors(include_url=False))
        ) from None


if TYPE_CHECKING:
    Scenario = DomainIncremental | ClassIncremental | OwnScenario
else:
    Scenario = Annotated[
        DomainIncremental | ClassIncremental,
        Field(discriminator="kind"),
        WrapValidator(_own_or),
        SerializeAsAny(),
    ]
