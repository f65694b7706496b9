"""Methods for tests, named in YAML as `troubles:NAME`: one presses Ctrl-C, one makes a mistake."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from typing import Any

from raysim.api import ClientHalf, Method


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
