"""Make examples/tasks/own_data/readings.csv: python examples/tasks/make_readings.py."""

import csv
from pathlib import Path

import numpy as np

FILE = Path(__file__).parent / "own_data" / "readings.csv"
SHOPS, TOOLS, ROWS = ("Aalen", "Brno", "Cork", "Delft", "Evora"), ("drill", "lathe", "saw"), 400


def write(file: Path) -> None:
    """Write the table. Heat breaks tools at first, and noise in the end."""
    draws = np.random.default_rng(0)
    hours = draws.permutation(ROWS)
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["id", "shop", "hour", "tool", "heat", "noise", "broken"])
        for row, hour in enumerate(hours):
            heat, noise = draws.normal(size=2)
            tool = int(draws.integers(3))
            passed = hour / ROWS
            broken = (1 - 0.5 * passed) * heat + (0.5 + 0.5 * passed) * noise + 0.5 * (tool - 1) > 0
            shop = SHOPS[int(draws.integers(5))]
            writer.writerow(
                [row, shop, hour, TOOLS[tool], f"{60 + 10 * heat:.1f}", f"{70 + 5 * noise:.1f}", int(broken)]
            )


if __name__ == "__main__":
    write(FILE)
