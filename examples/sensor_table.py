"""A table of machines' sensors, for tasks in the order of time: python examples/sensor_table.py [FILE].

Writes FILE, by default sensors.csv in the folder of raysim's datasets (0.1 MB): 2,400 days of machines at six sites.
The column `fault` is to be predicted. What it depends on drifts: on high temperatures at first, on the vibration in
the middle, and on low temperatures in the end. The numbers are drawn from a fixed seed; nothing is downloaded.
"""

import csv
import sys
from datetime import date, timedelta
from pathlib import Path

import numpy as np

from raysim.data.loading import resolve_root

ROWS, SITES = 2400, ("Bergen", "Essen", "Lyon", "Porto", "Turin", "Zwolle")
MACHINES = ("drill", "lathe", "mill", "press")
WEAR = {"drill": -0.6, "lathe": -0.2, "mill": 0.2, "press": 0.6}


def write(file: Path, rows: int = ROWS) -> int:
    """Write the table and return its number of rows."""
    draws = np.random.default_rng(0)
    temperature, load, vibration = draws.standard_normal((3, rows))
    passed = np.arange(rows) / rows  # the part of the time that has passed, from 0 to 1
    site, machine = draws.integers(len(SITES), size=rows), draws.integers(len(MACHINES), size=rows)
    wear = np.array([WEAR[MACHINES[kind]] for kind in machine])
    angle = passed * np.pi
    risk = np.cos(angle) * temperature + np.sin(angle) * vibration + wear + 0.3 * draws.standard_normal(rows)
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["day", "site", "machine", "temperature", "load", "vibration", "fault"])
        for row in draws.permutation(rows):
            writer.writerow(
                [
                    date(2020, 1, 1) + timedelta(days=int(2000 * passed[row])),
                    SITES[site[row]],
                    MACHINES[machine[row]],
                    f"{60 + 10 * temperature[row] + 3 * site[row]:.2f}",
                    f"{0.5 + 0.1 * load[row]:.3f}",
                    f"{4 + vibration[row]:.3f}",
                    "yes" if risk[row] > 0 else "no",
                ]
            )
    return rows


if __name__ == "__main__":
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else resolve_root(None) / "sensors.csv"
    print(f"{write(place):,} rows in {place}")
