"""The settings of the leaderboard: those in which rows were tuned, and those that have the choices of another one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from raysim.reports.grouping import group_runs
from raysim.reports.ranks import Ranking
from raysim.reports.reading import find_runs

ROOT = Path(__file__).parents[1]
SWEEPS = ("leaderboard_pixels", "leaderboard_features")
"""The sweeps of the board, in configs/sweeps/ and in results/."""


@dataclass(frozen=True)
class BoardSetting:
    """A setting of a sweep, with the ranking of its rows."""

    ranking: Ranking
    sweep: str

    @property
    def title(self) -> str:
        """The setting's name."""
        return self.ranking.setting.title

    @property
    def source(self) -> str | None:
        """The setting that its choices come from, if its rows were not tuned in it."""
        runs = (run for group in self.ranking.setting.groups for run in group.runs)
        return next((run.chosen_in for run in runs if run.chosen_in), None)


@cache
def read_rankings(directory: Path) -> list[Ranking]:
    """Return the rankings of a sweep's settings, by their titles."""
    left_out: list[str] = []
    found = map(Ranking, group_runs(find_runs([directory], left_out), left_out))
    return sorted(found, key=lambda ranking: ranking.setting.title)


def rules_of(sweep: str) -> Path:
    """Return the file of a sweep."""
    return ROOT / "configs" / "sweeps" / f"{sweep}.yaml"


@cache
def read_board() -> list[BoardSetting]:
    """Return the settings of the board's sweeps, by their titles."""
    found = [BoardSetting(one, sweep) for sweep in SWEEPS for one in read_rankings(ROOT / "results" / sweep)]
    return sorted(found, key=lambda setting: setting.title)


def tuned() -> list[Ranking]:
    """Return the rankings of the settings in which rows were tuned."""
    return [setting.ranking for setting in read_board() if setting.source is None]
