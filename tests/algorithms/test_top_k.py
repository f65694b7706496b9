"""Top-k with error feedback (Stich et al., NeurIPS 2018; Aji and Heafield, EMNLP 2017), against NumPy and by hand."""

import math

import numpy as np
import pytest
import torch
from costs import cost_of
from encoding_oracle import encoded_fedavg
from hypothesis import given, settings
from hypothesis import strategies as st

from raysim.algorithms.top_k import TopK, keep_largest
from raysim.engine.compatibility import check_methods
from raysim.federation.federation import build_federation
from raysim.system.errors import ConfigError

# an entry and its place
SMALL_RUN = {"bytes_up": 4 + 4}

SOFTMAX = {"name": "probes:softmax"}
DRAWS = np.random.default_rng(0)


def largest(vector, count):
    """The positions of the largest magnitudes in NumPy, of equal ones those of lower index."""
    return np.sort(np.lexsort((np.arange(len(vector)), -np.abs(vector)))[:count])


def test_by_hand():
    """Magnitudes 3, 1, 0.5, 3, 2, 0: the three largest are at 0, 3 and 4. Each takes 4 bytes, and 4 for its place."""
    sent = keep_largest(torch.tensor([3.0, -1.0, 0.5, -3.0, 2.0, 0.0]), 3)
    assert sent.indices.tolist() == [0, 3, 4]
    assert sent.values.tolist() == [3.0, -3.0, 2.0]
    assert sent.decode().tolist() == [3.0, 0.0, 0.0, -3.0, 2.0, 0.0]
    assert sent.nbytes == 3 * (4 + 4)
    assert keep_largest(torch.ones(6, dtype=torch.float64), 3).nbytes == 3 * (4 + 8)


def test_of_equal_ones_the_first_are_sent():
    assert keep_largest(torch.tensor([1.0, 2.0, -1.0, 1.0]), 2).indices.tolist() == [0, 1]
    signs = torch.from_numpy(DRAWS.choice([-1.0, 1.0], 5000))
    assert keep_largest(signs, 1234).indices.tolist() == [*range(1234)]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(-4, 4), min_size=1, max_size=40), st.data())
def test_it_is_that_of_numpy_and_a_contraction(entries, data):
    """Few different magnitudes, so that many are equal. Lemma A.1 of Stich: |C(v) - v|^2 <= (1 - k/d) |v|^2."""
    count, vector = data.draw(st.integers(1, len(entries))), np.array(entries, np.float64)
    sent = keep_largest(torch.from_numpy(vector), count)
    assert sent.indices.tolist() == largest(vector, count).tolist()
    lost = vector - sent.decode().numpy()
    assert (lost**2).sum() <= (1 - count / len(vector)) * (vector**2).sum() + 1e-12
    assert len(sent.values) == count


def test_what_is_not_finite_is_sent():
    """So that the run that diverges is refused, which it would not be if a NaN were left for later."""
    assert math.isnan(keep_largest(torch.tensor([9.0, math.nan, 8.0]), 1).values[0])


def halves(count, **knobs):
    return [TopK.Client("top_k", TopK(**knobs)) for _ in range(count)]


def test_all_that_is_sent_and_what_is_left_is_all_there_was():
    """e_T + sum C(p_t) = sum x_t. Of whole numbers, exactly; else up to one rounding of x + e in each of T rounds.

    A rounding is at most 2^-24 of |x + e|, of which 20 rounds of |x| <= 5 make no more than 100.
    """
    for draw, allowed in (
        (lambda: DRAWS.integers(-1000, 1000, 50).astype(np.float64), 0.0),
        (lambda: DRAWS.uniform(-5, 5, 50).astype(np.float32), 20 * 100 * 2.0**-24),
    ):
        (half,) = halves(1, fraction=0.1)
        given_in, sent = np.zeros(50), np.zeros(50)
        for _ in range(20):
            vector = draw()
            given_in += vector
            sent += half.encode("update", torch.from_numpy(vector), DRAWS).decode().numpy()
            assert np.abs(given_in - sent - half.residuals["update"].numpy()).max() <= allowed
        assert np.abs(half.residuals["update"].numpy()).max() > 1  # most of it is still to be sent


def test_without_feedback_nothing_is_kept():
    (half,) = halves(1, fraction=0.1, feedback=False)
    vector = torch.arange(10.0)
    assert half.encode("update", vector, DRAWS).decode().tolist() == [0.0] * 9 + [9.0]
    assert half.residuals == {}


def test_each_vector_has_a_residual_of_its_own():
    (half,) = halves(1, fraction=0.5, vectors="all")
    half.encode("update", torch.tensor([1.0, 2.0]), DRAWS)
    half.encode("m.term", torch.tensor([30.0, 4.0]), DRAWS)
    assert {name: e.tolist() for name, e in half.residuals.items()} == {"update": [1.0, 0.0], "m.term": [0.0, 4.0]}
    (half,) = halves(1, fraction=0.5)
    vector = torch.tensor([30.0, 4.0])
    assert half.encode("m.term", vector, DRAWS) is vector


@pytest.mark.parametrize("count", [3, 2])
@pytest.mark.parametrize("feedback", [True, False])
def test_a_run_is_algorithm_1_in_numpy(tiny, simulate, count, feedback):
    """Two tasks of four rounds, softmax regression of 28 parameters in float64, of which 6 are sent; also in turns."""
    knobs = {"fraction": 0.2, "feedback": feedback}
    more = {"participation": {"count": count}, "training__rounds_per_task": 4}
    config = tiny(model=SOFTMAX, methods={"top_k": knobs}, **more)
    federation, left = build_federation(config), {}

    def encode(client, phase, update):
        wanted = update + left.get(client, 0.0)
        places = largest(wanted, 6)
        sent = np.zeros_like(wanted)
        sent[places] = wanted[places]
        if feedback:
            left[client] = wanted - sent
        return sent

    run = simulate(config, federation)
    wanted = encoded_fedavg(config, federation, [done.cohort for done in run.rounds], encode)
    np.testing.assert_allclose(run.simulation.server.parameters.numpy(), wanted, rtol=0, atol=1e-11)
    for number, client in run.simulation.runner.host.clients.items():
        kept = client.halves["top_k"].residuals
        assert [*kept] == (["update"] if number in left else [])
        for residual in kept.values():
            np.testing.assert_allclose(residual.numpy(), left[number], rtol=0, atol=1e-11)


def test_bytes_by_hand(tiny, simulate):
    """Of 59 float32 a tenth is 6, in 8 bytes each: 48 for an update, of 3 clients in 4 rounds.

    Fed-A-GEM's memory gradients, as long as the model: whole 236 bytes, or 48 as well. A client has a memory from its
    first phase on, so that in each of 4 rounds all 3 send one. The check before the run says the same.
    """
    for methods, up in (
        ({"top_k": {"fraction": 0.1}}, {"model": 48}),
        ({"fed_a_gem": {}, "top_k": {"fraction": 0.1}}, {"model": 48, "fed_a_gem": 236}),
        ({"top_k": {"fraction": 0.1, "vectors": "all"}, "fed_a_gem": {}}, {"model": 48, "fed_a_gem": 48}),
    ):
        config = tiny(methods=methods)
        wanted = {name: 3 * 4 * nbytes for name, nbytes in up.items()}
        traffic = simulate(config).simulation.exchange.traffic
        assert traffic.up == sum(wanted.values())
        assert cost_of(config).up == wanted
        assert traffic.down >= 3 * 4 * 236  # the model comes whole


def test_one_entry_at_least_is_sent(tiny, simulate):
    """A hundredth of 59 is none: 8 bytes of each of 3 clients; BatchNorm's 10 float32 and its count go whole."""
    assert simulate(tiny(methods={"top_k": {}})).rounds[0].bytes_up == 3 * 8
    normalised = simulate(tiny(methods={"top_k": {}}, model__batch_norm=True))
    assert normalised.rounds[0].bytes_up == 3 * (8 + 10 * 4 + 8)


def test_a_second_encoding_is_refused(tiny):
    with pytest.raises(ConfigError, match="top_k and quantize each override the hook encode, allowed: one of them"):
        check_methods(tiny(methods={"top_k": {}, "quantize": {}}))


@pytest.mark.parametrize("wrong", [0.0, 1.5])
def test_other_fractions_are_refused(tiny, wrong):
    with pytest.raises(ConfigError, match=r"methods\.top_k\.fraction"):
        tiny(methods={"top_k": {"fraction": wrong}})
