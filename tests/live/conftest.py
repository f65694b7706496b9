"""Small runs, and copies of them as they are while they run."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browser import Browser
from followed import APART, TWO_TASKS

import raysim
from raysim.live import http_server as serving
from raysim.live import lock_watch
from raysim.live import watched as watching


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    opened = Browser()
    yield opened
    opened.close()


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the files often, so that no test waits."""
    for module in (serving, watching):
        monkeypatch.setattr(module, "SECONDS", 0.05)
    monkeypatch.setattr(lock_watch, "SECONDS_BETWEEN_LOOKS", 0.0)


@pytest.fixture(scope="session")
def two_tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two tasks with four rounds each, evaluated every three rounds, by two protocols."""
    out = tmp_path_factory.mktemp("live") / "two"
    raysim.run(TWO_TASKS, out=out, local=True)
    return out


@pytest.fixture(scope="session")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run in which clients change their tasks at different times, with FedBuff."""
    out = tmp_path_factory.mktemp("live") / "apart"
    raysim.run(APART, out=out, local=True)
    return out


@pytest.fixture
def copied(tmp_path: Path) -> Callable[..., Path]:
    """A function that copies a run's first rounds into a new directory: without an end, as while it runs."""

    def copy(run: Path, rounds: int | None = None, **config: object) -> Path:
        there = tmp_path / "run"
        there.mkdir(exist_ok=True)
        text = (run / "config.yaml").read_text()
        for key, value in config.items():
            text = "".join(
                f"{key}: {json.dumps(value)}\n" if line.startswith(f"{key}:") else line
                for line in text.splitlines(keepends=True)
            )
        (there / "config.yaml").write_text(text)
        (there / "clients.json").write_bytes((run / "clients.json").read_bytes())
        lines = (run / "rounds.jsonl").read_bytes().splitlines(keepends=True)
        (there / "rounds.jsonl").write_bytes(b"".join(lines[:rounds]))
        return there

    return copy
