"""What papers and sweeps call methods and settings, and the order that a sweep gives them."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from made_runs import make_run

from raysim.algorithms import METHODS
from raysim.reports.grouping import ExperimentSetting, group_runs
from raysim.reports.naming import spell_method
from raysim.reports.reading import find_runs

METHOD_PAGES = Path(__file__).parents[2] / "docs" / "methods"


def shape(found: list[ExperimentSetting]) -> list[tuple[str, list[tuple[str, list[int]]]]]:
    """Titles, labels and seeds."""
    return [(s.title, [(g.label, [run.summary.seed for run in g.runs]) for g in s.groups]) for s in found]


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_called_as_its_page_spells_it(name: str) -> None:
    """The title of its page is written by hand; some pages have two methods, as `DER and DER++`."""
    title = (METHOD_PAGES / f"{name}.md").read_text(encoding="utf-8").splitlines()[0]
    assert spell_method(name) == re.split(", | and ", title.removeprefix("# "))[0]


def test_other_names_of_methods() -> None:
    assert spell_method("der", {"beta": 0.5}) == "DER++"
    assert spell_method("mypkg.lwf:Lwf") == "Lwf"
    assert spell_method("of_an_older_version") == "of_an_older_version"


def test_where_spellings_are_the_same_the_config_s_names_tell_methods_apart(tmp_path: Path) -> None:
    runs = {"a": {"er": {}}, "b": {"fedprox": {}}}
    for name, methods in runs.items():
        make_run(tmp_path / name, {"methods": methods})
    own = tmp_path / "b" / "config.yaml"
    own.write_text(own.read_text().replace("fedprox:", "mypkg.er:ER:"))
    (found,) = group_runs(find_runs([tmp_path], []), [])
    assert [group.label for group in found.groups] == ["er", "mypkg.er:ER"]


def swept(directory: Path, *runs: tuple[Mapping[str, object], Mapping[str, str]]) -> list[ExperimentSetting]:
    """A sweep of these runs in this order, each with its overrides and its names on the axes."""
    lines = ["name: made", "runs:"]
    for number, (overrides, names) in enumerate(runs):
        folder = f"{len(runs) - number:02}"  # the order of paths is another one
        make_run(directory / folder, overrides)
        lines.append(f"  '{folder}': {{{', '.join(f'{axis}: {name!r}' for axis, name in names.items())}}}")
    (directory / "sweep.yaml").write_text("\n".join([*lines, ""]))
    return group_runs(find_runs([directory], []), [])


def test_rows_and_settings_have_the_sweep_s_order(tmp_path: Path) -> None:
    """By names the order would be fast, slow and DER, ER, FedAvg; by rate slow would be first."""
    methods: Mapping[str, object] = {"replay": {"er": {}}, "FL": {}, "DER": {"der": {}}}
    rates = {"slow": 0.5, "fast": 0.1}
    found = swept(
        tmp_path,
        *(
            ({"training.optimizer.lr": rate, "methods": block, "seed": seed}, {"pace": pace, "methods": name})
            for seed in (1, 0)
            for pace, rate in rates.items()
            for name, block in methods.items()
        ),
    )
    rows = [("replay", [0, 1]), ("FL", [0, 1]), ("DER", [0, 1])]
    assert shape(found) == [("slow", rows), ("fast", rows)]


def test_any_axis_of_choices_within_a_setting_names_its_rows(tmp_path: Path) -> None:
    """An axis that is a key of the config names no row, as its values alone say little; seeds are replicates."""
    found = swept(
        tmp_path / "choices",
        ({"methods": {"er": {}}}, {"seed": "0", "system": "replay"}),
        ({"methods": {"er": {}}, "seed": 1}, {"seed": "1", "system": "replay"}),
        ({}, {"seed": "0", "system": "nothing"}),
    )
    assert shape(found) == [("made", [("replay", [0, 1]), ("nothing", [0])])]
    found = swept(
        tmp_path / "keys",
        ({"methods": {"special": {"lam": 0.5}}}, {"methods.special.lam": "0.5"}),
        ({"methods": {"special": {"lam": 0.1}}}, {"methods.special.lam": "0.1"}),
    )
    assert shape(found) == [("made", [("SPECIAL lam=0.5", [0]), ("SPECIAL lam=0.1", [0])])]


def test_of_several_sweeps_each_says_whose_setting_it_is(tmp_path: Path) -> None:
    swept(tmp_path / "a", ({}, {"pace": "slow"}), ({"training.batch_size": 8}, {"pace": "fast"}))
    swept(tmp_path / "b", ({"clients.count": 5}, {"methods": "FL"}))
    path = tmp_path / "b" / "sweep.yaml"
    path.write_text(path.read_text().replace("name: made", "name: another"))
    found = group_runs(find_runs([tmp_path], []), [])
    assert [setting.title for setting in found] == ["made: slow", "made: fast", "another: made"]


def test_a_number_of_a_key_s_axis_is_called_with_the_key(tmp_path: Path) -> None:
    rates = (0.5, 0.1)
    found = swept(
        tmp_path, *(({"training.optimizer.lr": rate}, {"training.optimizer.lr": str(rate)}) for rate in rates)
    )
    assert [setting.title for setting in found] == ["lr 0.5", "lr 0.1"]
