"""The checks of custom halves find nothing wrong in any built-in method, and move none of its bits."""

import pytest
from small_runs import config_keys, hyperparameters

from raysim.config.lookup import table
from raysim.engine import exchange, hook_calls, host, phases, simulation

CHEAP = ("ewc", "scaffold", "er")
METHODS = [name if name in CHEAP else pytest.param(name, marks=pytest.mark.grid) for name in table("method")]


@pytest.mark.parametrize("name", METHODS)
def test_a_built_in_method_passes_the_checks_of_custom_code(tiny, simulate, monkeypatch, name):
    keys = {"training__rounds_per_task": 2, "methods": {name: hyperparameters(name)}} | config_keys(name)
    local = {} if "evaluation__model" in keys else {"evaluation__model": "local"}
    expected = simulate(tiny(**keys, **local))
    for module in (exchange, hook_calls, host, phases, simulation):
        monkeypatch.setattr(module, "is_custom", lambda part: True)
    found = simulate(tiny(**keys, **local))
    assert found.sha256 == expected.sha256
    assert [round.records for round in found.rounds] == [round.records for round in expected.rounds]
