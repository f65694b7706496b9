"""The children of a process, also on a system that shows a user only some processes."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

PROC = Path("/proc")


def find_children(pid: int | None = None, recursive: bool = False) -> list[psutil.Process]:
    """Return a process's children, or all its descendants; those that the system does not show are left out.

    psutil looks for them among all processes. With hidepid, Linux refuses to show the processes of other users. The
    process's own list of children is then the source.

    Args:
        pid: the process; None is this one.
        recursive: whether to return the children's children too, and so on.
    """
    try:
        return psutil.Process(pid).children(recursive=recursive)
    except psutil.Error:
        return [*_listed(os.getpid() if pid is None else pid, recursive)]


def _listed(pid: int, recursive: bool) -> Iterator[psutil.Process]:
    """Yield the children that the process's threads list."""
    for thread in (PROC / str(pid) / "task").glob("*/children"):
        with suppress(OSError, psutil.Error):  # the thread or the child has ended
            for child in map(int, thread.read_text().split()):
                yield psutil.Process(child)
                if recursive:
                    yield from _listed(child, recursive)
