"""The block of the config that describes the scenario: the tasks, and how they differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, SerializeAsAny, ValidatorFunctionWrapHandler, WrapValidator

from raysim.config.block import Allowed, BelowOne, Block, Count, WholeNumber
from raysim.config.component import Component, ComponentName
from raysim.config.component_blocks import Domains
from raysim.config.document import Mistake
from raysim.config.error_text import show
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

    def contradictions(self) -> Iterator[Mistake]:
        """Yield the mistake of tasks that are not as many as the data sets."""
        if isinstance(self.shift, Domains) and len(self.shift.domains) != self.tasks:
            words = f"found {self.tasks}, allowed: {len(self.shift.domains)}, one for each of scenario.shift.domains"
            yield Mistake(("tasks",), words)


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

    def contradictions(self) -> Iterator[Mistake]:
        """Yield the first mistake between what says of each class in which tasks it comes."""
        for is_wrong, key, found, allowed in self._rules():
            if is_wrong:
                yield Mistake(tuple(key.split(".")), f"found {found}, allowed: {allowed}")
                return

    def _rules(self) -> Iterator[tuple[bool, str, str, str]]:
        """Yield whether a key's value goes against the others, the key, what was found, and what is allowed."""
        listed, first, repetition = self.classes, self.first_task_classes, self.repetition
        if listed is not None:
            each = f"{len(listed)}, one for each list of scenario.classes"
            yield len(listed) != self.tasks, "tasks", str(self.tasks), each
            beside = "null beside scenario.classes, which lists the first"
            yield first is not None, "first_task_classes", str(first), beside
            order = "natural beside scenario.classes, which has an order"
            yield self.class_order != "natural", "class_order", show(self.class_order), order
            drawn = "listed or null beside scenario.classes, which says when each class comes"
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
    """Tasks that a function of the user's own makes of the data set."""

    what = "task scenario"
    decides = "kind"
    kind: ComponentName
    """Your own, as package.module:name."""


def _own_or(value: object, handler: ValidatorFunctionWrapHandler) -> object:
    """Validate a scenario of the user's own as such; the keys of raysim's depend on each other, and have blocks."""
    own = isinstance(value, Mapping) and ":" in str(value.get("kind"))
    return OwnScenario.model_validate(value) if own else handler(value)


if TYPE_CHECKING:
    Scenario = DomainIncremental | ClassIncremental | OwnScenario
else:
    Scenario = Annotated[
        DomainIncremental | ClassIncremental,
        Field(discriminator="kind"),
        WrapValidator(_own_or),
        SerializeAsAny(),
    ]
