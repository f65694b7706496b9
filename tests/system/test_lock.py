"""Two processes never write into one directory."""

from collections.abc import Callable
from pathlib import Path

import pytest

import raysim
from raysim.config import Config
from raysim.engine.events import RoundDone
from raysim.engine.simulation import load_parts
from raysim.federation.federation import Federation
from raysim.models.flat import FlatModel
from raysim.system.errors import ConfigError, RunError
from raysim.system.files import lock_directory


class Intruder:
    """Tries to go on with a run after each of its rounds, while it is under way."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.told: list[str] = []

    def take(self, event: object) -> None:
        if isinstance(event, RoundDone):
            with pytest.raises(ConfigError) as refused:
                raysim.run(None, out=self.out, local=True, resume=True)
            self.told.append(str(refused.value))

    def say(self, text: str) -> None:
        """Nothing."""


def test_nobody_goes_on_with_a_run_that_is_under_way(tiny: Callable[..., Config], tmp_path: Path) -> None:
    """A run of 2 tasks of 2 rounds."""
    out = tmp_path / "run"
    intruder = Intruder(out)
    ended = raysim.run(tiny(), out=out, local=True, display=intruder)
    refusal = f"--out {out}: another run is at work there; wait for it, or give another --out"
    assert intruder.told == [refusal] * 4
    assert len((out / "rounds.jsonl").read_text().splitlines()) == 4
    assert raysim.run(None, out=out, local=True, resume=True) == ended  # it has let go


def test_who_was_refused_leaves_nothing(tiny: Callable[..., Config], tmp_path: Path) -> None:
    out = tmp_path / "run"
    with lock_directory(out, "run"), pytest.raises(ConfigError, match="another run is at work there"):
        raysim.run(tiny(), out=out, local=True)
    assert list(out.iterdir()) == []


def test_a_run_that_failed_there_while_another_read_its_data_keeps_its_directory(
    tiny: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --resume too, if there was no run yet."""
    for resume in (False, True):
        out = tmp_path / f"resume {resume}"

        def read(config: Config, out: Path = out) -> tuple[Federation, FlatModel]:
            monkeypatch.undo()  # this run is the other one
            with pytest.raises(RunError, match="diverged"):
                raysim.run(tiny(seed=5, training__optimizer={"lr": 1e30}), out=out, local=True)
            return load_parts(config)

        monkeypatch.setattr("raysim.launch.run.load_parts", read)
        with pytest.raises(ConfigError, match=rf"--out {out}: this directory is not empty, allowed: a new or empty"):
            raysim.run(tiny(), out=out, local=True, resume=resume)
        assert (raysim.load(out).seed, raysim.load(out).status) == (5, "failed")


def test_it_ends_with_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="x"), lock_directory(tmp_path, "run"):
        raise ValueError("x")
    with lock_directory(tmp_path, "run"):
        pass
