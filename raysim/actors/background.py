"""A cluster of this process's own that starts while the process still imports torch and reads data."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path

from raysim.actors import cluster
from raysim.actors.session import Session, open_session
from raysim.system.capacity import Capacity
from raysim.system.interrupts import STARTING, delay_interrupts


@contextmanager
def open_cluster(machine: Callable[[], Capacity], dashboard: bool, forked: bool) -> Iterator["EarlyCluster"]:
    """Begin to start a cluster on this machine; stop it at the end.

    A process that is to end before Ray has started must end at once (`__main__.py`), and another clears up after it.

    Args:
        machine: is called in the background; returns the resources that Ray is given.
        dashboard, forked: see `cluster.own_cluster`.

    Raises:
        ConfigError: see `cluster.own_cluster`.
    """
    cluster.prepare_own(dashboard)
    with open_session(forked) as session, ExitStack() as opened:
        with delay_interrupts():
            early = EarlyCluster(session, machine, dashboard)
            opened.callback(early.end)
        yield early


class EarlyCluster:
    """A Ray that one thread starts and stops: the kernel ends Ray's processes with the thread that has started them."""

    def __init__(self, session: Session, machine: Callable[[], Capacity], dashboard: bool) -> None:
        self._session, self._machine, self._dashboard = session, machine, dashboard
        self._started: Future[None] = Future()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._live, name=STARTING, daemon=True)
        self._thread.start()

    @contextmanager
    def running(self, file: Path, command: str) -> Iterator[None]:
        """Wait until the cluster has started; stop it at the end.

        Args:
            file, command: see `cluster.cluster_of`.

        Raises:
            RunError: Ray could not start.
        """
        self._session.announce(file, command)
        try:
            self._started.result()
            yield
        finally:
            self.end()

    def end(self) -> None:
        """Stop Ray, or abandon the session, for which nobody waits then, if Ray is still starting."""
        with delay_interrupts():
            self._over.set()
            if self._started.done():
                self._thread.join()
            else:
                self._session.abandon()

    def _live(self) -> None:
        try:
            cluster.start_own(self._machine(), self._dashboard, self._session)
            self._started.set_result(None)
            self._over.wait()
        except BaseException as error:
            self._started.set_exception(error)
        finally:
            cluster.stop_own()
