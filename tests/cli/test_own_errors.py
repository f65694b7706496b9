"""Mistakes in code of the user's own: its traceback, and then one line that says where in the run and in the file."""

import errno
import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np
import pytest
from small_configs import SMALL
from torch import Tensor, nn

import raysim
from raysim.api import ClientHalf, Delta, Method, Request, ServerHalf, Step, Term
from raysim.cli import main
from raysim.data.dataset import Dataset
from raysim.system.errors import RunError

CONFIG = SMALL | {"dataset": {**SMALL["dataset"], "train": 24, "test": 12}}


def fail() -> NoReturn:
    """What the components below call."""
    raise ZeroDivisionError("mine")


def broken_data(root: Path, download: bool) -> Dataset:
    fail()


def quitting_data(root: Path, download: bool) -> Dataset:
    sys.exit(0)


class Net(nn.Module):
    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.only = nn.Linear(features, classes)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            fail()
        out: Tensor = self.only(x)
        return out


def model(shape: tuple[int, ...], classes: int) -> nn.Module:
    return Net(shape[0], classes)


def stream(client: int, start: int) -> Iterator[tuple[np.ndarray[Any, Any], int]]:
    for position in count(start):
        if position == 7:  # of the second window
            fail()
        yield np.ones(6, np.float32), 0


def sampler(server: object, count: int, draws: object) -> list[int]:
    sys.exit("no more")


def here(client: Any) -> bool:
    return (client.id, client.round) == (1, 2)


@dataclass(frozen=True, kw_only=True)
class InAStep(Method):
    class Client(ClientHalf):
        def gradient(self, step: Step, gradient: Tensor) -> Tensor:
            if here(step.client):
                fail()
            return gradient


@dataclass(frozen=True, kw_only=True)
class Quits(Method):
    class Client(ClientHalf):
        def start(self, client: Any, message: Any) -> None:
            if here(client):
                sys.exit(7)


@dataclass(frozen=True, kw_only=True)
class Opens(Method):
    class Client(ClientHalf):
        def start(self, client: Any, message: Any) -> None:
            if here(client):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/data/log.txt")


@dataclass(frozen=True, kw_only=True)
class Asked(Method):
    replies: ClassVar = {"x": "mean"}

    class Client(ClientHalf):
        def measure(self, client: Any, message: Any) -> dict[str, Term]:
            if here(client):
                fail()
            return {"x": Term(client.model.parameters)}

    class Server(ServerHalf):
        def conclude(self, server: Any) -> Any:
            yield Request("measure")


@dataclass(frozen=True, kw_only=True)
class OnTheServer(Method):
    class Server(ServerHalf):
        def update(self, server: Any, delta: Delta, reply: Any) -> Delta:
            if server.round == 3:
                fail()
            return delta


@dataclass(frozen=True, kw_only=True)
class Unmade(Method):
    def __post_init__(self) -> None:
        fail()


@dataclass(frozen=True, kw_only=True)
class Pressed(Method):
    class Client(ClientHalf):
        def start(self, client: Any, message: Any) -> None:
            raise KeyboardInterrupt


OWN: dict[str, object] = {
    "asynchronous": {"window": 5, "windows": 3, "rounds_per_window": 2, "stream": f"{__name__}:stream"}
}
MINE = "ZeroDivisionError: mine"
DENIED = "PermissionError: [Errno 13] Permission denied: '/data/log.txt'"
FAILURES: dict[str, tuple[dict[str, object], str, str, str]] = {
    "a dataset": ({"dataset": {"name": f"{__name__}:broken_data"}}, MINE, "broken_data", "dataset broken_data"),
    "a dataset that ends the process": (
        {"dataset": {"name": f"{__name__}:quitting_data"}},
        "SystemExit: 0",
        "quitting_data",
        "dataset quitting_data",
    ),
    "a model": ({"model": {"name": f"{__name__}:model"}}, MINE, "Net.forward", "client 0, round 1"),
    "a stream": (
        {"scenario.boundaries": OWN, "training.rounds_per_task": None},
        MINE,
        "stream",
        "client 0, round 3",
    ),
    "a sampler": (
        {"participation": {"count": 1, "sampler": f"{__name__}:sampler"}},
        "SystemExit: no more",
        "sampler",
        "server, round 1",
    ),
    "a hook in a step": (
        {"methods": {f"{__name__}:InAStep": {}}},
        MINE,
        "InAStep.Client.gradient",
        "client 1, round 2",
    ),
    "a client that ends the process": (
        {"methods": {f"{__name__}:Quits": {}}},
        "SystemExit: 7",
        "Quits.Client.start",
        "client 1, round 2",
    ),
    "a file that a client may not open": (
        {"methods": {f"{__name__}:Opens": {}}},
        DENIED,
        "Opens.Client.start",
        "client 1, round 2",
    ),
    "an op": ({"methods": {f"{__name__}:Asked": {}}}, MINE, "Asked.Client.measure", "client 1, round 2"),
    "a server half": (
        {"methods": {f"{__name__}:OnTheServer": {}}},
        MINE,
        "OnTheServer.Server.update",
        "server, round 3",
    ),
    "a method": ({"methods": {f"{__name__}:Unmade": {}}}, MINE, "Unmade.__post_init__", ""),
}


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "tiny.yaml"
    path.write_text(json.dumps(CONFIG))
    return str(path)


@pytest.mark.parametrize("what", FAILURES)
def test_the_last_line_says_where(what: str, config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the run (client or server, and round) and in the user's code: the function called and the line that failed."""
    keys, said, function, where = FAILURES[what]
    overrides = [f"{key}={json.dumps(value)}" for key, value in keys.items()]
    assert main(["run", config, *overrides, "--out", str(tmp_path / "out"), "--local", "--quiet"]) == 1
    above, _, last = capsys.readouterr().err.rstrip("\n").rpartition("\n")
    assert above.startswith("Traceback (most recent call last):")
    raising = "raise PermissionError(" if said == DENIED else "sys.exit("
    mistakes = [number for number, line in enumerate(Path(__file__).read_text().splitlines(), 1) if raising in line]
    line = FAIL if said == MINE else "|".join(map(str, mistakes))
    place = rf"\({re.escape(function)}, {re.escape(__file__)}:({line})\)"
    assert re.fullmatch("; ".join(["the run failed: " + re.escape(said) + " " + place, *filter(None, [where])]), last)


FAIL = fail.__code__.co_firstlineno + 2


def test_a_check_fails_if_a_rehearsal_does(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["check", config, f'methods={{"{__name__}:OnTheServer": {{}}}}']
    place = rf"\(OnTheServer\.Server\.update, {re.escape(__file__)}:{FAIL}\); it failed in a rehearsal"
    for option, shown in (([], ["actors", "memory"]), (["--json"], [])):
        assert main([*asked, *option]) == 1
        output, errors = capsys.readouterr()
        assert [line.split()[0] for line in output.splitlines()][-2:] == shown
        assert errors.startswith("Traceback (most recent call last):")
        assert re.fullmatch(rf"the check failed: {MINE} {place}", errors.splitlines()[-1])


def test_a_run_of_a_sweep_that_ends_the_process_is_one_that_failed(config: str, tmp_path: Path) -> None:
    sets = {"quits": {"dataset": {"name": f"{__name__}:quitting_data"}}, "fine": {}}
    with pytest.raises(RunError, match=r"1 of 2 runs failed; the first was .*quits: SystemExit: 0 \(quitting_data, "):
        raysim.sweep({"name": "try", "base": CONFIG, "grid": {"what": sets}}, out=tmp_path / "out", local=True)
    assert raysim.load(tmp_path / "out" / "fine").status == "done"


def test_ctrl_c_in_a_method_is_ctrl_c(config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pressed = f'methods={{"{__name__}:Pressed": {{}}}}'
    assert main(["run", config, pressed, "--out", str(tmp_path / "out"), "--local", "--quiet"]) == 130
    assert capsys.readouterr().err == "no task was finished, so the accuracy matrix is empty\ninterrupted\n"


def test_the_innermost_place_is_named_and_a_checkpoint_beside_it(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    more = [f'methods={{"{__name__}:OnTheServer": {{}}}}', "checkpoint.every_rounds=1"]
    assert main(["run", config, *more, "--out", str(out), "--local", "--quiet"]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.endswith(f"; server, round 3; resume from round 2: raysim run --resume --out {out} --local --trust")
