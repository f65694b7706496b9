"""What the methods' pages say that they send is what a run counts."""

import re
from collections.abc import Callable

import pytest
from pages import ROOT
from small_runs import config_keys, hyperparameters, small_run

from raysim.config import lookup

LINE = re.compile(r"[Uu]p (\d), down (\d)")


@pytest.mark.parametrize("name", list(lookup.table("method")))
def test_the_page_has_the_bytes_of_a_round(name: str, tiny: Callable, simulate: Callable) -> None:
    """Three clients, all in every round; in a task's second round, as vectors as long as the model per client."""
    page = (ROOT / "docs" / "methods" / f"{name}.md").read_text(encoding="utf-8")
    said, facts, more = LINE.findall(page.partition("## What it sends")[2]), small_run(name), config_keys(name)
    if facts.get("sends_at_end"):
        more |= {"training__rounds_per_task": 5}
    run = simulate(tiny(methods={name: hyperparameters(name)}, **more))
    model = run.simulation.model.weights().nbytes
    for row, (up, down) in ((run.rounds[1], said[0]), (run.rounds[3], said[-1])):
        assert row.bytes_up == 3 * (int(up) * model + facts.get("bytes_up", 0))
        assert row.bytes_down == 3 * (int(down) * model + facts.get("bytes_down", 0))
