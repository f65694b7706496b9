"""Carry out a sweep for the command line: its display while it runs, then how its runs ended."""

import sys
from shlex import quote

from raysim.sweeps.directory import SweepPlan
from raysim.sweeps.sweep import carry_out
from raysim.sweeps.sweep_display import (
    describe_outcome,
    list_ends,
    list_other_inputs,
    open_sweep_display,
    summarise_outcomes,
)


def carry_out_shown(plan: SweepPlan, local: bool, jobs: int | None, quiet: bool, log: str) -> int:
    """Carry out a sweep, print its runs' ends, and return the exit status.

    Args:
        plan: the sweep.
        local: one run after the other in this process, without Ray.
        jobs: the most runs at a time.
        quiet: print failures alone.
        log: the name of the file in the sweep's directory that receives what Ray prints.

    Raises:
        ConfigError: see `carry_out`.
    """
    with open_sweep_display(plan, quiet) as shown:
        shown.log = log
        outcomes = carry_out(plan, local, jobs, shown)
    if not quiet:
        print(*list_ends(outcomes), *list_other_inputs(outcomes), summarise_outcomes(outcomes, plan), sep="\n")
        print(f"sweep directory: {plan.out}")
        if any(outcome.status == "done" for outcome in outcomes):
            print(f"report:          raysim report {quote(str(plan.out))}")
    for outcome in outcomes:
        if outcome.status == "failed":
            print(describe_outcome(outcome), file=sys.stderr)
    statuses = {outcome.status for outcome in outcomes}
    return 130 if statuses & {"interrupted", "not started"} else int("failed" in statuses)
