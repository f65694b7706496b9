"""Every method against its reference in plain torch, in float64. The references are in tools/twins/."""

from dataclasses import replace
from pathlib import Path

import pytest
from twins.__main__ import CLOSES, OPENS
from twins.twins import TWINS

PAGE = Path(__file__).parents[2] / "docs" / "twins.md"

ALSO_IN_NUMPY = {"FedProx", "SCAFFOLD", "EWC", "FedCurv", "LwF", "ER", "A-GEM", "GPM", "FOT", "Ditto", "FedPer"}
ALSO_IN_NUMPY |= {"LoRM", "PILoRA"}
OF_A_TESTED_PATH = {"EWC, vectorised", "LwF, vectorised", "MFCL, two passes"}


def twins():
    """All twins; `make test` leaves out those that another test computes in NumPy as a whole run, and like cases."""
    for twin in TWINS:
        marks = [pytest.mark.soak] if twin.name in ALSO_IN_NUMPY | OF_A_TESTED_PATH else []
        yield pytest.param(twin, id=twin.name, marks=marks)


@pytest.mark.parametrize("twin", [*twins()])
def test_a_method_is_its_reference(twin, quiet_torch):
    """Rounding adds up to some 1e-13; the server rounds sums to multiples of 2^-44, which is 6e-14."""
    difference, plain = twin.compare()
    assert difference < twin.bound
    assert plain > 1e-3


def test_re_feds_pull_decides_on_the_caches(quiet_torch):
    """A pull that is a tenth stronger makes other caches, so a wrong one shows."""
    (twin,) = (twin for twin in TWINS if twin.name == "Re-Fed")
    stronger = replace(twin, given={**twin.given, "lam": 0.9 * twin.given["lam"]})
    assert stronger.compare()[0] > 1e-3


@pytest.mark.soak
def test_targets_student_decides_on_the_images(quiet_torch):
    """A rate of the student that does not fall makes other images, so a wrong one shows."""
    (twin,) = (twin for twin in TWINS if twin.name == "TARGET, student")
    assert replace(twin, given={**twin.given, "falls": False}).compare()[0] > 1e-3


def test_the_page_has_every_twin():
    text = PAGE.read_text(encoding="utf-8")
    rows = [line for line in text.split(OPENS)[1].split(CLOSES)[0].splitlines() if "e-" in line]
    assert [row.split(" | ")[0][2:] for row in rows] == [twin.name for twin in TWINS]
    assert {row.count("|") for row in rows} == {6}  # five cells
