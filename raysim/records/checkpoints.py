"""Checkpoints on disk: a file of client records, one of the server, and a manifest. Its rename is the commit.

DIR/checkpoints/000040/ holds clients.bin (the records one after the other), server.bin and manifest.json. The manifest
says where each record is. It has the files' checksums, what the run's directory contained, and the identity of the run.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from raysim.config import Config
from raysim.config.comparison import CHANGE_NO_STATE, result_settings
from raysim.engine.events import Checkpoint
from raysim.records.totals import Totals
from raysim.system.errors import RunError, describe_error
from raysim.system.files import convert_write_errors, flush_to_disk, write_whole

FORMAT = 4
MANIFEST, CLIENTS, SERVER = "manifest.json", "clients.bin", "server.bin"


class ClientRecords(Mapping[int, bytes]):
    """The clients' records in a file, each read on access; `places` are their offsets and sizes in bytes."""

    def __init__(self, path: Path, places: Mapping[int, Sequence[int]]) -> None:
        self._path = path
        self._places = places

    def __getitem__(self, client: int) -> bytes:
        start, nbytes = self._places[client]
        with self._path.open("rb") as file:
            file.seek(start)
            return file.read(nbytes)

    def __iter__(self) -> Iterator[int]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


@dataclass(frozen=True)
class Recorded:
    """The contents of a run's directory at a checkpoint; every field is a key of the manifest's `recorded`.

    `files` are the growing files' sizes in bytes by name, `tally` the totals, `seconds` the time the run had taken.
    `identity` says what it was computed with, see raysim.records.identity; of what has changed, it has all versions.
    """

    files: Mapping[str, int]
    tally: Totals
    seconds: float = 0.0
    peak_memory_bytes: int = 0
    identity: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SavedCheckpoint:
    """A checkpoint read from disk: the records to resume from, and what the directory had recorded by then."""

    round: int
    server: bytes
    clients: ClientRecords
    recorded: Recorded


class Checkpoints:
    """The checkpoints in a run's directory.

    Args:
        directory: the run's directory.
        config: the run's config; a checkpoint of another config is refused.
        made_with: the version of raysim.

    Raises:
        RunError: the folder, or a part of it, is a link: the run would read or write elsewhere.
    """

    def __init__(self, directory: Path, config: Config, made_with: str | None) -> None:
        self.directory = directory / "checkpoints"
        self._keep = config.checkpoint.keep
        self._clients = config.clients.count
        self._run = {"config": _config_digest(config), "raysim": made_with}
        parts = [self.directory, *self.directory.glob("*"), *self.directory.glob("*/*")]
        if (link := next((path for path in parts if path.is_symlink()), None)) is not None:
            allowed = "allowed: the run's own folder; move what it points to into its place, or delete it"
            raise RunError(f"{link}: this is a link to {os.readlink(link)}, {allowed}")

    @property
    def newest(self) -> int | None:
        """The round of the newest checkpoint, whether it was read or not, or None if there is none."""
        committed = self._committed()
        return int(committed[-1].name) if committed else None

    def write(self, checkpoint: Checkpoint, recorded: Recorded) -> None:
        """Write a checkpoint, and delete those that it supersedes.

        Raises:
            RunError: it could not be written; earlier checkpoints are unchanged.
        """
        place = self.directory / f"{checkpoint.round:06d}"
        with convert_write_errors(f"the checkpoint of round {checkpoint.round}", self.directory.parent):
            try:
                shutil.rmtree(place, ignore_errors=True)
                self.directory.mkdir(exist_ok=True)
                place.mkdir()
                contents = _write_records(place, checkpoint)
                manifest = {**self._run, "round": checkpoint.round, "recorded": asdict(recorded), **contents}
                write_whole(place / MANIFEST, json.dumps({"format": FORMAT, **manifest, "sha256": _digest(manifest)}))
            except OSError:
                shutil.rmtree(place, ignore_errors=True)
                raise
        committed = self._committed()
        for path in self._places():
            if path not in committed[-self._keep :]:
                shutil.rmtree(path, ignore_errors=True)

    def latest(self) -> SavedCheckpoint | None:
        """Return the newest checkpoint, or None if there is none.

        Raises:
            RunError: it is damaged, or belongs to another run.
        """
        committed = self._committed()
        if not committed:
            return None
        place = committed[-1]
        manifest = self._manifest(place)
        for name in (CLIENTS, SERVER):
            if _file_digest(place / name) != manifest["files"].get(name):
                raise RunError(_describe_damage(place, f"{name} is not what was written"))
        try:
            places = {client: (start, nbytes) for client, start, nbytes in manifest["clients"]}
            self._check_clients(places, (place / CLIENTS).stat().st_size)
            recorded = _read_recorded(manifest["recorded"])
            if manifest["round"] != int(place.name):
                raise ValueError(f"round {manifest['round']}")
        except (LookupError, TypeError, ValueError) as error:
            words = f"{MANIFEST} has wrong contents: {describe_error(error)}"
            raise RunError(_describe_damage(place, words)) from error
        clients = ClientRecords(place / CLIENTS, places)
        return SavedCheckpoint(manifest["round"], (place / SERVER).read_bytes(), clients, recorded)

    def _check_clients(self, places: Mapping[int, tuple[int, int]], size: int) -> None:
        """Check that there is a record of every client, inside a file of this size. Raises ValueError."""
        missing = sorted({*range(self._clients)} - {*places})
        if missing or len(places) != self._clients:
            raise ValueError(f"records of {len(places)} clients, of {self._clients} expected; missing: {missing[:10]}")
        wrong = [client for client, (start, nbytes) in places.items() if not 0 <= start <= start + nbytes <= size]
        if wrong:
            raise ValueError(f"the records of clients {wrong[:10]} lie outside {CLIENTS}")

    def _manifest(self, place: Path) -> dict[str, Any]:
        try:
            manifest = json.loads((place / MANIFEST).read_text(encoding="utf-8"))
            kind, digest = manifest.pop("format"), manifest.pop("sha256")
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise RunError(_describe_damage(place, f"{MANIFEST} cannot be read, {error}")) from error
        if kind != FORMAT:
            raise RunError(
                f"{place}: found a checkpoint of format {kind}, allowed: {FORMAT}; resume with raysim "
                f"{manifest.get('raysim', 'of that format')!s:.40}, which wrote it"
            )
        if digest != _digest(manifest):
            raise RunError(_describe_damage(place, f"{MANIFEST} is not what was written"))
        for key, own in self._run.items():
            if manifest[key] != own:
                found = f"{place}: this checkpoint is of another {key} ({manifest[key]:.12}), allowed: "
                if key == "config":
                    raise RunError(f"{found}the config.yaml that began the run; only that gives the same bits")
                raise RunError(
                    f"{found}{own}; resume with raysim {manifest[key]:.40}, which wrote it, as another one may compute "
                    "other bits"
                )
        return dict(manifest)

    def _committed(self) -> list[Path]:
        return [path for path in self._places() if (path / MANIFEST).exists()]

    def _places(self) -> list[Path]:
        return sorted(path for path in self.directory.glob("*") if path.is_dir() and path.name.isdecimal())


def _read_recorded(values: Mapping[str, Any]) -> Recorded:
    """Return what a manifest recorded. Older ones have only two names of the identity, as separate keys."""
    fields = {key: value for key, value in values.items() if key not in ("code", "data")}
    old = {key: value for key in ("code", "data") if (value := values.get(key)) is not None}
    identity = {**old, **values.get("identity", {})}
    if not all(isinstance(text, str) for text in identity.values()):
        raise ValueError(f"identity {identity}")
    return Recorded(**{**fields, "identity": identity, "tally": Totals(**values["tally"])})


LATER_KEYS: Mapping[str, object] = {
    "clients.forget": [],
    "dataset.decoded_gib": None,
    "dataset.input_scale": 1.0,
    "dataset.load": None,
    "methods.lander.encoder": None,
    "methods.lander.names": None,
    "model.adapters.dropout": 0.0,
    "model.adapters.head": True,
    "model.checkpointing": False,
    "model.precision": "float32",
    "model.prompts.block": 1,
    "model.random_features": None,
    "partition.by": None,
    "training.accumulate": 1,
}
"""Keys that came after the first checkpoints, with their defaults, which do what was done before."""


def _config_digest(config: Config) -> str:
    """Return the digest of the settings that change a run's state.

    It is over `evaluation.every` too, as when that was a key, and not over later keys with their defaults. Checkpoints
    from then would else be of another config.
    """
    settings: dict[str, object] = {}
    for key, value in result_settings(config, CHANGE_NO_STATE).items():
        if key in LATER_KEYS and LATER_KEYS[key] == value:
            continue
        if key == "evaluation.every_rounds":
            settings["evaluation.every"] = "task" if value is None else None
        settings[key] = value
    return hashlib.sha256(str(settings).encode()).hexdigest()


def _write_records(place: Path, checkpoint: Checkpoint) -> dict[str, Any]:
    """Write the two files; return the places of the records and the files' checksums for the manifest."""
    digest, start, places = hashlib.sha256(), 0, []
    with (place / CLIENTS).open("wb") as file:
        for records in checkpoint.clients:
            for client, record in records.items():
                file.write(record)
                digest.update(record)
                places.append((client, start, len(record)))
                start += len(record)
        flush_to_disk(file)
    write_whole(place / SERVER, checkpoint.server)
    files = {CLIENTS: digest.hexdigest(), SERVER: hashlib.sha256(checkpoint.server).hexdigest()}
    return {"clients": places, "files": files}


def _digest(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _file_digest(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def _describe_damage(place: Path, found: str) -> str:
    return f"{place}: this checkpoint is damaged ({found}); delete its folder to resume from the one before it"
