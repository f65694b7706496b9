"""The projection of A-GEM and Fed-A-GEM: the nearest vector that does not point against the reference."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from raysim.algorithms.parts.projection import project

VECTORS = st.lists(st.floats(-10, 10, width=32), min_size=3, max_size=3).map(
    lambda v: torch.tensor(v, dtype=torch.double)
)


def test_by_hand() -> None:
    """g = (1, 1), r = (-2, 0): <g, r> = -2 < 0, <r, r> = 4, so g - (-2/4) r = (1, 1) + (-1, 0) = (0, 1)."""
    assert project(torch.tensor([1.0, 1.0]), torch.tensor([-2.0, 0.0])).tolist() == [0.0, 1.0]


@settings(max_examples=200, deadline=None)
@given(VECTORS, VECTORS, VECTORS)
def test_it_is_the_nearest_admitted_vector(g: torch.Tensor, r: torch.Tensor, other: torch.Tensor) -> None:
    """The admitted set {v: <v, r> >= 0} is a half space; its nearest point to g is no farther than any admitted v."""
    p = project(g, r)
    scale = 1 + float(g.norm() * r.norm())
    assert float(p @ r) >= -1e-9 * scale
    assert p.norm() <= g.norm() + 1e-9
    torch.testing.assert_close(project(p, r), p, rtol=1e-9, atol=1e-9)
    if other @ r >= 0:
        assert (g - p).norm() <= (g - other).norm() + 1e-9


def test_what_does_not_point_against_it_keeps_its_bits() -> None:
    """<g, r> = 0.1: g is admitted, so its own nearest point. g - 0 r would make -0.0 - (-0.0) = 0.0 of its -0.0."""
    g = torch.tensor([0.1, -0.0, 3e-39])
    found = project(g.clone(), torch.tensor([1.0, -1.0, 0.0]))
    assert torch.equal(found.view(torch.int32), g.view(torch.int32))


@pytest.mark.parametrize("entry", [0.0, float("nan"), float("inf")])
def test_a_reference_of_no_use_changes_nothing(entry: float) -> None:
    """r = 0 admits every vector, and <g, r> / <r, r> is 0/0; without finite entries it has no direction."""
    g = torch.tensor([-1.0, 2.0])
    assert torch.equal(project(g, torch.tensor([entry, 0.0])), g)


def test_the_reference_counts_by_its_direction_alone() -> None:
    """<g, c r> / <c r, c r> c r = <g, r> / <r, r> r; here <g, r> = -2 + 0.3 + 0.5 < 0, so that it is projected."""
    g, r = torch.tensor([1.0, 1.0, 0.5]).double(), torch.tensor([-2.0, 0.3, 1.0]).double()
    torch.testing.assert_close(project(g, r), project(g, 1000 * r), rtol=1e-12, atol=0)
    assert not torch.equal(project(g, r), g)
