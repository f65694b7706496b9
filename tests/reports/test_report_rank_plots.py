"""Mean ranks with bootstrap intervals, and the plots of them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_runs import make_run, one_scene

from raysim.reports.bootstrap import RankedSetting, rank, rank_over_seeds, rank_over_settings
from raysim.reports.grouping import group_runs
from raysim.reports.plots.ranks import draw_overall_ranks, draw_ranks
from raysim.reports.plots.scene import Scene, set_scenes
from raysim.reports.plots.style import Drawing
from raysim.reports.ranks import tabulate_overview
from raysim.reports.reading import find_runs


def test_equal_values_share_the_better_rank() -> None:
    values = np.array([[0.9, 0.5, 0.5, 0.1], [0.2, 0.1, 0.4, 0.3]])
    assert rank(values, higher_is_better=True).tolist() == [[1, 2, 2, 4], [3, 4, 1, 2]]
    assert rank(values, higher_is_better=False).tolist() == [[4, 2, 2, 1], [2, 1, 4, 3]]


@pytest.mark.parametrize(
    ("ranks", "low", "mean", "high"),
    [
        ([1, 2], 1, 1.5, 2),  # of two seeds drawn with replacement both are the first in 1/4 of cases
        ([2, 2, 2], 2, 2, 2),
        ([1, 1, 2], 1, 4 / 3, 2),  # (1/3)^3 = 3.7% are 2, more than 2.5%
        ([1, 1, 1, 2], 1, 1.25, 1.75),  # (1/4)^4 = 0.4% are 2, and 4 (1/4)^3 (3/4) = 4.7% are 1.75
    ],
)
def test_intervals_are_of_seeds_drawn_with_replacement(ranks: list[int], low: float, mean: float, high: float) -> None:
    """The method has these ranks against another one whose value is always 0."""
    found = rank_over_seeds(np.array([[3 - 2 * place, 0] for place in ranks], float), higher_is_better=True)
    assert [found.low[0], found.mean[0], found.high[0]] == pytest.approx([low, mean, high])


def test_a_setting_ranks_means_and_draws_its_own_seeds() -> None:
    """The method is second in one setting, after a method that does not count. In the other it has 3 and -1 against 0.

    Its mean there is 1, so its rank is 1. In 1/4 of the draws its mean is -1, and its rank 2.
    """
    sure = RankedSetting(np.array([[1.0, 0, 9], [1, 0, 9]]), True, 1, [0, 1])
    unsure = RankedSetting(np.array([[3.0, 0], [-1, 0]]), True, 1, [0, 1])
    found = rank_over_settings([sure, unsure])
    assert [found.low[0], found.mean[0], found.high[0]] == [1.5, 1.5, 2]  # ranks 2 and 1, or 2 and 2


def test_intervals_do_not_depend_on_the_order_of_the_settings() -> None:
    values = np.random.default_rng(1).normal(size=(3, 4, 12))
    settings = [RankedSetting(of_setting, True, 1, range(12)) for of_setting in values]
    one, other = rank_over_settings(settings), rank_over_settings(settings[::-1])
    assert (one.low.tolist(), one.high.tolist()) == (other.low.tolist(), other.high.tolist())


def test_means_that_look_equal_have_the_same_rank() -> None:
    setting = RankedSetting(np.array([[1.01, 1.04]]), True, 1, [0, 1])
    assert setting.rank_means(setting.values).tolist() == [1, 1]


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
    assert (
        "Mean over 2 seeds of the rank by final average accuracy, domain-IL; 95% interval of a bootstrap over seeds."
        in drawing.caption
    )
    assert "Not ranked, as bounds, by a remark or because of other seeds: EWC, Joint." in drawing.caption


def test_one_seed_or_two_methods_make_no_ranks(tmp_path: Path) -> None:
    for methods in ({}, {"er": {}}, {"fedprox": {}}):
        make_seeds(tmp_path / "one", methods, {0: 0.5})
    make_seeds(tmp_path / "two", {}, {0: 0.5, 1: 0.6})
    make_seeds(tmp_path / "two", {"er": {}}, {0: 0.5, 1: 0.6})
    assert [*draw_ranks(one_scene(tmp_path / "one"))] == [*draw_ranks(one_scene(tmp_path / "two"))] == []


def test_ranks_over_settings_are_those_of_the_overview(tmp_path: Path) -> None:
    """ER is second and third, FedAvg third and second, FedProx fourth and first. DER has no second setting."""
    for rounds, averages in ((1, (0.6, 0.5, 0.4)), (2, (0.4, 0.5, 0.6))):
        for methods, average in zip(({"er": {}}, {}, {"fedprox": {}}), averages, strict=True):
            make_seeds(tmp_path, methods, {0: average, 1: average}, rounds)
    make_seeds(tmp_path, {"der": {}}, {0: 0.9, 1: 0.9}, 1)
    scenes = scenes_of(tmp_path)
    (drawing,) = draw_overall_ranks(scenes)
    expected = {"ER": 2.5, "FedAvg": 2.5, "FedProx": 2.5}
    assert rows_of(drawing) == {name: (mean, mean, mean) for name, mean in expected.items()}
    overview = tabulate_overview([scene.setting for scene in scenes])
    assert overview
    assert {row[0].text: [cell.text for cell in row[-3:-1]] for row in overview.rows} == {
        "DER": ["-", "-"],
        **{name: ["2.5", "2.5 to 2.5"] for name in expected},
    }
    assert drawing.stem == "ranks"
    assert [*draw_overall_ranks(scenes[:1])] == []
