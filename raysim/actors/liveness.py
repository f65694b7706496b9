"""What this process knows of its cluster. Functions that wait, but end within seconds if the cluster is lost.

Ray (2.60) ends this process:
- a minute after the GCS was lost,
- at the next use of the object store after the raylet was killed,
- at once if the raylet ended and reported this to the GCS, for example because its runtime environment agent was lost.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

import psutil
import ray

from raysim.actors import failures
from raysim.system.errors import Lost, RunError

if TYPE_CHECKING:
    from raysim.actors.fork_server import ForkServer

Answer = TypeVar("Answer")

EVERY = 5  # seconds between two checks of a joined cluster, and the time limit for its answer
SILENCE = 40  # seconds without an answer after which the run ends; Ray (2.60) ends this process after 60
ANSWER = 5  # seconds that `ask` waits for its request
SETTLING = 0.5  # seconds that a raylet may take to end after its workers
STEP, STEPS = 0.1, 10  # seconds of a wait that signals cannot interrupt, and the number of such waits in a second


class Cluster:
    """The cluster of this process. If the user's code started or joined it, raysim cannot watch its processes.

    Args:
        processes: the processes that the cluster cannot run without; empty if this process did not start the cluster.
        forks: its fork server, if it has one.
    """

    def __init__(self, processes: Sequence[psutil.Process] = (), forks: ForkServer | None = None) -> None:
        self.processes, self.forks = processes, forks
        self.silent = False  # whether the cluster did not answer the last check

    @property
    def ended(self) -> bool:
        """Whether the cluster has lost a process that it needs."""
        try:
            return any(process.status() == psutil.STATUS_ZOMBIE for process in self.processes)
        except psutil.NoSuchProcess:
            return True

    def check(self) -> bool:
        """Return whether the cluster can be reached. Raise Lost if it has ended."""
        if self.ended:
            process = "one of Ray's own processes"
            how = failures.killed_for_memory(process) or f"{process} ended (killed, crashed, or out of memory)"
            raise Lost("the cluster", how)
        return True


class JoinedCluster(Cluster):
    """A cluster that this process has joined.

    Args:
        address: HOST:PORT of its GCS.
    """

    def __init__(self, address: str) -> None:
        super().__init__()
        host, _, port = address.rpartition(":")
        self._address, self._socket = address, (host.strip("[]"), int(port))
        self._next, self._silent_since = time.monotonic(), 0.0

    def check(self) -> bool:
        """Return whether the cluster has answered in the last seconds.

        Raises:
            RunError: the cluster has been silent for SILENCE seconds.
        """
        if time.monotonic() < self._next:
            return True
        try:
            socket.create_connection(self._socket, timeout=EVERY).close()
        except OSError as error:
            if not self.silent:
                self.silent, self._silent_since = True, time.monotonic()
            silent = time.monotonic() - self._silent_since
            if silent > SILENCE:
                raise RunError(
                    f"the cluster at {self._address} has not answered for {silent:.0f} s ({error}): it ended, or the "
                    "network to it is cut; resume the run when `ray status` lists this machine (`ray start` adds it)"
                ) from None
            return False
        self.silent, self._next = False, time.monotonic() + EVERY
        return True


CURRENT = Cluster()


def arriving(stream: Any) -> Iterator[Any]:
    """Yield a stream's references as they arrive, and None after every second without a reference.

    Raises the errors of `wait`.
    """
    while True:
        CURRENT.check()
        ready = wait_a_second([stream])
        try:
            yield next(stream) if ready else None
        except StopIteration:
            return


def wait(references: Sequence[Any]) -> Any:
    """Return the first of some references that is ready.

    Raises:
        Lost: the cluster that this process has started has ended.
        RunError: the cluster that this process has joined has not answered for too long.
    """
    while True:
        CURRENT.check()
        if ready := wait_a_second(references):
            return ready[0]


def wait_a_second(references: Sequence[Any]) -> list[Any]:
    """Wait up to a second. Return a list with the first reference that is ready, or an empty list.

    Python handles signals only between two calls of Ray (2.60). Two presses of Ctrl-C in one call would count as one.
    """
    for _ in range(STEPS):
        ready, _waiting = ray.wait(list(references), timeout=STEP)
        if ready:
            return list(ready)
    return []


def settle() -> None:
    """After the loss of an actor, wait a moment for the end of the cluster. Raise Lost if the cluster has ended, too.

    Without this wait, one loss could count twice, and the next call of Ray could end this process.
    """
    limit = time.monotonic() + SETTLING
    while CURRENT.processes and not CURRENT.ended and time.monotonic() < limit:
        time.sleep(0.02)
    CURRENT.check()


def answer(request: Callable[[], Answer]) -> Answer:
    """Return the answer to a request that Ray sends to the GCS. Raises the errors of `wait`.

    If a joined cluster does not answer, Ray (2.60) waits for a minute, and then ends this process without a message.
    """
    if not isinstance(CURRENT, JoinedCluster):
        return request()
    answers: SimpleQueue[Answer | Exception] = SimpleQueue()

    def ask_for_it() -> None:
        try:
            answers.put(request())
        except Exception as error:
            answers.put(error)

    Thread(target=ask_for_it, daemon=True).start()
    while True:
        with suppress(Empty):
            found = answers.get(timeout=STEP)
            if isinstance(found, Exception):
                raise found
            return found
        CURRENT.check()


def reach() -> None:
    """Wait until the cluster can be reached. Raises the errors of `wait`."""
    while not CURRENT.check():
        time.sleep(1)


def ask(request: Callable[[], object]) -> None:
    """Make a request without a result. Ray would wait a minute for a cluster that has ended or is cut off."""

    def try_to() -> None:
        with suppress(Exception):  # the cluster is ending
            request()

    if CURRENT.ended or CURRENT.silent:
        return
    asking, limit = Thread(target=try_to, daemon=True), time.monotonic() + ANSWER
    asking.start()
    while asking.is_alive() and not CURRENT.ended and time.monotonic() < limit:
        asking.join(0.05)
