"""Accuracy matrices on other machines: how far rounding alone may move them.

**A share of test samples** (accuracy, and every metric between 0 and 1) may differ by one test sample of n, 1/n.

- A golden run makes at most 2^14 operations in a row, each on the result of the one before: 48 local steps, with up to
  350 additions in each for the sums of a forward and a backward pass.
- float32 rounds each with a relative error of at most 2^-24. Errors that all add up are 2^-10 of a logit.
- So a sample's answer can change only if its two best logits differ by less than 2^-10 of their size. Of 48 samples with
  differences that are spread over that size, 48 x 2^-10 = 0.05 are so close. Two of them in one test set have a
  probability of 0.05^2 / 2, which is one in 900.

**Another number**, such as perplexity, may differ by 2^-10 of itself, as it is continuous in the logits.

bfloat16 rounds by 2^-8, but such runs sum in float32, and their weights are float32.
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
