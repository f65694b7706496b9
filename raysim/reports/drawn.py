"""The pictures that methods recorded, for a setting's section of a report."""

from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from raysim.records.images import find_images
from raysim.reports.content import Plot
from raysim.reports.grouping import ExperimentSetting, MethodGroup
from raysim.system.errors import ConfigError
from raysim.system.files import read_whole

MOST = 24  # pictures of a section


class _Found(NamedTuple):
    """A picture in a run's directory."""

    series: tuple[str, str]  # the label of the group, and the picture's name
    when: str
    file: Path


def show_images(setting: ExperimentSetting, folder: Path, left_out: list[str]) -> tuple[list[Plot], str]:
    """Copy pictures of a setting, and return the copies and a line for those that are not shown.

    These are, of the first seed of each group, the last picture of each name in each task.

    Args:
        setting: the setting.
        folder: where the copies are written. It exists.
        left_out: receives a line if a picture or its run's rounds cannot be read.
    """
    found: list[_Found] = []
    for group in setting.groups:
        try:
            found += _last_of_tasks(group, setting.in_step)
        except ConfigError as error:
            left_out.append(f"setting {setting.number}: what methods drew: {error}")
    chosen = _choose(found)
    images: list[Plot] = []
    for one in chosen:
        try:
            content = read_whole(one.file)
        except OSError as error:
            left_out.append(f"setting {setting.number}: what methods drew: {one.file}: {error.strerror}")
            continue
        label, name = one.series
        stem = f"{setting.number}-drawn-{len(images) + 1}"
        images.append(Plot(folder, stem, f"{label}, {one.when}: {name}", ending="png"))
        images[-1].file.write_bytes(content)
    more = len(found) - len(chosen)
    return images, f"{len(chosen)} of {len(found)} pictures are shown. All are in the runs' directories." * (more > 0)


def _last_of_tasks(group: MethodGroup, in_step: bool) -> Iterator[_Found]:
    """Yield the last picture of each name in each task; if clients are not in step, the last of each name."""
    run = group.runs[0]
    images = {} if run.packed else find_images(run.directory)
    if not images:
        return
    tasks = {line.round: line.so_far if in_step else None for line in run.rounds()}
    ends = {task: round for round, task in tasks.items()}
    last: dict[tuple[str, int | None], tuple[int, Path]] = {}
    for round, files in images.items():
        last |= {(file.stem, tasks.get(round)): (round, file) for file in files}
    for (name, task), (round, file) in sorted(last.items(), key=lambda one: (one[0][0], one[1][0])):
        of_task = f"after task {task}" if ends.get(task) == round else f"after round {round}, in task {task}"
        yield _Found((group.label, name), f"after round {round}" if task is None else of_task, file)


def _choose(found: list[_Found]) -> list[_Found]:
    """Return at most MOST pictures: as many of each series, evenly spaced, the last among them."""
    series = [[*alike] for _, alike in groupby(found, attrgetter("series"))]
    each = max(1, MOST // max(1, len(series)))
    if len(found) <= MOST:
        return found
    spaced = [sorted({*np.linspace(len(one) - 1, 0, min(each, len(one))).round().astype(int)}) for one in series]
    return [one[k] for one, places in zip(series, spaced, strict=True) for k in places][:MOST]
