"""Downloads: complete files move to their place from a temporary folder, with their progress."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

from raysim.system.progress import current_tell

SECONDS = 0.5  # between two looks at how much has arrived
MB = 1_000_000
ARCHIVES = (".gz", ".zip", ".bz2", ".mat")


@contextmanager
def staged_download(name: str, root: Path, below: str, size: int) -> Iterator[Path]:
    """Yield a temporary folder to download a dataset of `size` MB to. If nothing fails, its files move to the root.

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
        with _telling(name, folder, size):
            yield folder
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.is_symlink():
                (root / path.relative_to(folder)).parent.mkdir(parents=True, exist_ok=True)
                path.replace(root / path.relative_to(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _telling(name: str, folder: Path, size: int) -> Iterator[None]:
    """Tell how much of a dataset has arrived in a folder. Its size is rounded, and unpacked files come on top."""
    tell, over = current_tell(), Event()

    def watch() -> None:
        while not over.wait(SECONDS):
            arrived = 0
            for path in folder.rglob("*"):
                with suppress(OSError):  # it was moved or deleted meanwhile
                    arrived += 0 if path.is_symlink() else path.stat().st_size * path.is_file()
            megabytes = min(arrived / MB, size)
            tell(f"downloading {name}: {megabytes:.0f} of {size} MB", megabytes / size)

    tell(f"downloading {name}: {size} MB", 0.0)
    watching = Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()
