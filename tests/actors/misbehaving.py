"""A method for tests: its clients fail, sleep or hoard as its keys say. Named in YAML as `misbehaving:Misbehaving`."""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch

from raysim.api import Broadcast, ClientHalf, Delta, Method, ServerHalf, Term


@dataclass(frozen=True, kw_only=True)
class Misbehaving(Method):
    """Misbehaving: client 1 does `what` in round 3."""

    what: Literal["raise", "send NaN", "die", "sleep", "stop"] = "raise"

    class Client(ClientHalf):
        method: Misbehaving

        def finish(self, client: Any, delta: Delta) -> tuple[Delta, dict[str, Term]]:
            if (client.id, client.round) != (1, 3):
                return delta, {}
            match self.method.what:
                case "raise":
                    raise KeyError("a mistake of my own")
                case "send NaN":
                    delta = Delta(delta.parameters * float("nan"), delta.buffers)
                case "die":
                    time.sleep(2)  # the events of the rounds before are on their way, if this is a whole run's process
                    os._exit(7)
                case "sleep":
                    time.sleep(600)
                case "stop":
                    breakpoint()
            return delta, {}


@dataclass(frozen=True, kw_only=True)
class Unstarted(Method):
    """Unstarted: a client can be made in the driver, which tries one, but not on a host."""

    class Client(ClientHalf):
        def __init__(self, name: str, method: Method) -> None:
            super().__init__(name, method)
            import ray  # not above: raysim sets Ray's variables before the driver imports it

            if ray.get_runtime_context().get_actor_id() is not None:
                raise ValueError("a first line\nand its last")


@dataclass(frozen=True, kw_only=True)
class Hoarder(Method):
    """Hoarder: every client keeps `kept` bytes of its own and sends eight numbers; the server mails `mailed` bytes."""

    kept: int = 0
    mailed: int = 0
    replies: ClassVar = {"digest": "mean"}

    class Client(ClientHalf):
        method: Hoarder

        def start(self, client: Any, message: Any) -> None:
            self.hoard = torch.ones(self.method.kept // 4)

        def finish(self, client: Any, delta: Delta) -> tuple[Delta, dict[str, Term]]:
            return delta, {"digest": Term(delta.parameters[:8])}

    class Server(ServerHalf):
        method: Hoarder

        def announce(self, server: Any) -> tuple[Any, Sequence[Broadcast]]:
            return torch.ones(self.method.mailed // 4), ()


@dataclass(frozen=True, kw_only=True)
class Slow(Method):
    """Slow: phases take real seconds longer, of which virtual time knows nothing."""

    client: int = 1  # the one that `seconds` are of; -1 is all of them
    seconds: float = 0.0
    others: float = 0.0  # those of the other clients
    log: str | None = None  # a file that every phase's client, process, start and end are written to

    class Client(ClientHalf):
        method: Slow

        def start(self, client: Any, message: None) -> None:
            self.began = time.time()

        def finish(self, client: Any, delta: Delta) -> tuple[Delta, dict[str, Term]]:
            chosen = client.id == self.method.client or self.method.client < 0
            time.sleep(self.method.seconds if chosen else self.method.others)
            if self.method.log is not None:
                with open(self.method.log, "a", encoding="utf-8") as file:
                    file.write(f"{client.id} {os.getpid()} {self.began} {time.time()}\n")
            return delta, {}


@dataclass(frozen=True, kw_only=True)
class Fragile(Method):
    """Fragile: a process dies when a client moves: once as it leaves, once as it arrives, once at home after it left.

    Every death leaves a file in `folder`, named for when it was, with the client in it; none happens twice.
    """

    folder: str
    after: int = 0  # the round from which on the last one dies

    class Client(ClientHalf):
        method: Fragile

        def start(self, client: Any, message: None) -> None:
            self.client, self.home, self.round = client.id, os.getpid(), client.round

        def state(self) -> dict[str, Any]:
            if self._within("give") and self._took_part():
                self._kill_once("as it leaves", os.getpid())
            return super().state()

        def restore(self, state: Any) -> None:
            super().restore(state)
            if self._within("perform") and self._took_part():
                self._kill_once("as it arrives", os.getpid())
                if self.round >= self.method.after:
                    self._kill_once("at home after it left", self.home)

        def _took_part(self) -> bool:
            """Return whether it knows its client: one may also move before its first phase."""
            return "client" in vars(self)

        def _within(self, function: str) -> bool:
            return any(frame.name == function for frame in traceback.extract_stack())

        def _kill_once(self, when: str, process: int) -> None:
            path = Path(self.method.folder, when)
            if not path.exists():
                path.write_text(str(self.client))
                os.kill(process, signal.SIGKILL)
