"""Pack the finished runs of a sweep into one file, or write their directories back.

`python tools/pack_results.py DIR` writes DIR.jsonl.gz from the runs below DIR and leaves DIR as it is.
`python tools/pack_results.py --unpack DIR.jsonl.gz` writes the runs' config.yaml and summary.json, and the sweep's
sweep.yaml, below DIR. raysim/reports/packed.py has the format. The same runs make the same bytes. Trials are packed
without rounds.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from raysim.config.yaml_text import read_yaml, to_yaml
from raysim.reports.packed import FORMAT, SUFFIX, packed_directory, read_packed
from raysim.sweeps.cells import SWEEP_FILE
from raysim.sweeps.directory import read_labels
from raysim.sweeps.grid import SPLIT

OF_A_ROUND = ("round", "tasks", "so_far", "bytes_up", "bytes_down", "seconds", "virtual_time", "evaluation")
ADDED = ("bytes_up", "bytes_down", "seconds")  # since the evaluation before


def pack(directory: Path) -> Path:
    """Write the packed file of a directory of runs next to the directory, and return its path."""
    runs = sorted((path.parent for path in directory.rglob("summary.json")), key=lambda path: path.parts)
    if not runs:
        raise SystemExit(f"{directory}: there is no run that ended below this directory")
    inside = sorted(path for path in directory.rglob(SWEEP_FILE) if path.parent != directory)
    if inside:  # their labels, and which runs are trials, would be lost
        raise SystemExit(f"{directory}: found {inside[0]}, allowed: the directory of one sweep, or of runs without one")
    sweep = None
    if (directory / SWEEP_FILE).is_file():
        sweep = read_labels(directory).model_dump(exclude_defaults=True)
    lines = [{"format": FORMAT, "name": directory.name, "sweep": sweep}, *(_pack_run(run, directory) for run in runs)]
    text = "".join(json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n" for line in lines)
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0) as stream:
        stream.write(text.encode())
    file = directory.with_name(directory.name + SUFFIX)
    file.write_bytes(packed.getvalue())
    read_packed(file)
    return file


def _pack_run(run: Path, directory: Path) -> dict[str, object]:
    line: dict[str, object] = {
        "path": run.relative_to(directory).as_posix(),
        "config": read_yaml(run / "config.yaml").values,
        "summary": json.loads((run / "summary.json").read_text(encoding="utf-8")),
    }
    is_trial = run.is_relative_to(directory / SPLIT)  # only its end counts
    if (run / "rounds.jsonl").is_file() and not is_trial:
        rounds = (run / "rounds.jsonl").read_text(encoding="utf-8").splitlines()
        line["rounds"] = evaluated_rounds([json.loads(text) for text in rounds])
    return line


def evaluated_rounds(rounds: Sequence[dict[str, Any]]) -> list[dict[str, object]]:
    """Return the rounds with an evaluation; bytes and seconds count the rounds since the evaluation before."""
    kept, since = [], dict.fromkeys(ADDED, 0)
    for line in rounds:
        since = {key: since[key] + (line.get(key) or 0) for key in ADDED}
        if line.get("evaluation") is not None:
            kept.append({key: {**line, **since}[key] for key in OF_A_ROUND if key in line})
            since = dict.fromkeys(ADDED, 0)
    return kept


def unpack(file: Path) -> Path:
    """Write the directories of a packed file's runs, and return the directory that they are in."""
    directory, packed = packed_directory(file), read_packed(file)
    if directory.exists():
        raise SystemExit(f"{directory}: this exists already")
    # the lines as they are: a summary that was read may have lost keys of other versions
    header, *runs = map(json.loads, gzip.decompress(file.read_bytes()).splitlines())
    for run in runs:
        place = directory / run["path"]
        place.mkdir(parents=True)
        (place / "config.yaml").write_text(to_yaml(run["config"]), encoding="utf-8")
        (place / "summary.json").write_text(json.dumps(run["summary"], indent=2) + "\n", encoding="utf-8")
    if packed.sweep is not None:
        (directory / SWEEP_FILE).write_text(to_yaml(header["sweep"]), encoding="utf-8")
    return directory


def main(argv: Sequence[str] | None = None) -> None:
    """Pack directories, or unpack files."""
    parser = argparse.ArgumentParser(
        description=__doc__, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("places", metavar="DIR", nargs="+", type=Path, help="a sweep's directory, or a packed file")
    parser.add_argument("--unpack", action="store_true", help="write the directories of packed files back")
    asked = parser.parse_args(argv)
    for place in asked.places:
        print(unpack(place) if asked.unpack else pack(place))


if __name__ == "__main__":
    main()
