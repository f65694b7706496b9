"""Carry out runs and say on which machine: python -m golden.child RUNS.json RESULTS.jsonl FOLDER MACHINE.json."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from bits import child

from golden.machine import this_machine


def main(given: list[str]) -> None:
    """Write the machine, then carry out the runs as tools/bits does."""
    *runs, machine = given
    Path(machine).write_text(json.dumps(asdict(this_machine())), encoding="utf-8")
    child.main(runs)


if __name__ == "__main__":
    main(sys.argv[1:])
