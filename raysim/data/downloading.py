"""Downloads: complete files move to their place from a temporary folder, and progress is reported."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from threading import Event, Thread

SECONDS = 0.5  # between two progress reports
ARCHIVES = (".gz", ".zip", ".bz2", ".mat")

_report: ContextVar[Callable[[str], object]] = ContextVar("_report", default=lambda text: None)


@contextmanager
def downloads_reported(report: Callable[[str], object]) -> Iterator[None]:
    """Report the progress of downloads in this context: `report` is called with a text, from another thread."""
    token = _report.set(report)
    try:
        yield
    finally:
        _report.reset(token)


def report_progress(text: str) -> None:
    """Report the progress of other work on the data, in a context of `downloads_reported`."""
    _report.get()(text)


@contextmanager
def staged_download(name: str, root: Path, below: str) -> Iterator[Path]:
    """Yield a temporary folder to download a dataset to. If nothing fails, its files move to the root.

    The folder has links to the archives in the root and in its folder `below`, so they are not downloaded again.
    Other files in the root stay unchanged.

    Raises:
        OSError: the root cannot be written to.
    """
    root.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".downloading-", dir=root))
    try:
        for archive in {*root.glob("*"), *(root / below).glob("*")}:
            if archive.is_file() and archive.suffix in ARCHIVES:
                link = folder / archive.relative_to(root)
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(archive.resolve())
        with _reporting(name, folder):
            yield folder
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.is_symlink():
                (root / path.relative_to(folder)).parent.mkdir(parents=True, exist_ok=True)
                path.replace(root / path.relative_to(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _reporting(name: str, folder: Path) -> Iterator[None]:
    report, over = _report.get(), Event()

    def watch() -> None:
        while not over.wait(SECONDS):
            arrived = 0
            for path in folder.rglob("*"):
                with suppress(OSError):  # it was moved or deleted meanwhile
                    arrived += 0 if path.is_symlink() else path.stat().st_size * path.is_file()
            report(f"downloading {name}: {arrived / 2**20:.1f} MiB")

    report(f"downloading {name}")
    watching = Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()
