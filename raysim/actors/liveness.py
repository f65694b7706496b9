"""Notice within seconds that a cluster has ended or cannot be reached, while waiting for its answers."""

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from threading import Thread
from typing import Any

import psutil
import ray

from raysim.system.errors import Lost, RunError

EVERY = 5  # seconds between two looks at a joined cluster, and that its answer may take
SILENCE = 40  # seconds without an answer after which the run ends; Ray (2.60) ends this process after 60
ANSWER = 5  # seconds to wait for an answer that is not needed
SETTLING = 0.5  # seconds in which a raylet ends after its workers
STEP, STEPS = 0.1, 10  # seconds of a wait that signals cannot interrupt, and the number of such waits in a second


class Contact:
    """Whether a cluster that this process has joined can still be reached.

    Ray does not report it, and after a minute ends the process.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._address, self._where = address, (host.strip("[]"), int(port))
        self._next, self._silent_since = time.monotonic(), 0.0

    @property
    def silent(self) -> bool:
        """Whether the cluster did not answer when it was last asked."""
        return self._silent_since > 0

    def check(self) -> bool:
        """Return whether the cluster answers, or did a few seconds ago.

        Raises:
            RunError: it has not for too long.
        """
        if time.monotonic() < self._next:
            return True
        try:
            socket.create_connection(self._where, timeout=EVERY).close()
        except OSError as error:
            self._silent_since = self._silent_since or time.monotonic()
            silent = time.monotonic() - self._silent_since
            if silent > SILENCE:
                raise RunError(
                    f"the cluster at {self._address} has not answered for {silent:.0f} s ({error}): it ended, or the "
                    "network to it is cut; go on when `ray status` shows this machine, if need be after `ray start`"
                ) from None
            return False
        self._next, self._silent_since = time.monotonic() + EVERY, 0.0
        return True


OWN: list[psutil.Process] = []  # the processes without which the cluster that this process has started has ended
JOINED: list[Contact] = []  # with the cluster that this process has joined


def arriving(stream: Any) -> Iterator[Any]:
    """Yield a stream's references as they arrive, and None after every second in which none does.

    Raises as `check` does.
    """
    while True:
        check()
        ready = wait_a_second([stream])
        try:
            yield next(stream) if ready else None
        except StopIteration:
            return


def wait(references: Sequence[Any]) -> Any:
    """Return the first of some references that is ready. Raises as `check` does."""
    while True:
        check()
        if ready := wait_a_second(references):
            return ready[0]


def check() -> bool:
    """Return whether the cluster can be reached.

    Raises:
        Lost: it is this process's own, and has ended.
        RunError: it is a joined one, and has not answered for too long.

    Ray (2.60) takes a minute to notice the loss of its GCS, and then ends this process. After the loss of the raylet it
    does so as soon as anything is put into the object store or fetched from it; or at once, if the raylet still told
    the GCS, as it does where its runtime environment agent is lost.
    """
    if own_has_ended():
        raise Lost("the cluster", "one of Ray's own processes ended (killed, crashed, or out of memory)")
    return all(contact.check() for contact in JOINED)


def cut_off() -> bool:
    """Return whether the joined cluster, if there is one, did not answer when it was last asked."""
    return any(contact.silent for contact in JOINED)


def settle() -> None:
    """After the loss of an actor, wait a moment and raise Lost if the cluster that this process has started ends, too.

    Otherwise one loss would count twice, and the next call of Ray would end this process.
    """
    limit = time.monotonic() + SETTLING
    while OWN and not own_has_ended() and time.monotonic() < limit:
        time.sleep(0.02)
    check()


def reach() -> None:
    """Wait until the cluster can be reached. Raises as `check` does."""
    while not check():
        time.sleep(1)


def ask(request: Callable[[], object]) -> None:
    """Make a request whose result is not needed, without waiting for a cluster that has ended or is cut off.

    Ray would wait for a minute.
    """

    def try_to() -> None:
        with suppress(Exception):  # the cluster ends
            request()

    if own_has_ended() or cut_off():
        return
    asking, limit = Thread(target=try_to, daemon=True), time.monotonic() + ANSWER
    asking.start()
    while asking.is_alive() and not own_has_ended() and time.monotonic() < limit:
        asking.join(0.05)


def own_has_ended() -> bool:
    """Return whether the cluster that this process has started, if any, has lost a process that it needs."""
    try:
        return any(process.status() == psutil.STATUS_ZOMBIE for process in OWN)
    except psutil.NoSuchProcess:
        return True


def wait_a_second(references: Sequence[Any]) -> list[Any]:
    """Return a list of the first reference that is ready within a second; an empty one if none is.

    Python handles signals only between two calls of Ray (2.60). Two presses of Ctrl-C during one call would be one.
    """
    for _ in range(STEPS):
        ready, _waiting = ray.wait(list(references), timeout=STEP)
        if ready:
            return list(ready)
    return []
