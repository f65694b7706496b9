"""Where a run's time went: the seconds of each hook and part, from the rounds that recorded them."""

from collections import defaultdict
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from raysim.reports.round_records import read_rounds


def show_profile(directory: Path, console: Console) -> None:
    """Print the seconds of each part, and their share, for the server and over all clients.

    Raises:
        ConfigError: there is no rounds.jsonl, or not one of raysim's.
    """
    seconds: dict[str, float] = defaultdict(float)
    for line in read_rounds(directory):
        for name, spent in (line.profile or {}).items():
            seconds[name] += spent
    for side, title in (("server", "server"), ("client", "clients, all together")):
        parts = {name: spent for name, spent in seconds.items() if name.startswith(side)}
        total = sum(parts.values()) or 1.0
        table = Table(box=SIMPLE, padding=(0, 1, 0, 0))
        table.add_column(title, no_wrap=True)
        for heading in ("seconds", "%"):
            table.add_column(heading, justify="right", no_wrap=True)
        for name, spent in sorted(parts.items(), key=lambda part: -part[1]):
            table.add_row(name.partition(": ")[2], f"{spent:.2f}", f"{100 * spent / total:.0f}")
        console.print(table)
