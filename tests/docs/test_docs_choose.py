"""Which method should I use? The page's tables are those of the methods and the leaderboard of now."""

import method_chooser
import pytest
from pages import ROOT


def test_the_tables_are_those_of_now() -> None:
    page = (ROOT / "docs" / "choose.md").read_text(encoding="utf-8")
    assert page == method_chooser.insert_tables(page), "run `make docs`"


@pytest.mark.parametrize(
    ("name", "stores", "boundaries", "waits"),
    [
        ("er", True, "none", False),
        ("gpm", False, "clients", False),
        ("cfed", False, "server", True),
        ("scaffold", False, "none", True),
        ("re_fed", True, "clients", False),
    ],
)
def test_what_a_method_needs(name: str, stores: bool, boundaries: str, waits: bool) -> None:
    """Read off the papers: ER keeps samples, GPM keeps bases for each task, and CFeD's server asks at a task's end."""
    choice = next(choice for choice in method_chooser.read_choices() if choice.name == name)
    assert (choice.stores_samples, choice.boundaries, "barrier" in choice.needs) == (stores, boundaries, waits)


def test_a_better_row_of_the_same_method_counts() -> None:
    """The leaderboard's page: DER++, ER and GPM share three places on rotations. DER is in group 4."""
    choice = next(choice for choice in method_chooser.read_choices() if choice.name == "der")
    assert choice.ranks["new domains"] == 2.0
