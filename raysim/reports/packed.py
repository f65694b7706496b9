"""Packed results: the finished runs of a sweep in one file of compressed JSON lines, NAME.jsonl.gz.

The first line is a header, and each other line is a run. tools/pack_results.py writes such files. Their runs are read
as if they were in the directory NAME; nothing is unpacked to disk.
"""

import gzip
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from raysim.records.result import Result, first_problem
from raysim.reports.round_records import RoundRecord
from raysim.sweeps.directory import SweepLabels
from raysim.system.errors import ConfigError

SUFFIX = ".jsonl.gz"
FORMAT = 1
LONGEST_LINE = 10_000_000  # bytes: a small compressed file can stand for gigabytes


def _check_inside(path: str) -> str:
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts or "\0" in path:
        raise ValueError(f"got {path!r}, expected a path below the sweep's directory")
    return path


class Header(BaseModel):
    """The first line of a packed file.

    Attributes:
        format: the version of the format.
        name: the name of the directory that was packed.
        sweep: the content of its sweep.yaml, if it has one.
    """

    model_config = ConfigDict(extra="forbid")

    format: int
    name: str
    sweep: SweepLabels | None


class PackedRun(BaseModel):
    """A run's line of a packed file.

    Attributes:
        path: the run's folder below the sweep's directory.
        config: the values of config.yaml.
        summary: the content of summary.json.
        rounds: the rounds that were evaluated, if the run recorded rounds; bytes and seconds are those since the
            evaluation before.
    """

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    path: Annotated[str, AfterValidator(_check_inside)]
    config: dict[str, object]
    summary: Result
    rounds: list[RoundRecord] | None = None


@dataclass(frozen=True, eq=False)
class PackedFile:
    """A packed file that was read.

    Attributes:
        directory: the directory that its runs stand for: the path of the file without its suffix.
        sweep: the content of the sweep's sweep.yaml, if there was one.
        runs: the runs, in the order of the file.
    """

    directory: Path
    sweep: SweepLabels | None
    runs: Sequence[PackedRun]


def find_packed(directory: Path) -> Path | None:
    """Return the packed file that has the runs of a directory: itself, or one named after it or a directory above."""
    if directory.name.endswith(SUFFIX) and directory.is_file():
        return directory
    named = (place.with_name(place.name + SUFFIX) for place in (directory, *directory.parents) if place.name)
    return next((file for file in named if file.is_file()), None)


def packed_directory(file: Path) -> Path:
    """Return the directory that a packed file stands for; another path is returned as it is."""
    return file.with_name(file.name.removesuffix(SUFFIX)) if file.name.endswith(SUFFIX) else file


def read_packed(file: Path) -> PackedFile:
    """Read a packed file.

    Raises:
        ConfigError: it cannot be read, is broken, or has a later version of the format.
    """
    header: Header | None = None
    runs: list[PackedRun] = []
    try:
        for line in _lines(file):
            if header is None:
                header = Header.model_validate_json(line, strict=True)
                if header.format > FORMAT:
                    raise ConfigError(f"{file}: got format {header.format}, expected at most {FORMAT}: update raysim")
            else:
                runs.append(PackedRun.model_validate_json(line, strict=True))
    except ValidationError as error:
        line_number = 1 if header is None else len(runs) + 2
        raise ConfigError(f"{file}:{line_number}: {first_problem(error)}; expected packed results") from None
    if header is None:
        raise ConfigError(f"{file}: the file is empty, expected packed results")
    return PackedFile(packed_directory(file), header.sweep, runs)


def _lines(file: Path) -> Iterator[bytes]:
    try:
        with gzip.open(file) as stream:
            while line := stream.readline(LONGEST_LINE + 1):
                if len(line) > LONGEST_LINE:
                    raise ConfigError(f"{file}: got a line of more than {LONGEST_LINE} bytes")
                yield line
    except EOFError:
        raise ConfigError(f"{file}: the file is truncated") from None
    except (OSError, zlib.error) as error:
        words = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{file}: {words}; expected packed results") from None
