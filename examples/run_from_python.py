"""Compares methods over seeds from Python: python examples/run_from_python.py [KEY=VALUE ...].

Run it in the folder that contains `configs/`. Every KEY=VALUE applies to all runs, as on raysim's command line. The run
directories are below runs/.
"""

import sys
from collections.abc import Sequence
from statistics import mean

import raysim

CONFIG = "configs/split_digits.yaml"
METHODS = {"FedAvg": "{}", "ER": "{er: {}}", "DER + Fed-A-GEM": "{der: {alpha: 0.3}, fed_a_gem: {}}"}
SEEDS = (0, 1)


def compare(overrides: Sequence[str] = ()) -> dict[str, list[raysim.Result]]:
    """Run every method with every seed and return the results by method."""
    results: dict[str, list[raysim.Result]] = {}
    for title, methods in METHODS.items():
        for seed in SEEDS:
            chosen = [f"name={title}", f"methods={methods}", f"seed={seed}"]
            # without local=True every client is a Ray actor; the results are the same to the bit
            result = raysim.run(CONFIG, [*overrides, *chosen], local=True)
            results.setdefault(title, []).append(result)
    return results


def table(results: dict[str, list[raysim.Result]]) -> str:
    """Return a line per method: mean accuracy and forgetting over its seeds, and the bytes that a seed sends."""
    lines = [f"{'method':<18}{'accuracy':>10}{'forgetting':>12}{'MiB up':>8}"]
    for title, runs in results.items():
        # a run can be read again at any time: its directory has the same figures
        metrics = [raysim.load(run.directory).evaluation["class_il"] for run in runs]
        accuracy = mean(of_run["average_accuracy"] for of_run in metrics)
        forgetting = mean(of_run["forgetting"] for of_run in metrics)
        lines.append(f"{title:<18}{accuracy:>10.1%}{forgetting:>12.1%}{runs[0].bytes_up / 2**20:>8.1f}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(compare(sys.argv[1:])))
