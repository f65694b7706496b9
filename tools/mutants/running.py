"""Run the tests near a mutant in a copy of a commit's tree, and write the result."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path

from mutants.mutant import Mutant

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 240  # seconds of each call of pytest
AWAY = "not ray and not slow and not soak and not grid"
SECOND = [  # runs of whole configs, for mutants that the nearest tests miss
    "tests/engine/test_round.py",
    "tests/engine/test_asynchronous.py",
    "tests/engine/test_requests.py",
    "tests/engine/test_training.py",
    "tests/launch/test_resuming.py",
    "tests/launch/test_stop_file.py",
    "tests/records/test_recording.py",
    "tests/records/test_checkpoints.py",
    "tests/records/test_kept_runs.py",
]
GRID, SAMPLE = "tests/algorithms/test_contract_grid.py", "der or scaffold or fed_a_gem or quantize or lwf"
NEAREST_ON_RAY = 4  # files, each within the limit
NO_TESTS = 5  # pytest's exit status, if none was selected
STATUS_TIMED_OUT = 124


class Tree:
    """A copy of a commit's files in a folder, in which one mutant at a time is applied.

    Args:
        commit: the commit; its own tests are run.
        folder: a new folder.
        through: words before the command of tests on Ray, such as those of a lock.
    """

    def __init__(self, commit: str, folder: Path, through: Sequence[str]) -> None:
        self.folder, self._through = folder, through
        self._sound: set[str] = set()  # tests that pass without a mutant
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=BytesIO(archive)) as files:
            files.extractall(folder, filter="data")

    def judge(self, mutant: Mutant) -> dict[str, object]:
        """Return whether a mutant is dead, lives, timed out or is undecided, by which test, and in which ring."""
        began = time.monotonic()
        result: dict[str, object] = {"result": "lives", "test": None, "ring": None}
        for ring, selected in enumerate(self._rings(mutant), 1):
            while (failed := self._fails_with(mutant, selected)) is not None:
                if failed == "timed out":
                    ends = self._run(selected, mutant.on_ray) != failed
                    result = {"result": "timed out" if ends else "undecided", "test": None, "ring": ring}
                    break
                if self._is_sound(failed, mutant):
                    result = {"result": "dead", "test": failed, "ring": ring}
                    break
                selected = [*selected, "--deselect", failed]
            if result["result"] in ("dead", "timed out"):
                break
        return {"id": mutant.id, **result, "seconds": round(time.monotonic() - began)}

    def _rings(self, mutant: Mutant) -> Iterator[list[str]]:
        """Yield arguments of pytest: the nearest tests, then those that import the module, then whole runs."""
        near, importing = nearest_tests(self.folder, mutant)
        if mutant.on_ray:
            yield from (["-m", "not soak", path] for path in near[:NEAREST_ON_RAY])
        elif near:
            yield ["-m", AWAY, *near]
        if others := [path for path in importing if path not in near]:
            yield ["-m", AWAY, *others]
        if not mutant.on_ray:
            yield ["-m", AWAY, *(path for path in SECOND if (self.folder / path).exists() and path not in near)]
            yield ["-m", AWAY, "-k", SAMPLE, GRID]

    def _fails_with(self, mutant: Mutant, selected: Sequence[str]) -> str | None:
        with self._applied(mutant):
            return self._run(selected, mutant.on_ray)

    @contextmanager
    def _applied(self, mutant: Mutant) -> Iterator[None]:
        path = self.folder / mutant.file
        before = path.read_text(encoding="utf-8")
        try:
            self._write(path, mutant.apply(before))
            yield
        finally:
            self._write(path, before)

    @staticmethod
    def _write(path: Path, text: str) -> None:
        """Write a module and remove its bytecode, which Python checks by size and whole seconds only."""
        path.write_text(text, encoding="utf-8")
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()

    def _is_sound(self, test: str, mutant: Mutant) -> bool:
        if test not in self._sound and self._run(["-m", "not soak", test], mutant.on_ray) is None:
            self._sound.add(test)
        return test in self._sound

    def _run(self, selected: Sequence[str], on_ray: bool) -> str | None:
        """Run tests up to the first that fails, and return its name, `timed out`, or None if all passed."""
        command = [
            "timeout",
            "-k",
            "5",
            str(LIMIT),
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
        ]
        through = self._through if on_ray else ()
        own = {"PYTHONPATH": f"{self.folder}{os.pathsep}{self.folder / 'tools'}", "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            [*through, *command, *selected],
            cwd=self.folder,
            env={**os.environ, **own},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            said, _ = process.communicate()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # what a test left behind
        if process.returncode in (0, NO_TESTS):
            return None
        if process.returncode in (STATUS_TIMED_OUT, 137):
            return "timed out"
        failed = re.search(r"^(?:FAILED|ERROR) (\S+?\.py(?:::\S.*?)?)(?: - .*)?$", said, re.MULTILINE)
        if failed is None:
            raise RuntimeError(f"pytest ended with {process.returncode}: {said[-2000:]}")
        return failed[1]


def nearest_tests(folder: Path, mutant: Mutant) -> tuple[list[str], list[str]]:
    """Return the test files of the folder of the same name that name a mutant's module or function, then all that do.

    Files that name both, and those that name them most often, come first. Of all files, only the imports of the module
    count.
    """
    module = mutant.file.removesuffix(".py").replace("/", ".")
    names = [re.escape(module), *(rf"\b{re.escape(name)}\b" for name in mutant.function.split(".") if name[:2] != "__")]
    own = Path(mutant.file).parts[1]
    near: dict[str, tuple[int, int]] = {}
    importing = []
    for path in sorted((folder / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        counts = [len(re.findall(name, text)) for name in names]
        relative = path.relative_to(folder).as_posix()
        if relative.startswith(f"tests/{own}/") and any(counts):
            near[relative] = (-sum(map(bool, counts)), -sum(counts))
        if counts[0]:
            importing.append(relative)
    return sorted(near, key=lambda path: (near[path], path)), importing


def run_all(mutants: Sequence[Mutant], tree: Tree, results: Path) -> None:
    """Judge the mutants that a file of results lacks, and append a line of each to it."""
    done = {one["id"] for one in read_results(results)}
    for mutant in mutants:
        if mutant.id not in done:
            line = tree.judge(mutant)
            with results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            print(f"{mutant.id} {mutant.file} {mutant.function}: {line['result']} {line['test'] or ''}", flush=True)


def read_results(results: Path) -> list[dict[str, str]]:
    """Return the lines of a file of results."""
    return [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()] if results.exists() else []
