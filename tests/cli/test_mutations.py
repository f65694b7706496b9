"""Whatever is done to a good config, `check` and `run --local` do it or say in one line what is wrong."""

import contextlib
import io
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from mutations import mutated

from raysim.cli import main

LIMIT = 60  # seconds until a hang is a hang
LONGEST = 2000  # characters of a line that a person can still read

fixed = settings(
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@contextlib.contextmanager
def _no_longer_than(seconds: float) -> Iterator[None]:
    def ring(signum: int, frame: object) -> None:
        raise AssertionError(f"no answer in {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def answer(config: bytes, *command: str) -> tuple[int, str, str]:
    """The exit status of a command with this config, and what it wrote to stdout and stderr."""
    Path("run.yaml").write_bytes(config)
    output, errors = io.StringIO(), io.StringIO()
    with _no_longer_than(LIMIT), contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        status = main([command[0], "run.yaml", *command[1:]])
    return status, output.getvalue(), errors.getvalue()


def is_one_line(text: str) -> bool:
    return text.endswith("\n") and text[:-1].isprintable() and 0 < len(text) < LONGEST


@settings(fixed, max_examples=100)
@given(mutated(most=3, huge=True))
def test_check_estimates_or_says_what_is_wrong(config: bytes) -> None:
    estimate(config)


@pytest.mark.soak
@settings(fixed, max_examples=300)
@given(mutated(most=3, huge=True))
def test_so_it_does_with_more_configs(config: bytes) -> None:
    estimate(config)


def estimate(config: bytes) -> None:
    status, output, errors = answer(config, "check")
    if status == 0:
        assert errors == ""
        assert output.startswith("run ")
    else:
        assert (status, output) == (2, "")
        assert is_one_line(errors)


@settings(fixed, max_examples=20)
@given(mutated(most=1, huge=False))
def test_a_run_ends_or_says_what_is_wrong(config: bytes) -> None:
    status, output, errors = answer(config, "run", "--local", "--quiet", "--out", "out")
    assert output == ""
    if status == 0:
        assert errors == ""
        assert Path("out/model.pt").exists()
    else:
        assert status in (1, 2)
        assert is_one_line(errors)
        assert Path("out").exists() == (status == 1)  # nothing is left behind where nothing was started
    shutil.rmtree("out", ignore_errors=True)
