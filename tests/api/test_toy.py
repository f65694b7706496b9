"""The example in raysim.api's docstring runs."""

import doctest

import raysim.api


def test_the_first_example_runs():
    result = doctest.testmod(raysim.api)
    assert result.attempted >= 5
    assert not result.failed
