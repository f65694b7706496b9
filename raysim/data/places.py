"""Where a dataset's files are, for `raysim list datasets NAME`."""

from collections.abc import Iterable, Iterator

from raysim.data import DOWNLOADS
from raysim.data.loading import choose_root

CHANGE = "dataset.root or RAYSIM_DATA is another folder"


def describe_files(name: str, keys: Iterable[str]) -> Iterator[str]:
    """Yield a line on the files of a dataset with these keys, or none if it has no files."""
    _, root = choose_root(None)
    if name in DOWNLOADS:
        where, size = DOWNLOADS[name]
        places = ", ".join(f"{root}/{one}" for one in where.split(", "))
        yield f"{'files':<16} {places}, about {size} MB to download; {CHANGE}"
    elif "path" in keys:
        yield f"{'files':<16} yours; a relative path starts at {root}; {CHANGE}"
