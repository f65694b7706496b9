"""Which method should I use? The page's tables are those of the methods and the leaderboard of now."""

import method_chooser
import pytest
from pages import ROOT
from small_runs import MODELS

from raysim.config import load
from raysim.engine.compatibility import check_methods
from raysim.engine.memory_choice import choose_memory


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
        ("nccl", True, "clients", False),  # its memory is filled when a task ends
    ],
)
def test_what_a_method_needs(name: str, stores: bool, boundaries: str, waits: bool) -> None:
    """Read off the papers: ER keeps samples, GPM keeps bases for each task, and CFeD's server asks at a task's end."""
    choice = next(choice for choice in method_chooser.read_choices() if choice.name == name)
    assert (choice.stores_samples, choice.boundaries, "barrier" in choice.needs) == (stores, boundaries, waits)


def test_a_better_row_of_the_same_method_counts() -> None:
    """The leaderboard's page: all 26 methods share the first group on rotated digits, and six on rotated MNIST. So DER
    and DER++ both have (13.5 + 3.5) / 2. DER++ is 1st and 3rd, and DER 13th and 5th.
    """
    choice = next(choice for choice in method_chooser.read_choices() if choice.name == "der")
    place = choice.places["new domains"]
    assert (place.shared, place.own, place.row) == (8.5, 2, "DER++")


def test_methods_are_compared_with_fedavg_and_not_with_another_row_without_methods() -> None:
    """Shared has no methods either. On new classes it shares a group with FedYogi, which is ahead of FedAvg."""
    question = "| Task ends are unknown, and no samples are stored |"
    row = next(line for line in method_chooser.render_tables().splitlines() if line.startswith(question))
    assert row.split(" | ")[2].startswith("[`fedyogi`]")


@pytest.mark.parametrize("question", [question for question in method_chooser.QUESTIONS if "unknown" in question])
def test_methods_for_unknown_ends_of_tasks_can_run_without_them(question: str) -> None:
    """`check` refuses others: with asynchronous boundaries neither the server nor the clients see a task end."""
    fitting = [one for one in method_chooser.read_choices() if method_chooser.QUESTIONS[question](one)]
    assert fitting
    hidden = {
        "scenario.boundaries": {"asynchronous": {"window": 50, "rounds_per_window": 2}},
        "training.rounds_per_task": None,
        "training.logits": "all",
    }
    for choice in fitting:
        source = choice.name if choice.name in MODELS else "quickstart"  # prompts need a transformer
        config = load(source, {"methods": {choice.name: {}}, **hidden})
        choose_memory(config, check_methods(config))
