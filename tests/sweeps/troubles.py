"""Methods for tests, named in YAML as `troubles:NAME`: one presses Ctrl-C, one makes a mistake. And a callback."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from raysim.api import ClientHalf, Method
from raysim.callbacks import Callback


@dataclass(frozen=True, kw_only=True)
class Pressing(Method):
    """Pressing: client 0 presses Ctrl-C in a round, so many times."""

    round: int = 1
    times: int = 1

    class Client(ClientHalf):
        method: Pressing

        def start(self, client: Any, message: Any) -> None:
            if (client.id, client.round) == (0, self.method.round):
                for _ in range(self.method.times):
                    os.kill(os.getpid(), signal.SIGINT)
                    time.sleep(0.1)


@dataclass(frozen=True, kw_only=True)
class Broken(Method):
    """Broken: a mistake in round 3."""

    class Client(ClientHalf):
        def start(self, client: Any, message: Any) -> None:
            if client.round == 3:
                raise KeyError("mine")


class Hindering(Callback):
    """Hinders the trials with a learning rate after a round: by a callback's stop, a stop file, or a full disk.

    The disk is full as long as the working directory has a file `full`.
    """

    def __init__(self, *, rate: float, how: Literal["stop", "file", "full"], at: int = 1) -> None:
        self.rate, self.how, self.at = rate, how, at

    def on_round(self, run: Any, done: Any) -> None:
        config = run.config
        if (config.training.optimizer.lr, config.evaluation.split, done.round) != (self.rate, "validation", self.at):
            return
        if self.how == "stop":
            run.stop("enough")
        elif self.how == "file":
            (run.directory / "stop").touch()
        elif Path("full").exists():
            raise OSError("no space left")
