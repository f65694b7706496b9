"""rounds.jsonl: what plots over the course of a run are made of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from raysim.report.validation import first_problem
from raysim.system.errors import ConfigError


class Round(BaseModel):
    """One line: a server update. Bytes are of all clients together; accuracies are fractions, one per task.

    `so_far` is how many tasks, from the first, may have been seen by then; lines of older raysims do not say it.
    """

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    round: int
    tasks: list[int]
    so_far: int | None = None
    bytes_up: int
    bytes_down: int
    virtual_time: float | None = None
    evaluation: dict[str, list[float]] | None = None


def read_rounds(directory: Path) -> Sequence[Round]:
    """Return the rounds of a run in their order.

    Raises:
        ConfigError: there is no rounds.jsonl, or not one of raysim's.
    """
    path = directory / "rounds.jsonl"
    rounds = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: found bytes that are no UTF-8") from None
    for number, line in enumerate(lines, 1):
        try:
            rounds.append(Round.model_validate_json(line))
        except ValidationError as error:
            raise ConfigError(f"{path}:{number}: {first_problem(error)}") from None
    return rounds
