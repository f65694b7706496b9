"""Accuracy matrices on other machines: how far rounding alone may move them.

**A share of test samples** (accuracy, and every metric between 0 and 1) may differ by one test sample of n, 1/n.

- A run has fewer than 2^6 local steps in a row, and each has fewer than 2^15 roundings in a row.
- float32 rounds by at most 2^-24 of a number. With random signs, 2^21 of them add up to 2^-13.5 of a logit.
- Let training amplify that by a factor of 11. Then a logit moves by 2^-10 of its size.
- A sample's answer can change only if its two largest logits are that close. Let their difference be spread evenly over
  a logit's size. Then 48 x 2^-10 = 0.05 of 48 samples are that close.
- Two of them are in one cell with a probability of 0.05^2 / 2, which is one in 900.
- In any of the 258 cells, many of fewer samples, that has a probability of one in eight. No machine has shown it yet.

**Another number**, such as perplexity, may differ by 2^-10 of itself. That is a choice: rounding moves perplexity by
the mean error of the losses, which is less than that of a single logit.

Runs in bfloat16 round the inputs of products by 2^-9. A difference grows to that where it crosses such a rounding. Only
few do: their sums and weights are float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

NUMBER = 2.0**-10

Matrix = Sequence[Sequence[float | None]]


def bound(value: float, samples: int) -> float:
    """Return by how much a value of an accuracy matrix may differ on another machine.

    A value outside of [0, 1] is no share of test samples.
    """
    return 1 / samples if 0 <= value <= 1 else NUMBER * abs(value)


def differences(kept: Mapping[str, Any], accuracy: Mapping[str, Matrix]) -> list[str]:
    """Return the values that differ by more than their bound, one line each.

    Args:
        kept: `accuracy` and `samples` as in the kept file.
        accuracy: by protocol, the matrices that were found.
    """
    if {*kept["accuracy"]} != {*accuracy}:
        return [f"found the protocols {', '.join(accuracy)}, expected {', '.join(kept['accuracy'])}"]
    shapes = {protocol: [len(row) for row in rows] for protocol, rows in accuracy.items()}
    if others := [one for one, rows in kept["accuracy"].items() if shapes[one] != [len(row) for row in rows]]:
        return [f"{protocol} has another shape" for protocol in others]
    return [
        f"{protocol}[{row}][{column}] is {found}, expected {expected}"
        for protocol, rows in kept["accuracy"].items()
        for row, values in enumerate(rows)
        for column, expected in enumerate(values)
        if not _close(expected, found := accuracy[protocol][row][column], kept["samples"][column])
    ]


def _close(expected: float | None, found: float | None, samples: int) -> bool:
    if expected is None or found is None:
        return expected is found
    return abs(expected - found) <= bound(expected, samples) * (1 + 1e-9)  # the quotients are rounded
