"""Carry out runs with the code of one tree: python -m bits.child RUNS.json RESULTS.jsonl FOLDER, in that tree.

It uses only raysim's public interface: `raysim.run`, `raysim.evaluate`, the command line and a run's files.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import raysim
from bits import own
from bits.run import DATA, Run

TIMES_OF_A_ROUND = {"seconds", "profile"}
TIMES_OF_A_RUN = {"seconds", "seconds_per_round", "seconds_starting", "peak_memory_bytes", "versions"}
"""Keys that differ from one time to the next: measurements, and the versions."""


class CutOff(Exception):
    """The run is cut off here, to be resumed."""


class Display:
    """A display that ends a run after a round, as if the power had failed."""

    def __init__(self, after: int) -> None:
        self.after = after

    def take(self, event: object) -> None:
        """Raise CutOff after the round."""
        if type(event).__name__ == "RoundDone" and getattr(event, "round", None) == self.after:
            raise CutOff

    def say(self, text: str) -> None:
        """Show nothing."""


def main(given: list[str]) -> None:
    """Carry out the runs one after the other, and write a line with each result."""
    runs, results, folder = map(Path, given)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end tidily
    own.of_this_tree()
    data = folder / "data"
    data.mkdir(parents=True)
    own.write(data)
    asked = {name: Run(**spec) for name, spec in json.loads(runs.read_text(encoding="utf-8")).items()}
    on_ray = any(run.way == "ray" for run in asked.values())
    with one_ray() if on_ray else nullcontext(), results.open("w", encoding="utf-8") as written:
        for number, (name, run) in enumerate(asked.items()):
            try:
                found = carried_out(run, folder / str(number), data)
            except Exception as error:
                found = {"error": (str(error).strip().splitlines() or [type(error).__name__])[-1]}
                if type(error).__name__ == "ConfigError":
                    found["refused"] = True
            written.write(json.dumps({name: found}) + "\n")
            written.flush()


@contextmanager
def one_ray() -> Iterator[None]:
    """Start one Ray for all runs, as starting a Ray takes as long as a run.

    Like raysim's own it listens on the loopback interface alone, has a token, and leaves no files.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # when Ray is imported: see raysim's on_loopback
    import ray

    del os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"]
    with tempfile.TemporaryDirectory(prefix="bits-", dir="/tmp", ignore_cleanup_errors=True) as files:  # a short path
        try:
            ray.init(
                "local",
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                _node_ip_address="127.0.0.1",
                _temp_dir=files,
            )
            yield
        finally:
            ray.shutdown()


def carried_out(run: Run, out: Path, data: Path) -> dict[str, Any]:
    """Carry out a run, and return its result."""
    config = json.loads(json.dumps(run.config()).replace(DATA, str(data)))
    if run.way == "command":
        by_command(run, config, out)
    elif run.cut_after is None:
        raysim.run(config, out=out, local=not run.on_ray)
    else:
        cut_off(run, config, out)
        # with the config, so that its custom code is imported
        raysim.run(config, out=out, local=not run.on_ray, resume=True)
    found = read(out)
    if run.evaluate is not None:
        found["evaluated"] = evaluated(run, out)
    return found


def cut_off(run: Run, config: Mapping[str, Any], out: Path) -> None:
    """Begin a run and leave it as a power failure would. Raises RuntimeError if it ended before."""
    display: Any = Display(run.cut_after or 0)
    try:
        raysim.run(config, out=out, local=not run.on_ray, display=display)
    except CutOff:
        (out / "summary.json").unlink()
    else:
        raise RuntimeError("the run was over before it was to be cut off")


def by_command(run: Run, config: Mapping[str, Any], out: Path) -> None:
    """Run by the command line, with the seed as an override."""
    path = out.with_suffix(".yaml")
    path.write_text(json.dumps({**config, "seed": 0}), encoding="utf-8")
    command("run", str(path), f"seed={config['seed']}", "--out", str(out), "--quiet")


def evaluated(run: Run, out: Path) -> dict[str, Any]:
    """Evaluate the finished model again, and return the result."""
    overrides = run.evaluate or {}
    if run.way == "command":
        path, pairs = out.with_suffix(".json"), [f"{key}={json.dumps(value)}" for key, value in overrides.items()]
        command("evaluate", str(out), *pairs, "--out", str(path), "--trust")
        found = json.loads(path.read_text(encoding="utf-8"))
    else:
        found = asdict(raysim.evaluate(out, overrides, trust=True))
    return {key: value for key, value in found.items() if key != "directory"}


def command(*given: str) -> None:
    """Carry out a command of raysim's. Raises RuntimeError with its last line if it failed."""
    ended = subprocess.run([sys.executable, "-m", "raysim", *given], capture_output=True, text=True)
    if ended.returncode:
        said = (ended.stderr.strip() or f"status {ended.returncode}").splitlines()
        raise RuntimeError(said[-1])


def read(out: Path) -> dict[str, Any]:
    """Return rounds.jsonl, summary.json and, if there is one, clients.json of a run that is done, without times."""
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    if summary["status"] != "done":
        raise RuntimeError(f"the run's status is {summary['status']}")
    rounds = [json.loads(line) for line in (out / "rounds.jsonl").read_text(encoding="utf-8").splitlines()]
    holdings = out / "clients.json"
    for request in (each for one in (*rounds, summary) for each in one.get("forgotten", ())):
        del request["seconds"]
    return {
        "rounds.jsonl": [{key: value for key, value in line.items() if key not in TIMES_OF_A_ROUND} for line in rounds],
        "clients.json": json.loads(holdings.read_text(encoding="utf-8")) if holdings.exists() else None,
        **{key: value for key, value in summary.items() if key not in TIMES_OF_A_RUN},
    }


if __name__ == "__main__":
    main(sys.argv[1:])
