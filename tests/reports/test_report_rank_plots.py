"""Mean ranks with bootstrap intervals, and the plots of them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_runs import make_run, one_scene

from raysim.reports.bootstrap import average_ranks, rank
from raysim.reports.grouping import group_runs
from raysim.reports.plots.ranks import draw_overall_ranks, draw_ranks
from raysim.reports.plots.scene import Scene, set_scenes
from raysim.reports.plots.style import Drawing
from raysim.reports.reading import find_runs


def test_equal_values_share_their_mean_rank() -> None:
    values = np.array([[0.9, 0.5, 0.5, 0.1], [0.2, 0.1, 0.4, 0.3]])
    assert rank(values, higher_is_better=True).tolist() == [[1, 2.5, 2.5, 4], [3, 4, 1, 2]]
    assert rank(values, higher_is_better=False).tolist() == [[4, 2.5, 2.5, 1], [2, 1, 4, 3]]


@pytest.mark.parametrize(
    ("ranks", "low", "mean", "high"),
    [
        ([1, 3], 1, 2, 3),  # of two seeds drawn with replacement both are the first in 1/4 of cases
        ([2, 2, 2], 2, 2, 2),
        ([1, 1, 2], 1, 4 / 3, 2),  # (1/3)^3 = 3.7% are 2, more than 2.5%
        ([1, 1, 1, 2], 1, 1.25, 1.75),  # (1/4)^4 = 0.4% are 2, and 4 (1/4)^3 (3/4) = 4.7% are 1.75
    ],
)
def test_intervals_are_of_seeds_drawn_with_replacement(ranks: list[int], low: float, mean: float, high: float) -> None:
    found = average_ranks([np.array(ranks, float)[:, None]])
    assert [found.low[0], found.mean[0], found.high[0]] == pytest.approx([low, mean, high])


def test_settings_count_equally_and_draw_their_own_seeds() -> None:
    """Rank 1 with certainty and rank 1 or 3: 2 on average, from (1 + 1) / 2 to (1 + 3) / 2."""
    found = average_ranks([np.array([[1.0]] * 5), np.array([[1.0], [3.0]])])
    assert [found.low[0], found.mean[0], found.high[0]] == [1, 1.5, 2]


def make_seeds(directory: Path, methods: dict[str, Any], averages: dict[int, float], rounds: int = 1) -> None:
    for seed, average in averages.items():
        overrides = {"methods": methods, "seed": seed, "training.rounds_per_task": rounds}
        name = f"{rounds}-{'-'.join(methods) or 'fedavg'}-{seed}"
        make_run(directory / name, overrides, {"domain_il": [[average, 0], [average, average]]})


def scenes_of(directory: Path) -> list[Scene]:
    return set_scenes(group_runs(find_runs([directory], []), []))


def rows_of(drawing: Drawing) -> dict[str, tuple[float, float, float]]:
    """By label, from above: the mean rank and the ends of the line."""
    axes = drawing.figure.axes[0]
    labels = [text.get_text() for text in axes.get_yticklabels()]
    lines, points = axes.lines[::2], axes.lines[1::2]
    ends: list[Any] = [line.get_xdata() for line in lines]
    means: list[Any] = [point.get_xdata() for point in points]
    return {label: (mean[0], *end) for label, mean, end in zip(labels, means, ends, strict=True)}


def test_the_best_rank_is_above_and_bounds_and_missing_seeds_have_none(tmp_path: Path) -> None:
    """Seed 0: ER, FedAvg, FedProx; seed 1: ER, FedProx, FedAvg."""
    make_seeds(tmp_path, {}, {0: 0.5, 1: 0.3})
    make_seeds(tmp_path, {"fedprox": {}}, {0: 0.4, 1: 0.4})
    make_seeds(tmp_path, {"er": {}}, {0: 0.6, 1: 0.5})
    make_seeds(tmp_path, {"ewc": {}}, {0: 0.7})
    make_seeds(tmp_path, {"joint": {}}, {0: 0.9, 1: 0.9})
    (drawing,) = draw_ranks(one_scene(tmp_path))
    assert rows_of(drawing) == {"ER": (1, 1, 1), "FedAvg": (2.5, 2, 3), "FedProx": (2.5, 2, 3)}
    assert "over 2 seeds; 95% interval of a bootstrap over seeds." in drawing.caption
    assert "Not ranked, as bounds or without some seeds: EWC, Joint." in drawing.caption


def test_one_seed_or_two_methods_make_no_ranks(tmp_path: Path) -> None:
    for methods in ({}, {"er": {}}, {"fedprox": {}}):
        make_seeds(tmp_path / "one", methods, {0: 0.5})
    make_seeds(tmp_path / "two", {}, {0: 0.5, 1: 0.6})
    make_seeds(tmp_path / "two", {"er": {}}, {0: 0.5, 1: 0.6})
    assert [*draw_ranks(one_scene(tmp_path / "one"))] == [*draw_ranks(one_scene(tmp_path / "two"))] == []


def test_ranks_over_settings_are_of_the_methods_that_all_have(tmp_path: Path) -> None:
    """Ranks are anew without DER, which the second setting lacks: ER 1 and 3, FedAvg 2 and 2, FedProx 3 and 1."""
    for rounds, averages in ((1, (0.6, 0.5, 0.4)), (2, (0.4, 0.5, 0.6))):
        for methods, average in zip(({"er": {}}, {}, {"fedprox": {}}), averages, strict=True):
            make_seeds(tmp_path, methods, {0: average, 1: average}, rounds)
    make_seeds(tmp_path, {"der": {}}, {0: 0.9, 1: 0.9}, 1)
    scenes = scenes_of(tmp_path)
    (drawing,) = draw_overall_ranks(scenes)
    assert rows_of(drawing) == dict.fromkeys(("ER", "FedAvg", "FedProx"), (2, 2, 2))
    assert drawing.stem == "ranks"
    assert [*draw_overall_ranks(scenes[:1])] == []
