"""Downloads: into a folder of their own, from which whole files take their places, and said how far they are."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from threading import Event, Thread

SECONDS = 0.5  # between two looks at what has arrived
ARCHIVES = (".gz", ".zip", ".bz2", ".mat")

_tell: ContextVar[Callable[[str], object]] = ContextVar("_tell", default=lambda text: None)


@contextmanager
def downloads_told(tell: Callable[[str], object]) -> Iterator[None]:
    """Have `tell` called, from another thread, with what is being downloaded in this context and how far it is."""
    token = _tell.set(tell)
    try:
        yield
    finally:
        _tell.reset(token)


@contextmanager
def arriving_whole(name: str, root: Path, below: str) -> Iterator[Path]:
    """Yield a folder to download a data set to, as if it were the root; if nothing fails, its files move there.

    Archives that lie in the root, or in the folder `below` it, are in it too. What else is there stays as it is.

    Raises OSError where the root cannot be written to.
    """
    root.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".downloading-", dir=root))
    try:
        for known in {*root.glob("*"), *(root / below).glob("*")}:
            if known.is_file() and known.suffix in ARCHIVES:
                place = folder / known.relative_to(root)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(known.resolve())
        with _watched(name, folder):
            yield folder
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.is_symlink():
                (root / path.relative_to(folder)).parent.mkdir(parents=True, exist_ok=True)
                path.replace(root / path.relative_to(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _watched(name: str, folder: Path) -> Iterator[None]:
    tell, over = _tell.get(), Event()

    def watch() -> None:
        while not over.wait(SECONDS):
            arrived = 0
            for path in folder.rglob("*"):
                with suppress(OSError):  # it was moved or deleted meanwhile
                    arrived += 0 if path.is_symlink() else path.stat().st_size * path.is_file()
            tell(f"downloading {name}: {arrived / 2**20:.1f} MiB")

    tell(f"downloading {name}")
    watching = Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()
