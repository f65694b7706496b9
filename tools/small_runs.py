"""The small run of each method, for the tests and tools that run all methods.

A method's own test file says it, in `SMALL_RUN`, an expression without names. Its keys are optional:

- `hyperparameters`: those that make the method cheap to run, or steady at the tests' learning rates;
- `bytes_up`, `bytes_down`: the bytes per client and round besides vectors as long as the model;
- `sends_at_end`: whether a client sends something else when a task ends;
- `unsure_steps`, `unsure_bytes`: whether `raysim check` marks them as unsure, bytes if clients take part in turns;
- all others are keys of the config, with __ for dots, such as the `model` that a method needs.
"""

import ast
from functools import cache
from pathlib import Path
from typing import Any

from raysim.config.lookup import table

ALGORITHMS = Path(__file__).parents[1] / "tests" / "algorithms"
FACTS = ("hyperparameters", "bytes_up", "bytes_down", "sends_at_end", "unsure_steps", "unsure_bytes")


@cache
def small_run(name: str) -> dict[str, Any]:
    """The SMALL_RUN of a method's test file; empty if there is none."""
    file = ALGORITHMS / f"test_{name}.py"
    for statement in ast.parse(file.read_text(encoding="utf-8")).body if file.exists() else ():
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "SMALL_RUN":
            found: dict[str, Any] = eval(compile(ast.Expression(statement.value), file, "eval"), {})
            return found
    return {}


def config_keys(name: str) -> dict[str, Any]:
    """The overrides of data and model that a method needs; most need none."""
    return {key: value for key, value in small_run(name).items() if key not in FACTS}


def hyperparameters(name: str) -> dict[str, Any]:
    """The hyperparameters of a method's small run."""
    found: dict[str, Any] = small_run(name).get("hyperparameters", {})
    return found


MODELS: dict[str, dict[str, Any]] = {
    name: small_run(name)["model"] for name in table("method") if "model" in small_run(name)
}
"""By method: the model that it needs."""
PROMPTED = {name: model for name, model in MODELS.items() if "prompts" in model}
ADAPTED = {name: model for name, model in MODELS.items() if "adapters" in model}
