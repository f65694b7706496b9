"""One report for all tests that look at what is written: a real run of two tasks, made ones and a failed one."""

from contextlib import chdir
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from made_runs import BASE, make_run
from rich.console import Console

import raysim
from raysim.reports.content import Report
from raysim.reports.terminal import show_report
from raysim.reports.write import write_report


@dataclass(frozen=True)
class Written:
    """A report over `runs`, written to `out` (both absolute), and what was printed on a terminal and elsewhere."""

    report: Report
    out: Path
    runs: Path
    on_a_terminal: str
    elsewhere: str


def write_example(folder: Path) -> Written:
    every = {"evaluation": {"every_rounds": 1}, "logging": {"tensorboard": False}}
    evaluated = {"evaluation": {"domain_il": [0.5, 0.25]}}
    rounds = [{"round": number, "tasks": [1 + (number > 2)], **evaluated} for number in range(1, 5)]
    with chdir(folder):
        sent = raysim.run(BASE, every, out="runs/real", local=True).bytes_up
        make_run(Path("runs/real-1"), {**every, "seed": 1}, rounds=rounds, bytes_up=sent)
        for seed in (0, 1):  # both send as much more as the other group: a difference that is marked
            made_of = {**every, "seed": seed, "methods": {"fedprox": {"mu": 0.1}}}
            make_run(Path(f"runs/made-{seed}"), made_of, rounds=rounds, bytes_up=sent + 2**20)
        make_run(Path("runs/<b>failed</b>"), status="failed")
        made = write_report(["runs"], "out")
    terminal, file = StringIO(), StringIO()
    show_report(made, Console(file=terminal, force_terminal=True, width=200))
    show_report(made, Console(file=file, width=200))
    return Written(made, folder / "out", folder / "runs", terminal.getvalue(), file.getvalue())
