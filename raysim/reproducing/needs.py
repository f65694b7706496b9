"""What a row of a paper needs: its data, found or not, and its hours on this machine."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from raysim.config import Config
from raysim.config.error_text import shorten
from raysim.config.lookup import table
from raysim.data import DOWNLOADS
from raysim.data.loading import list_datasets, load_dataset, resolve_root
from raysim.estimate import placement
from raysim.estimate.concurrency import gpus_of_a_run, runs_at_once
from raysim.launch.estimated import check_run
from raysim.system.capacity import Capacity, this_machine
from raysim.system.errors import ConfigError, RunError, single_line
from raysim.system.progress import tell_progress

HOUR = 3600.0
NOT_DOWNLOADED = "the head of its config says where it is from"
LONGEST_NAMES = 120  # characters of the names of datasets in a line


@dataclass(frozen=True)
class DataNeeds:
    """The datasets of a row.

    Attributes:
        titles: the datasets.
        root: the folder of the datasets.
        missing: by the title of each that is not there: why.
        downloads: the names of those that are missing, if a run downloads them all.
        megabytes: the size of these downloads.
        changes: the keys by which a run reads a file such as cifar100.npz in the place of the dataset of this name.
    """

    titles: tuple[str, ...]
    root: str
    missing: Mapping[str, str] = field(default_factory=dict)
    downloads: tuple[str, ...] = ()
    megabytes: int = 0
    changes: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        names = dict.fromkeys(self.titles)
        if self.changes:
            return f"{_join(names)}: found as {self.changes['dataset.path']} in {self.root}"
        if not self.missing:
            return f"{_join(names)}: found"
        found = [name for name in names if name not in self.missing]
        commands = "; ".join(f"raysim download {name}" for name in self.downloads)
        ways = f"; a run gets {self.megabytes} MB, or before it: {commands}" if commands else f"; {NOT_DOWNLOADED}"
        here = f"; {_join(found)}: found" if found else ""
        return f"{_join(self.missing)}: not found in {self.root}{ways}{here}"


def _join(names: Iterable[str]) -> str:
    return shorten(", ".join(names), LONGEST_NAMES)


class DataSearch:
    """Looks for datasets, each once."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def find(self, config: Config) -> DataNeeds:
        """Return the datasets of a config. None is downloaded.

        Raises:
            ConfigError: dataset.root or $RAYSIM_DATA is no folder.
        """
        spec = config.dataset
        root = resolve_root(spec.root)
        missing, titles, names = dict[str, str](), [], set[str]()
        for component in list_datasets(config):
            key = repr((component.named, component.keys(), spec.root))
            if key not in self._known:
                tell_progress(f"looking for {component.title}")
                try:
                    load_dataset(component.function(), spec.root, False, component.keys())
                except ConfigError as error:
                    self._known[key] = single_line(str(error))
                else:
                    self._known[key] = ""
            titles.append(component.title)
            if self._known[key]:
                missing[component.title] = self._known[key]
                names.add(component.named)
        file = f"{spec.named}.npz"
        if [*missing] == [spec.title] and spec.named in table("dataset") and (root / file).is_file():
            return DataNeeds(tuple(titles), str(root), changes={"dataset.name": "npz", "dataset.path": file})
        size = sum(DOWNLOADS[name][1] for name in names if name in DOWNLOADS)
        all_downloaded = spec.download and names <= DOWNLOADS.keys()
        return DataNeeds(tuple(titles), str(root), missing, tuple(sorted(names)) if all_downloaded else (), size)


@dataclass(frozen=True)
class RowTime:
    """The estimated seconds of a row's runs on this machine, or why they are not known."""

    seconds: float | None
    why: str = ""

    @property
    def hours(self) -> float | None:
        """The same in hours."""
        return None if self.seconds is None else self.seconds / HOUR


def estimate_time(config: Config, runs: int, jobs: int | None, local: bool) -> RowTime:
    """Return the time of a row: that of `raysim check` for one of its runs, and how many are carried out at a time."""
    machine = this_machine()
    try:
        placement.check_gpus(config, machine)
        seconds = check_run(config).seconds_local
    except (ConfigError, RunError) as error:
        return RowTime(None, single_line(str(error)))
    if seconds is None:
        return RowTime(None, "it is measured where the run's data and its cluster are")
    at_once = 1 if local else min(runs, _room(config, machine, jobs))
    return RowTime(seconds * -(-runs // at_once))


def _room(config: Config, machine: Capacity, jobs: int | None) -> int:
    return runs_at_once(machine, gpus_of_a_run(config.resources), jobs, custom=config.resources.custom)
