"""The rounds of a finished run: the lines of rounds.jsonl that plots are drawn from."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from raysim.records.result import first_problem
from raysim.system.errors import ConfigError
from raysim.system.files import read_whole


class RoundRecord(BaseModel):
    """One line of rounds.jsonl: an update of the server's model.

    Attributes:
        round: the number of the round, from 1.
        tasks: the tasks that clients trained on.
        so_far: how many tasks, from the first, may have been seen by then; older versions did not write it.
        bytes_up: the bytes that all clients sent.
        bytes_down: the bytes that all clients received.
        seconds: the time of the round.
        staleness: for each update, the server updates since its client was sent the model.
        virtual_time: the virtual time of the round in seconds.
        dispatches: for each client that was sent the model: client, when sent, when back, what became of its update.
        memory: the samples that memories hold.
        evaluation: the accuracy on each task, by protocol, as fractions.
        profile: the seconds of each part of the round.
    """

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    round: int
    tasks: list[int]
    so_far: int | None = None
    bytes_up: int
    bytes_down: int
    seconds: float | None = None
    staleness: list[int] = []
    virtual_time: float | None = None
    dispatches: list[tuple[int, float, float, str]] | None = None
    memory: list[list[int]] | None = None
    evaluation: dict[str, list[float]] | None = None
    profile: dict[str, float] | None = None


def read_rounds(directory: Path) -> Sequence[RoundRecord]:
    """Return the rounds of a run in their order.

    Raises:
        ConfigError: there is no rounds.jsonl, or not one of raysim's.
    """
    path = directory / "rounds.jsonl"
    rounds: list[RoundRecord] = []
    try:
        for line in read_whole(path).decode("utf-8").splitlines():
            rounds.append(RoundRecord.model_validate_json(line))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: found bytes that are no UTF-8") from None
    except ValidationError as error:
        raise ConfigError(f"{path}:{len(rounds) + 1}: {first_problem(error)}") from None
    return rounds
