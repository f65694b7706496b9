"""Grid of DELTAS: steps of 2^-44, values up to 2^18. WIDE: two limbs, 2^-34 and 2^-76, values up to 2^28."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from raysim.engine.exact_sum import DELTAS, WIDE, ExactSum, OutOfRange, magnitude
from raysim.engine.replies import Reply
from raysim.system.errors import RunError

GRIDS = pytest.mark.parametrize("grid", [DELTAS, WIDE], ids=["deltas", "wide"])


def total(grid, pairs):
    made = ExactSum(grid)
    for value, weight in pairs:
        made.add(value, weight)
    return made


def limbs(sums):
    sums.unpack()
    return sums.limbs


def same(one, other):
    return (limbs(one) == limbs(other)).all() and one.weight == other.weight


@st.composite
def magnitudes(draw):
    """A float of any exponent from 2^-80 to 2^17."""
    return draw(st.floats(-1, 1)) * 2.0 ** draw(st.integers(-80, 17))


@st.composite
def clients(draw):
    """Values [3] and weights of sum about 1 for up to 8 clients, the host of each, and the hosts in some order."""
    count = draw(st.integers(1, 8))
    values = draw(st.lists(st.lists(magnitudes(), min_size=3, max_size=3), min_size=count, max_size=count))
    raw = draw(st.lists(st.floats(1e-6, 1), min_size=count, max_size=count))
    hosts = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    weights = [w / math.fsum(raw) for w in raw]
    order = draw(st.permutations(range(count)))
    return values, weights, hosts, order, draw(st.permutations(range(4)))


@GRIDS
@settings(max_examples=60, deadline=None)
@given(clients())
def test_no_packing_and_no_order_changes_a_bit(grid, drawn):
    values, weights, hosts, order, merging = drawn
    values = [torch.tensor(v, dtype=torch.float64) for v in values]
    whole = total(grid, zip(values, weights, strict=True))
    parts = {host: ExactSum(grid) for host in range(4)}  # some stay empty: hosts with no client of the cohort
    for k in order:
        parts[hosts[k]].add(values[k], weights[k])
    merged = ExactSum(grid)
    for host in merging:
        merged.merge(parts[host])
    assert same(whole, merged)
    assert torch.equal(whole.mean(), merged.mean())


@GRIDS
@settings(max_examples=60, deadline=None)
@given(clients())
def test_the_mean_is_that_of_fractions(grid, drawn):
    """Every client adds half a step of the last limb and one rounding of the product; reading off adds 3 roundings.

    |error of sum| <= n/2 * 2^-bits + sum |v w| * 2^-53; the weights are off by at most 2^-63 each.
    """
    values, weights, *_ = drawn
    mean = total(grid, [(torch.tensor(v, dtype=torch.float64), w) for v, w in zip(values, weights, strict=True)]).mean()
    for column in range(3):
        products = [Fraction(v[column]) * Fraction(w) for v, w in zip(values, weights, strict=True)]
        exact = sum(products) / sum(map(Fraction, weights))
        allowed = len(weights) * Fraction(2) ** -(grid.bits[-1] + 1) + sum(map(abs, products)) * Fraction(2) ** -53
        allowed += sum(map(abs, products)) * Fraction(2) ** -51
        assert abs(Fraction(float(mean[column])) - exact) <= allowed * Fraction(101, 100)


def test_a_step_of_the_grid_is_kept_and_half_of_it_is_rounded_to_even():
    sums = total(DELTAS, [(torch.tensor([2.0**-44, 2.0**-45, 3 * 2.0**-45, -(2.0**-46)], dtype=torch.float64), 1.0)])
    assert limbs(sums).tolist() == [[1, 0, 2, 0]]
    assert sums.mean().tolist() == [2.0**-44, 0.0, 2.0**-43, 0.0]


@GRIDS
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, "above", "below"])
def test_what_is_not_finite_or_too_large_is_refused(grid, bad):
    above = math.nextafter(grid.bound, math.inf)
    bad = {"above": above, "below": -above}.get(bad, bad)
    with pytest.raises(OutOfRange, match="allowed: finite and at most"):
        grid.check(float(magnitude(torch.tensor([0.0, bad], dtype=torch.float64))))
    grid.check(float(magnitude(torch.tensor([0.0, -grid.bound], dtype=torch.float64))))


@GRIDS
@pytest.mark.parametrize("count", [1, 3, 7, 1000])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_values_do_not_overflow(grid, count, sign):
    """count clients at the bound, weight 1/count each: the first limb reaches bound * 2^bits = 2^62 < 2^63."""
    value = torch.tensor([sign * grid.bound], dtype=torch.float64)
    sums = total(grid, [(value, 1 / count)] * count)
    assert abs(int(limbs(sums)[0, 0]) - sign * 2**62) <= 2**62 * count * 2.0**-53 + count
    assert sums.mean().item() == pytest.approx(sign * grid.bound, rel=1e-14)


@GRIDS
def test_a_part_of_one_client_is_as_long_as_what_it_sends_and_merges_to_the_same_bits(grid):
    """A host that has one client of the cohort says its value, of the sender's dtype; the sum is made where it goes."""
    values, weights = [torch.tensor([0.1 * k, -7.0 / 3], dtype=torch.float32) for k in range(3)], [0.2, 0.5, 0.3]
    whole, merged = total(grid, zip(values, weights, strict=True)), ExactSum(grid)
    for value, weight in zip(values, weights, strict=True):
        part = ExactSum(grid)
        part.hold(value, weight)
        value.zero_()  # its sender may overwrite it
        assert part.limbs is None
        assert part.single[0].dtype == torch.float32
        merged.merge(part)
    assert same(whole, merged)


def test_two_limbs_keep_a_small_value_beside_a_large_one():
    """1e-10 is 7.6e12 steps of 2^-76, so a third of it is rounded by 1e-13 of itself; of 2^-44, it is 1759 steps."""
    value = torch.tensor([1e-10, 1e5], dtype=torch.float64)
    wide = total(WIDE, [(value, 1 / 3)] * 3).mean()
    assert wide[0].item() == pytest.approx(1e-10, rel=2e-13)
    assert wide[1].item() == pytest.approx(1e5, rel=1e-15)
    one = total(DELTAS, [(value, 1 / 3)] * 3).mean()
    assert abs(one[0].item() / 1e-10 - 1) > 1e-6


def test_a_small_value_survives_large_ones_that_cancel():
    """(1e5 + 1e-10 - 1e5) / 3 in any order; floats would give 0 or a multiple of 2^-36."""
    values = [torch.tensor([v], dtype=torch.float64) for v in (1e5, 1e-10, -1e5)]
    for order in ((0, 1, 2), (2, 0, 1), (1, 0, 2)):
        mean = total(WIDE, [(values[k], 0.25) for k in order]).mean()
        assert mean.item() == pytest.approx(1e-10 / 3, rel=1e-12)


def test_a_total_is_the_sum_over_those_who_spoke():
    """Five were asked, weight 1/5 each, three spoke: 1 + 2 + 4 = 7, not 7 / 3 * 5."""
    sums = total(WIDE, [(torch.tensor([v]), 1 / 5) for v in (1.0, 2.0, 4.0)])
    assert sums.total(5).item() == pytest.approx(7.0, rel=1e-12)
    assert sums.mean().item() == pytest.approx(7 / 3, rel=1e-12)


def test_a_mean_counts_only_the_weights_that_came():
    """Weights 0.5 and 0.25 of three came: (0.5 * 3 + 0.25 * 9) / 0.75 = 5."""
    assert total(DELTAS, [(torch.tensor(3.0), 0.5), (torch.tensor(9.0), 0.25)]).mean().item() == 5.0


def test_the_mean_of_nothing_is_an_error_and_nothing_merges_to_nothing():
    with pytest.raises(RunError, match="found weights of 0 for all clients of a mean, allowed: one above 0"):
        ExactSum(DELTAS).mean()
    with pytest.raises(RunError, match="found weights of 0"):
        total(DELTAS, [(torch.tensor([1.0]), 0.0)]).mean()
    empty = ExactSum(DELTAS)
    empty.merge(ExactSum(DELTAS))
    assert empty.limbs is None


def test_a_vector_of_no_values_has_a_mean_of_no_values():
    assert total(WIDE, [(torch.zeros(0), 0.5), (torch.zeros(0), 0.5)]).mean().shape == (0,)


def test_merging_leaves_the_other_sum_as_it_was():
    mine, other = (total(DELTAS, [(torch.tensor([v]), 0.5)]) for v in (1.0, 2.0))
    mine.merge(other)
    mine.add(torch.tensor([8.0]), 0.0)
    assert other.mean().item() == 2.0
    fresh = ExactSum(DELTAS)
    fresh.merge(other)
    fresh.add(torch.tensor([4.0]), 0.5)
    assert other.mean().item() == 2.0
    assert fresh.mean().item() == 3.0


def test_replies_add_up_parts_and_leave_them_as_they_were():
    """Two hosts' means of 1 and 3, each of weight 1/2, are 2."""
    parts = []
    for value in (1.0, 3.0):
        part = Reply(2, sums={"x": total(DELTAS, [(torch.tensor([value]), 0.5)])}, steps=int(value))
        parts.append(part)
    merged = Reply(2)
    for part in parts:
        merged.merge(part)
    assert merged.sums["x"].mean().tolist() == [2.0]
    assert [part.sums["x"].mean().tolist() for part in parts] == [[1.0], [3.0]]
    assert merged.steps == 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shape_is_kept_and_the_result_is_float64(dtype):
    mean = total(DELTAS, [(torch.ones(2, 3, dtype=dtype), 1.0)]).mean()
    assert mean.shape == (2, 3)
    assert mean.dtype == torch.float64


def test_weights_that_could_overflow_are_refused_before_they_are_added():
    """At the bound a weight of 1 fills 2^62; two of them would wrap to -2^63, and 4 casts to garbage."""
    value = torch.tensor([DELTAS.bound], dtype=torch.float64)
    sums = total(DELTAS, [(value, 0.75)])
    for weight in (0.5, 4.0, -0.25):
        with pytest.raises(ValueError, match="a sum of at most 1"):
            sums.add(value, weight)
    assert sums.weight == 3 * 2**60
    with pytest.raises(ValueError, match=r"found weights of sum 1\.5"):
        sums.merge(total(DELTAS, [(value, 0.75)]))
    sums.add(value, 0.25)
    assert sums.mean().item() == DELTAS.bound
