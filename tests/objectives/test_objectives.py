"""The objectives' losses and metrics by hand, and in NumPy."""

import math
import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from raysim.config import load
from raysim.config.lookup import resolve, table
from raysim.data.dataset import Dataset, Split
from raysim.data.loading import check_dataset
from raysim.evaluation.metric_sums import add_exactly, evaluate_metric, merge_sums, stack_sums
from raysim.federation.targets import make_objective
from raysim.objectives import IGNORED, Objective
from raysim.objectives.classification import Classification
from raysim.objectives.multi_label import MultiLabel
from raysim.objectives.next_token import NextToken
from raysim.objectives.regression import Regression
from raysim.system.errors import ConfigError, Diverged, RunError


def metric_value(objective: Objective, outputs: Any, targets: Any, chunk: int = 100) -> float:
    out, true = torch.as_tensor(outputs), torch.as_tensor(targets)
    measured = [
        objective.measure(objective.predict(some), y)
        for some, y in zip(out.split(chunk), true.split(chunk), strict=True)
    ]
    return evaluate_metric(objective, add_exactly(objective, measured), len(true), "task 1")


def test_r2_by_hand() -> None:
    """y = 1 2 3 4, f = 1.5 2 3 3: squared errors 0.25 + 0 + 0 + 1 = 1.25, around the mean 2.5: 5; R2 = 0.75.

    A second number with f = y has 1, and the mean of both is 0.875; with f the mean, 0.
    """
    y = np.array([[1], [2], [3], [4]], np.float32)
    f = np.array([[1.5], [2], [3], [3]], np.float32)
    assert metric_value(Regression(), f, y) == 0.75
    assert metric_value(Regression(), np.hstack([f, y]), np.hstack([y, y])) == 0.875
    assert metric_value(Regression(), np.full((4, 1), 2.5, np.float32), y) == 0.0
    assert Regression().loss(torch.from_numpy(f), torch.from_numpy(y)).item() == 1.25 / 4


def test_r2_of_numbers_far_from_zero_loses_nothing() -> None:
    """y takes 2^23 and 2^23 + 1 in turn, 1001 of each: squares sum to 500.5 around the mean; f is half a unit off.

    R2 = 1 - 2002 / 4 / 500.5 = 0. The sum of y^2 is near 2^57, which float64 has in steps of 16.
    """
    y = (np.arange(2002, dtype=np.float32) % 2 + 2**23)[:, None]
    assert metric_value(Regression(), y.astype(np.float64) + 0.5, y) == 0.0


def test_f1_by_hand() -> None:
    """Label 0: given 1 1 0 0, true 1 0 1 0: TP 1, FP 1, FN 1: F1 = 2/4. Label 1: given and true 1 0 0 0: 1.

    Label 2: never true, never given: 0, as in scikit-learn. Micro: TP 2, FP 1, FN 1: 4/6; macro: (1/2 + 1 + 0) / 3.
    """
    given = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 0], [0, 0, 0]], np.float32)
    true = np.array([[1, 1, 0], [0, 0, 0], [1, 0, 0], [0, 0, 0]])
    assert metric_value(MultiLabel(), given - 0.5, true) == pytest.approx(4 / 6, rel=1e-15)
    assert metric_value(MultiLabel(average="macro"), given - 0.5, true) == 0.5
    logits = torch.tensor([[0.0, math.log(3)]])  # p = 1/2 and 3/4
    wanted = (math.log(2) + math.log(4)) / 2
    assert MultiLabel().loss(logits, torch.tensor([[1, 0]])).item() == pytest.approx(wanted)


def test_perplexity_by_hand() -> None:
    """The tokens that follow have p = 1/2 and 1/4, then 1/8; id 0 is padding. exp((1 + 2 + 3) ln 2 / 3) = 4."""
    others = [1 / 2, 1 / 4, 1 / 8]
    p = torch.tensor([[[0.5, 0.5], [0.75, 0.25]], [[0.875, 0.125], [0.9, 0.1]]], dtype=torch.float64)
    ids = torch.tensor([[1, 1], [1, 0]])
    objective = NextToken(padding=0)
    assert metric_value(objective, p.log(), ids) == pytest.approx(4, rel=1e-12)
    assert objective.loss(p.log(), ids).item() == pytest.approx(-sum(map(math.log, others)) / 3, rel=1e-12)
    assert metric_value(NextToken(), torch.zeros(2, 3, 7), torch.full((2, 3), 6)) == pytest.approx(7, rel=1e-6)


def test_ignored_positions_count_nowhere() -> None:
    """Of the tokens above, the first one is of a prompt: exp((2 + 3) ln 2 / 2) = 2^2.5, with padding or without."""
    p = torch.tensor([[[0.5, 0.5], [0.75, 0.25]], [[0.875, 0.125], [0.9, 0.1]]], dtype=torch.float64)
    for objective, last in ((NextToken(), IGNORED), (NextToken(padding=0), 0)):
        ids = torch.tensor([[IGNORED, 1], [1, last]])
        assert metric_value(objective, p.log(), ids) == pytest.approx(2**2.5, rel=1e-12)
        logits = p.log().requires_grad_()
        objective.loss(logits, ids).backward()
        assert objective.loss(p.log(), ids).item() == pytest.approx(2.5 * math.log(2), rel=1e-12)
        assert logits.grad is not None
        assert logits.grad.any(-1).tolist() == [[False, True], [True, False]]


def test_only_objectives_with_positions_have_ignored_targets() -> None:
    """A dataset may have -100 in targets [N, L]; the objective says whether it ignores them."""
    x, y = np.zeros((2, 3), np.int64), np.array([[IGNORED, 1, 0], [IGNORED, IGNORED, 1]])
    dataset = check_dataset(Dataset(Split(x, y), Split(x, y), classes=2), "texts")
    config = {
        "name": "tiny", "dataset": {"name": "digits"}, "model": {"name": "mlp"}, "clients": {"count": 1},
        "scenario": {"kind": "domain_incremental", "tasks": 1}, "training": {"rounds_per_task": 1},
    }  # fmt: skip
    assert make_objective(load(config, {"objective": "next_token"}), dataset).positions
    with pytest.raises(ConfigError, match="found targets of -100, which only an objective with an output at each pos"):
        make_objective(load(config, {"objective": "multi_label"}), dataset)
    for wrong in (np.array([[IGNORED, 2, 0], [1, 1, 1]]), np.array([[IGNORED, -1, 0], [1, 1, 1]]), y[:, 0]):
        with pytest.raises(ConfigError, match=r"texts, train split: labels run from -?\d+ to -?\d+; allowed are 0..1"):
            check_dataset(Dataset(Split(x, wrong), Split(x, y), classes=2), "texts")


@pytest.mark.parametrize("chunk", [1, 3, 64])
def test_chunks_and_hosts_change_no_bit(chunk: int) -> None:
    draws = torch.Generator().manual_seed(3)
    outputs, targets = torch.randn(50, 2, generator=draws) * 1e3, torch.randn(50, 2, generator=draws)
    assert metric_value(Regression(), outputs, targets, chunk) == metric_value(Regression(), outputs, targets)
    forward = [Regression().measure(outputs, targets)[start : start + chunk] for start in range(0, 50, chunk)]
    hosts = [stack_sums([add_exactly(Regression(), forward[k::3])]) for k in range(3)]
    assert merge_sums(hosts).tolist() == merge_sums(hosts[::-1]).tolist() == [add_exactly(Regression(), forward)]


def test_sums_are_exact() -> None:
    """Of numbers as different as float64 has them, against Python's fractions."""
    numbers = [1e308, 5e-324, -1e308, 0.1, -3.0, 2.0**-1000, 0.0, 1e16, 1.0]
    (total,) = add_exactly(Regression(), [torch.tensor(numbers, dtype=torch.float64)[:, None]])
    assert Fraction(total, 2**1126) == sum(map(Fraction, numbers))
    words = r"^objective: Regression \(.*\).measure returned NaN .* although the model's outputs are finite, allowed"
    with pytest.raises(Diverged, match=words):
        add_exactly(Regression(), [torch.tensor([[1.0], [math.nan]])])


def test_a_host_without_samples_of_a_task_adds_nothing() -> None:
    one, other = stack_sums([[1, 2], []]), stack_sums([[], []])
    assert merge_sums([other, one, stack_sums([[], [5, 6]])]).tolist() == [[1, 2], [5, 6]]
    assert merge_sums([other]).shape == (2, 0)


WRONG = [
    ("classification", np.zeros((3, 1), np.float32), r"targets of float32 \[3, 1\], allowed: labels, int64 \[N\]"),
    ("regression", np.array([1, 2]), r"int64 \[2\], allowed: numbers, float32 \[N, D\]"),
    ("regression", np.array([[1, 2], [3, 2]], np.float32), "all the same, allowed: some that differ"),
    ("multi_label", np.array([[0, 2]]), r"int64 \[1, 2\] up to 2, allowed: 0 or 1 for each label"),
    ("multi_label", np.zeros((2, 2), np.float32), r"float32 \[2, 2\], allowed: 0 or 1"),
    ("next_token", np.array([1, 2]), r"int64 \[2\], allowed: ids of tokens, int64 \[N, length\]"),
    ("next_token", np.array([[1, 0], [0, 0]]), r"a sample of which no token counts, .* \(row 1\)"),
    ("next_token", np.array([[1, 0], [0, IGNORED]]), r"no token counts, only padding or -100 \(row 1\)"),
]


@pytest.mark.parametrize(("name", "targets", "words"), WRONG)
def test_targets_that_do_not_suit_are_named(name: str, targets: Any, words: str) -> None:
    keys = {"padding": 0} if name == "next_token" else {}
    assert re.search(words, resolve("objective", name)(**keys).check(targets, 3))


def test_every_objective_is_whole() -> None:
    for name in table("objective"):
        objective = resolve("objective", name)()
        assert objective.metric.name
        size = objective.outputs(np.zeros((2, 1)), 4)
        assert isinstance(objective.predict(torch.zeros(2, *objective.output_shape((3, 4, 4), size))), Tensor)


def test_a_metric_without_a_value_is_one_line() -> None:
    with pytest.raises(RunError, match=r"Regression \(.*\) has no finite R2 on the test samples of task 1"):
        metric_value(Regression(), np.ones((2, 1)), np.ones((2, 1), np.float32))


class Returns(Regression):
    """Its value is what it was made with."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result

    def value(self, sums: Any, samples: int) -> Any:
        return self.result


@pytest.mark.parametrize("result", [None, "0.5", 1j, math.nan, torch.ones(2), Fraction(10**400)])
def test_a_metric_that_is_no_finite_number_is_named(result: Any) -> None:
    found = re.escape(repr(result)[:60])
    words = rf"^objective: Returns \(.*\) has no finite R2 on .* task 1: found {found}, allowed: a finite number$"
    with pytest.raises(RunError, match=words):
        metric_value(Returns(result), np.ones((2, 1), np.float32), np.ones((2, 1), np.float32))


def test_the_accuracy_as_a_sum() -> None:
    """The largest logits are of 1, 0 (the first of equals) and 2; two of three labels are these."""
    logits = [[0.0, 2.0, 1.0], [3.0, 3.0, 0.0], [0.0, 1.0, 5.0]]
    assert metric_value(Classification(), logits, [1, 1, 2]) == pytest.approx(2 / 3)


def test_an_objective_that_lacks_a_part_cannot_be_made() -> None:
    class Lossless(Regression):
        loss = Objective.loss

    with pytest.raises(TypeError, match=r"abstract method '?loss"):
        Lossless()
