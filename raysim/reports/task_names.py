"""The names of a setting's tasks, such as a rotation's angle, the classes of a task, or its dataset."""

from collections.abc import Sequence
from pathlib import PurePath

from raysim.config import Config, load
from raysim.config.lookup import custom_names, only_named_by
from raysim.config.scenarios import ByColumn, ClassIncremental, Repetition
from raysim.federation.federation import federation_without_clients
from raysim.reports.grouping import ExperimentSetting
from raysim.reports.stream.facts import name_task
from raysim.reports.stream.of_settings import SLOW
from raysim.system.errors import ConfigError, RunError

LONGEST = 18  # letters of a name


def name_tasks(setting: ExperimentSetting) -> Sequence[str]:
    """Return a name for each task: `1: rotation 145.3`. It is `task 1` if tasks have no names that all runs share.

    Runs of several seeds do not share tasks that are drawn with the seed. Data are read, never downloaded.
    """
    names = _find_names(setting) or [""] * setting.tasks
    return [f"{number}: {_shorten(name)}" if name else f"task {number}" for number, name in enumerate(names, 1)]


def _find_names(setting: ExperimentSetting) -> Sequence[str]:
    run = setting.runs[0]
    seeds = {run.summary.seed for run in setting.runs}
    try:
        if custom_names(run.config):  # a report imports no code that runs name
            return []
        with only_named_by():
            config = load(run.config)
            if config.domains is not None:
                names = strip_common([domain.title for domain in config.domains])
            elif config.dataset.name in SLOW or (len(seeds) > 1 and _is_drawn(config)):
                return []
            else:
                federation = federation_without_clients(config, download=False, pretend=True)
                names = [name_task(federation, task) for task in range(len(federation.tasks))]
    except (ConfigError, RunError, OSError):  # of data that are not here
        return []
    numbered = all(name == f"permutation {number}" for number, name in enumerate(names, 1))
    return [] if numbered or len(set(names)) < len(names) or len(names) != setting.tasks else names


def _is_drawn(config: Config) -> bool:
    """Return whether the tasks depend on the seed."""
    scenario = config.scenario
    if isinstance(scenario, ByColumn):
        return config.dataset.train_samples is not None
    if not isinstance(scenario, ClassIncremental):
        return True
    return scenario.class_order == "seeded" or isinstance(scenario.repetition, Repetition)


def strip_common(titles: Sequence[str]) -> list[str]:
    """Return the titles of datasets without the words, file endings and beginnings that all have.

    `npz pacs_photo.npz` and `npz pacs_sketch.npz` become `photo` and `sketch`.
    """
    rows = [title.split(" ") for title in titles]
    while len({row[0] for row in rows}) == 1 and all(len(row) > 1 for row in rows):
        rows = [row[1:] for row in rows]
    bare = [" ".join(row) for row in rows]
    if len({PurePath(title).suffix for title in bare}) == 1:
        bare = [str(PurePath(title).with_suffix("")) for title in bare]
    alike = next((place for place, letters in enumerate(zip(*bare, strict=False)) if len({*letters}) > 1), 0)
    start = max(bare[0].rfind(mark, 0, alike) for mark in "_-/") + 1
    return [title[start:] for title in bare]


def _shorten(name: str) -> str:
    return name if len(name) <= LONGEST else name[: LONGEST - 1].rstrip(" ,") + "…"
