"""The checks of custom halves find nothing wrong in any built-in method, and move none of its bits."""

import pytest
from small_runs import config_keys, hyperparameters

from raysim.config.lookup import table
from raysim.engine import exchange, growing_state, hook_calls, host, phases, simulation
from raysim.engine.events import Caution

CHEAP = ("ewc", "scaffold", "er")
METHODS = [name if name in CHEAP else pytest.param(name, marks=pytest.mark.grid) for name in table("method")]


@pytest.mark.parametrize("name", METHODS)
def test_a_built_in_method_passes_the_checks_of_custom_code(tiny, simulate, monkeypatch, name):
    monkeypatch.setattr(growing_state, "LEAST", 0)
    keys = {"training__rounds_per_task": 10, "methods": {name: hyperparameters(name)}} | config_keys(name)
    local = {} if "evaluation__model" in keys else {"evaluation__model": "local"}
    expected = simulate(tiny(**keys, **local))
    for module in (exchange, hook_calls, host, phases, simulation):
        monkeypatch.setattr(module, "is_custom", lambda part: True)
    found = simulate(tiny(**keys, **local))
    assert not [event for event in found.events if isinstance(event, Caution)]
    assert found.sha256 == expected.sha256
    assert [round.records for round in found.rounds] == [round.records for round in expected.rounds]
