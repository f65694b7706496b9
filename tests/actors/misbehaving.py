"""A method for tests: its clients fail, sleep or hoard as its keys say. Named in YAML as `misbehaving:Misbehaving`."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch

from raysim.api import ClientHalf, Delta, Method, Post, ServerHalf, Term


@dataclass(frozen=True, kw_only=True)
class Misbehaving(Method):
    """Misbehaving: client 1 does `what` in round 3."""

    what: Literal["raise", "send NaN", "die", "sleep"] = "raise"

    class Client(ClientHalf):
        knobs: Misbehaving

        def finish(self, client: Any, delta: Delta) -> tuple[Delta, dict[str, Term]]:
            if (client.id, client.round) != (1, 3):
                return delta, {}
            match self.knobs.what:
                case "raise":
                    raise KeyError("a mistake of my own")
                case "send NaN":
                    delta = Delta(delta.parameters * float("nan"), delta.buffers)
                case "die":
                    os._exit(7)
                case "sleep":
                    time.sleep(600)
            return delta, {}


@dataclass(frozen=True, kw_only=True)
class Hoarder(Method):
    """Hoarder: every client keeps `kept` bytes of its own and sends eight numbers; the server mails `mailed` bytes."""

    kept: int = 0
    mailed: int = 0
    replies: ClassVar = {"digest": "mean"}

    class Client(ClientHalf):
        knobs: Hoarder

        def start(self, client: Any, mail: Any) -> None:
            self.hoard = torch.ones(self.knobs.kept // 4)

        def finish(self, client: Any, delta: Delta) -> tuple[Delta, dict[str, Term]]:
            return delta, {"digest": Term(delta.parameters[:8])}

    class Server(ServerHalf):
        knobs: Hoarder

        def announce(self, server: Any) -> tuple[Any, Sequence[Post]]:
            return torch.ones(self.knobs.mailed // 4), ()


@dataclass(frozen=True, kw_only=True)
class Slow(Method):
    """Slow: one client's phases take real seconds longer, of which virtual time knows nothing."""

    client: int = 1
    seconds: float = 0.0
    log: str | None = None  # a file that every phase's client, process, start and end are written to

    class Client(ClientHalf):
        knobs: Slow

        def start(self, client: Any, mail: None) -> None:
            self.began = time.time()

        def finish(self, client: Any, delta: Delta) -> tuple[Delta, dict[str, Term]]:
            if client.id == self.knobs.client or self.knobs.client < 0:
                time.sleep(self.knobs.seconds)
            if self.knobs.log is not None:
                with open(self.knobs.log, "a", encoding="utf-8") as file:
                    file.write(f"{client.id} {os.getpid()} {self.began} {time.time()}\n")
            return delta, {}
