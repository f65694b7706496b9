"""What is known of a published image dataset, and its keys in YAML."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt, doc

from raysim.data.archives import Archive
from raysim.data.dataset import Array
from raysim.data.decoding import Labelled, LoadKeys


@dataclass(frozen=True, kw_only=True)
class SetKeys(LoadKeys):
    """The keys of every published dataset."""

    path: Annotated[
        str | None, doc("the unpacked folder; relative, it starts at dataset.root; null is the official name there")
    ] = None
    size: Annotated[int, Ge(1), Le(4096), doc("height and width of the resized images, for any proportions")] = 224


@dataclass(frozen=True, kw_only=True)
class DrawnKeys(SetKeys):
    """The keys of a dataset without an official split."""

    test_fraction: Annotated[
        float,
        Gt(0),
        Lt(1),
        doc("the part of each class that is drawn for testing, unless the folder has train and test"),
    ] = 0.2
    seed: Annotated[int, Ge(0), doc("the seed of that part, independent of the run's seed")] = 0


@dataclass(frozen=True, kw_only=True)
class ListedKeys(DrawnKeys):
    """The keys of a dataset with lists that others published."""

    split: Annotated[
        Literal["lists", "drawn"], doc("the lists that the literature uses, which must be there, or a drawn part")
    ] = "lists"


@dataclass(frozen=True, kw_only=True)
class OfficeHomeKeys(DrawnKeys):
    """The keys of Office-Home."""

    domain: Annotated[Literal["art", "clipart", "product", "real_world"], doc("the domain")] = "art"


@dataclass(frozen=True, kw_only=True)
class Office31Keys(DrawnKeys):
    """The keys of Office-31."""

    domain: Annotated[Literal["amazon", "dslr", "webcam"], doc("the domain")] = "amazon"


@dataclass(frozen=True, kw_only=True)
class DomainNetKeys(SetKeys):
    """The keys of DomainNet."""

    domain: Annotated[Literal["clipart", "infograph", "painting", "quickdraw", "real", "sketch"], doc("the domain")] = (
        "clipart"
    )


@dataclass(frozen=True, kw_only=True)
class Core50Keys(SetKeys):
    """The keys of CORe50."""

    label: Annotated[Literal["object", "category"], doc("50 objects, or 10 categories of 5 objects")] = "object"


@dataclass(frozen=True)
class SplitList:
    """A file with a published split, or with labels."""

    file: str
    md5: str | None
    site: str
    """Where it is published."""


@dataclass(frozen=True, eq=False)
class FoundImages:
    """The images that a layout finds."""

    train: Labelled
    test: Labelled
    names: tuple[str, ...]
    notes: tuple[str, ...] = ()
    columns: tuple[Mapping[str, Array], Mapping[str, Array]] = field(default_factory=lambda: ({}, {}))
    """What else is known of the training and of the test images."""


@dataclass(frozen=True, eq=False)
class ImageSet:
    """A published dataset of images."""

    name: str
    title: str
    """The first line of its description."""
    described: str
    """Its split, its source, and how the literature divides it into tasks."""
    folder: str
    """The folder below that of the datasets."""
    site: str
    """Where its files are published."""
    layout: Callable[[ImageSet, Path, Any], FoundImages]
    keys: type[SetKeys]
    counts: Mapping[str, tuple[int, int]]
    """The published numbers of training and test images: of each domain, or of "" without domains.

    Without an official split, they are 0.8 and 0.2 of all."""
    classes: int
    archives: Sequence[Archive] = ()
    lists: Sequence[SplitList] = ()
    loose: Sequence[SplitList] = ()
    """Files that are in no archive."""
    exact: bool = True
    """Whether `counts` are those of the files, so that other numbers are doubted; else they are about right."""
    also: Sequence[str] = ()
    """Other names of the folder."""
