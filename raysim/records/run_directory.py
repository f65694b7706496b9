"""The run directory: the files written during a run and at its end, cutting them back, and the run's interruptions."""

import errno
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from raysim.config import Config, dump
from raysim.config.error_text import shorten
from raysim.engine.events import RoundDone, line
from raysim.federation.holdings import Holdings
from raysim.records.images import IMAGES, delete_images, draw_grid, image_path
from raysim.records.notes import RECORDED, Note, delete_figures
from raysim.records.tensorboard import BOARD, Board, diagnose
from raysim.records.totals import Totals
from raysim.system.errors import ConfigError, RunError
from raysim.system.files import convert_write_errors, flush_to_disk, is_partial, partial_path, write_whole
from raysim.system.interrupts import postpone_interrupts

# what reading other JSON than ours raises
UNREADABLE = (OSError, ValueError, LookupError, TypeError, RecursionError, OverflowError)
ROUNDS = "rounds.jsonl"
CLIENTS = "clients.json"


class RunFiles:
    """The files that a run writes during its course, including TensorBoard's. A failure to write raises RunError.

    Args:
        config: the resolved config, which becomes config.yaml.
        directory: absent or empty, as `claim_directory` checked, or cut back to a checkpoint by `cut_back`.
        samples: the number of test samples of each task, as in accuracy_matrix.summarise.
    """

    def __init__(self, config: Config, directory: Path, samples: Sequence[int] | None) -> None:
        self._directory = directory
        with self._writing("config.yaml") as path:
            directory.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                write_whole(path, dump(config))
        past = load_recorded_rounds(directory) if config.logging.tensorboard else []
        with self._writing(ROUNDS) as path:
            self._rounds = path.open("a", buffering=1, encoding="utf-8")
        with self._writing(BOARD):
            self._board = Board(directory, config, past, samples) if config.logging.tensorboard else None

    def write_round(self, event: RoundDone, totals: Totals) -> None:
        """Write a round, which the totals already include."""
        recorded = line(event)
        with self._writing(ROUNDS):
            if not os.fstat(self._rounds.fileno()).st_nlink:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            self._rounds.write(json.dumps(recorded) + "\n")
        self._show(lambda board: board.add_round(event, recorded, totals))
        for name, picture in event.pictures.items():
            self.write_picture(image_path(event.round, name), draw_grid(picture), f"{IMAGES}/{name}", event.round)

    def write_picture(self, file: str, image: npt.NDArray[np.uint8], tag: str, step: int = 0) -> None:
        """Write an image (uint8 [H, W, 3]) as a PNG file of the directory, and for TensorBoard."""
        with self._writing(file) as path:
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(path)
        self._show(lambda board: board.add_image(tag, image, step))

    def write_holdings(self, holdings: Holdings) -> None:
        """Write what every client holds as clients.json."""
        with self._writing(CLIENTS) as path:
            write_whole(path, json.dumps(asdict(holdings)) + "\n")

    def write_note(self, note: Note) -> None:
        """Write what a callback has recorded, also for TensorBoard."""
        with self._writing(note.file) as path:
            note.write(path)
        self._show(lambda board: board.add_note(note))

    def write_model(self, state: Mapping[str, Tensor]) -> None:
        """Write the final model's state_dict as model.pt."""
        model = BytesIO()
        torch.save(dict(state), model)
        with self._writing("model.pt") as path:
            write_whole(path, model.getvalue())

    def flush(self) -> dict[str, int]:
        """Write the growing files to the disk, and return their sizes in bytes by name.

        If one were shorter after a power failure than a checkpoint says, no run could resume from the checkpoint.
        """
        self._show(Board.flush)
        sizes = {}
        for path in growing_files(self._directory):
            with self._writing(path.name), path.open("ab") as file:
                flush_to_disk(file)
                sizes[path.name] = os.fstat(file.fileno()).st_size
        return sizes

    def close(self) -> None:
        """Write out the buffers and close the files."""
        with self._writing(ROUNDS):
            self._rounds.close()
        self._show(Board.close)

    def _show(self, show: Callable[[Board], None]) -> None:
        """Call `show` with TensorBoard's writer, if there is one; an interrupt would cut a record short."""
        with self._writing(BOARD), postpone_interrupts():
            if self._board:
                show(self._board)

    @contextmanager
    def _writing(self, name: str) -> Iterator[Path]:
        with convert_write_errors(self._directory / name, self._directory):
            yield self._directory / name


class Interruptions:
    """The interruptions of a run so far, over all its processes: their `count`, and the `rounds` computed again."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "checkpoints" / "losses.jsonl"
        try:
            self._lines = self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []
            recomputed = [int(json.loads(line)["rounds_recomputed"]) for line in self._lines]
        except UNREADABLE as error:
            allowed = "allowed: what raysim wrote there, or no such file"
            raise RunError(
                f"{self._path}: found no interruptions ({type(error).__name__}: {error}), {allowed}"
            ) from None
        self.count = len(recomputed)
        self.rounds = sum(recomputed)

    def note(self, why: str, back_to: int, rounds: int) -> None:
        """Record an interruption: its cause, the round returned to, and how many rounds are computed again.

        Raises:
            RunError: it could not be written.
        """
        self.count += 1
        self.rounds += rounds
        self._lines.append(json.dumps({"why": why, "back_to_round": back_to, "rounds_recomputed": rounds}))
        with convert_write_errors(self._path, self._path.parent.parent):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._path, "".join(f"{line}\n" for line in self._lines))


def find_interruption(directory: Path) -> str | None:
    """Return how the run in a directory broke off; None if there is no run or it was stopped between two rounds.

    Raises:
        ConfigError: the run is done, since another process ended it after this command had looked.
    """
    if not (directory / ROUNDS).exists():
        return None
    try:
        status = dict(json.loads((directory / "summary.json").read_text(encoding="utf-8")))["status"]
    except UNREADABLE:  # there is none, as the process was killed
        return "the process ended in the middle of the run"
    if status == "done":
        raise ConfigError(
            f"--out {directory}: another run has just been done there, allowed: a new or empty directory; or "
            "--resume once more, for its result"
        )
    return None if status == "interrupted" else f"the run {status}"


def check_growing(directory: Path, files: Mapping[str, int]) -> None:
    """Check that the growing files still begin with what they held at a checkpoint, by their sizes in bytes.

    Raises:
        RunError: one is shorter or a link, or rounds.jsonl is missing; nothing was changed.
    """
    for name, size in files.items():
        path = directory / name
        try:
            status = path.lstat()
        except FileNotFoundError:
            found = None if name != ROUNDS else "there is no such file"
        else:
            short = f"it has {status.st_size:,} bytes, and had {size:,} at the checkpoint" * (status.st_size < size)
            found = (short or None) if stat.S_ISREG(status.st_mode) else "this is a link or no file"
        if found is not None:
            raise RunError(f"{path}: {found}; put back the run's own file, or start the run again in another directory")


def count_lost(directory: Path, files: Mapping[str, int]) -> int:
    """Return how many rounds a run has written since its files had these sizes in bytes."""
    rounds = directory / ROUNDS
    return rounds.read_bytes()[files.get(ROUNDS, 0) :].count(b"\n") if rounds.exists() else 0


def load_recorded_rounds(directory: Path, size: int | None = None) -> list[dict[str, Any]]:
    """Return the lines in the first `size` bytes of rounds.jsonl, or all lines, each of which is whole.

    Raises:
        RunError: they are not what raysim wrote.
    """
    path = directory / ROUNDS
    if not path.exists():
        return []
    try:
        lines = [dict(json.loads(text)) for text in path.read_bytes()[:size].decode().splitlines()]
        for number, round in enumerate(lines, 1):
            if (found := round["round"]) != number:
                raise ValueError(f"line {number} is of round {found!r:.20}")
            diagnose(round)
        return lines
    except UNREADABLE as error:
        allowed = "allowed: the run's own file, or the run again in another directory"
        raise RunError(f"{path}: found no rounds ({type(error).__name__}: {error}), {allowed}") from None


def cut_back(directory: Path, files: Mapping[str, int]) -> None:
    """Cut the growing files back to their sizes in bytes at a checkpoint, and delete what was added since.

    TensorBoard's files are cut as rounds.jsonl is: TensorBoard itself purges by step, which here may be rounds, virtual
    milliseconds or KiB.
    """
    for path in growing_files(directory):
        if path.name in files:
            os.truncate(path, files[path.name])
        else:
            path.unlink()
    for delete_pictures in (delete_images, delete_figures):
        delete_pictures(directory, count_lost(directory, {}))
    for path in (directory / "summary.json", directory / "model.pt"):
        path.unlink(missing_ok=True)
        partial_path(path).unlink(missing_ok=True)


def growing_files(directory: Path) -> list[Path]:
    """Return the files that grow during a run."""
    return sorted(path for pattern in (ROUNDS, RECORDED, BOARD) for path in directory.glob(pattern))


def claim_directory(directory: Path) -> None:
    """Check that a run may write to this directory, and leave nothing there.

    Raises:
        ConfigError: it is a file, it is not empty, or it cannot be made.
    """
    try:
        if directory.exists() and not directory.is_dir():
            raise ConfigError(f"--out {directory}: this is a file, allowed: a new or empty directory")
        if directory.is_dir() and not all(map(is_partial, directory.iterdir())):
            resume = f"; to continue its run: raysim run --resume --out {quote(str(directory))}"
            resume *= (directory / "config.yaml").is_file() and not (directory / "sweep.yaml").exists()
            raise ConfigError(f"--out {directory}: this directory is not empty, allowed: a new or empty one{resume}")
        _try_to_make(directory)
    except (OSError, ValueError) as error:
        # Python's versions have several words for a null byte
        why = "found a null byte" if "\0" in str(directory) else getattr(error, "strerror", None) or error
        if isinstance(error, UnicodeEncodeError):
            why = f"this locale's encoding ({error.encoding}) lacks a character of it; set PYTHONUTF8=1 or LANG=C.UTF-8"
        if (link := next((path for path in (directory, *directory.parents) if _dangles(path)), None)) is not None:
            why = f"{link} is a link to {os.readlink(link)}, which does not exist; make that folder, or delete the link"
        raise ConfigError(
            f"--out {shorten(str(directory))}: {why}, allowed: a directory that can be made and written to"
        ) from error


def _dangles(path: Path) -> bool:
    return os.path.islink(path) and not os.path.exists(path)


def _try_to_make(directory: Path) -> None:
    """Make the directory and a file in it, and remove what was made. Raises OSError if that fails."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / ROUNDS).touch()
        (directory / ROUNDS).unlink()
    finally:
        for path in missing:
            with suppress(OSError):
                path.rmdir()


def sha256(state: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 digest over the state_dict's tensors in order, each as contiguous little-endian bytes."""
    digest = hashlib.sha256()
    for tensor in state.values():
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
