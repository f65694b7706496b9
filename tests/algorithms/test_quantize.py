"""QSGD (Alistarh et al., NeurIPS 2017): its quantiser Q_s, by hand, in closed form and in NumPy."""

import math

import numpy as np
import pytest
import torch
from costs import cost_of
from encoding_oracle import encoded_fedavg
from hypothesis import given, settings
from hypothesis import strategies as st

from raysim.algorithms.quantize import (
    Quantize,
    QuantizedVector,
    levels_of,
    pack_codes,
    quantize,
    unpack_codes,
    variance_bound,
)
from raysim.federation.federation import build_federation
from raysim.system.errors import ConfigError
from raysim.system.seeding import generator

# codes of a byte for 59 parameters, and a norm
SMALL_RUN = {"bytes_up": 59 + 4}

DRAWS = np.random.default_rng(0)
BITS = {2: 1, 4: 7, 8: 127}
VECTORS = st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=30).map(lambda v: np.array(v, np.float64))


def drawn(vector, levels, uniform, bucket=None, norm="l2"):
    """What the levels decode to, without packing."""
    vector, uniform = torch.as_tensor(vector), torch.as_tensor(uniform, dtype=torch.float64)
    bucket = bucket or len(vector)
    steps, found = quantize(vector, levels, bucket, norm, uniform)
    return (found * steps.repeat_interleave(bucket)[: len(vector)]).numpy()


def half_of(**knobs):
    return Quantize.Client("quantize", Quantize(**knobs))


def test_levels_beside_zero():
    assert {bits: levels_of(bits) for bits in BITS} == BITS


def test_codes_by_hand():
    """Two bits: 1 + 2 * 4 + 3 * 16 + 0 * 64 = 57, then 2. Four: 15 + 1 * 16 = 31, then 7. Eight: as they are."""
    for bits, codes, packed in ((2, [1, 2, 3, 0, 2], [57, 2]), (4, [15, 1, 7], [31, 7]), (8, [255, 0, 3], [255, 0, 3])):
        codes = torch.tensor(codes, dtype=torch.uint8)
        assert pack_codes(codes, bits).tolist() == packed
        assert unpack_codes(pack_codes(codes, bits), bits, len(codes)).tolist() == codes.tolist()


@pytest.mark.parametrize("bits", BITS)
def test_every_code_of_every_length_comes_back(bits):
    for length in (*range(1, 12), 1000):
        codes = torch.from_numpy(DRAWS.integers(0, 2**bits, length, dtype=np.uint8))
        packed = pack_codes(codes, bits)
        assert len(packed) == math.ceil(length * bits / 8)
        assert torch.equal(unpack_codes(packed, bits, length), codes)


def test_levels_by_hand():
    """|(3, -4)| = 5 and s = 7: 7 * 3/5 = 4.2 and 7 * 4/5 = 5.6, up where the draw is below 0.2 and below 0.6."""
    for uniform, levels in (([0.19, 0.59], [5, -6]), ([0.21, 0.61], [4, -5]), ([0.0, 0.999], [5, -5])):
        steps, found = quantize(torch.tensor([3.0, -4.0]), 7, 2, "l2", torch.tensor(uniform, dtype=torch.float64))
        assert found.tolist() == levels
        assert steps.tolist() == pytest.approx([5 / 7])
    # largest entry 4: 7 * 3/4 = 5.25; the largest itself is a level
    assert quantize(torch.tensor([3.0, -4.0]), 7, 2, "max", torch.tensor([0.3, 0.0]))[1].tolist() == [5, -7]


@settings(max_examples=60, deadline=None)
@given(VECTORS, st.sampled_from([*BITS.values()]), st.sampled_from(["l2", "max"]))
def test_it_rounds_up_as_often_as_the_fraction_says(vector, levels, norm):
    """Unbiased in closed form: up if and only if the draw is below f = s |v| / norm - floor, and P(u < f) = f.

    So E Q = sgn(v) step (floor + f) = v. Draws are multiples of 2^-53 in [0, 1), of which ceil(f 2^53) are below f.
    Just below f and just above it, as the two ways to compute f differ in their last bits.
    """
    size = np.sqrt((vector**2).sum()) if norm == "l2" else np.abs(vector).max()
    exact = levels * np.abs(vector) / (size or 1.0)
    fraction = exact - np.floor(exact)
    sure = (fraction > 1e-9) & (fraction < 1 - 1e-9)
    step = size / levels
    for uniform, level in ((fraction - 1e-10, np.floor(exact) + 1), (fraction + 1e-10, np.floor(exact))):
        found = drawn(vector, levels, np.clip(uniform, 0, 1), norm=norm)
        np.testing.assert_allclose(found[sure], (np.sign(vector) * step * level)[sure], rtol=1e-12, atol=1e-300)
    middle = drawn(vector, levels, np.full(len(vector), 0.5), norm=norm)
    assert np.abs(middle - vector).max() <= step / 2 + 1e-9


@settings(max_examples=60, deadline=None)
@given(VECTORS, st.sampled_from([1, 2, 7]), st.sampled_from(["l2", "max"]))
def test_the_mean_is_the_vector_and_the_variance_is_below_lemma_3_1(vector, levels, norm):
    """Over 200 draws at (j + 1/2) / 200, which each entry has to itself: P(u < f) comes out to within 1/400.

    So each mean is within step / 400 and each square within step^2 / 400 of its expectation, step^2 f (1 - f).
    """
    found = np.array([drawn(vector, levels, np.full(len(vector), (j + 0.5) / 200), norm=norm) for j in range(200)])
    size = np.sqrt((vector**2).sum()) if norm == "l2" else np.abs(vector).max()
    step, exact = size / levels, levels * np.abs(vector) / (size or 1.0)
    fraction = exact - np.floor(exact)
    assert np.abs(found.mean(0) - vector).max() <= step / 400 + 1e-12
    squares = ((found - vector) ** 2).mean(0)
    assert np.abs(squares - step**2 * fraction * (1 - fraction)).max() <= step**2 / 200 + 1e-12
    exactly = (step**2 * fraction * (1 - fraction)).sum()
    assert exactly <= variance_bound(len(vector), levels) * (vector**2).sum() * (1 + 1e-9) + 1e-12


def test_the_bound_by_hand_and_a_vector_that_nearly_reaches_it():
    """d = 100 equal entries, s = 1: f = 1/10, so that the variance is 100 |v|^2 0.1 0.9 = 9 |v|^2; the bound is 10.

    Over 1 + bound = 11 it contracts: E |Q/11 - v|^2 = |v|^2 ((1 + 9)/121 - 2/11 + 1) = 0.9008 |v|^2 < 10/11 |v|^2.
    """
    assert variance_bound(100, 1) == 10
    assert variance_bound(512, 127) == 512 / 127**2
    assert variance_bound(512, 7) == pytest.approx(3.2325, abs=1e-4)
    vector = np.ones(100)
    found = np.array([drawn(vector, 1, np.full(100, (j + 0.5) / 1000)) for j in range(1000)])
    assert ((found - vector) ** 2).mean(0).sum() / 100 == pytest.approx(9.0)
    assert ((found / 11 - vector) ** 2).mean(0).sum() / 100 == pytest.approx((1 + 9) / 121 - 2 / 11 + 1)


def test_with_more_levels_it_approaches_the_vector():
    """By less than a step, norm / s, wherever the draws lie."""
    vector = DRAWS.normal(size=300)
    errors = [np.abs(drawn(vector, 4**k, DRAWS.random(300)) - vector).max() for k in range(1, 12)]
    assert all(error <= np.linalg.norm(vector) / 4**k for k, error in enumerate(errors, 1))
    assert errors[-1] < 1e-5


def test_each_bucket_has_a_norm_of_its_own():
    """Of 5 entries in buckets of 2 the last has one: norms 5, 0 and 2; a bucket of zeros stays so."""
    steps, found = quantize(torch.tensor([3.0, -4.0, 0.0, 0.0, -2.0]), 1, 2, "l2", torch.zeros(5, dtype=torch.float64))
    assert steps.tolist() == [5.0, 0.0, 2.0]
    assert found.tolist() == [1, -1, 0, 0, -1]


@pytest.mark.parametrize("norm", ["l2", "max"])
def test_an_entry_alone_in_its_bucket_is_never_above_the_last_level(norm):
    """Its norm may be rounded below it, and then a draw of 0 would round s + tiny up to s + 1, which has no code."""
    vector = torch.from_numpy(DRAWS.lognormal(0, 3, 20000).astype(np.float32))
    for levels in BITS.values():
        steps, found = quantize(vector, levels, 1, norm, torch.zeros(20000, dtype=torch.float64))
        assert found.abs().max() == levels
        np.testing.assert_allclose((found * steps).numpy(), vector.numpy(), rtol=1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("bits", BITS)
def test_what_is_not_finite_is_not_hidden(bits, bad):
    sent = half_of(bits=bits).encode("update", torch.tensor([1.0, bad, 0.0]), DRAWS)
    assert not sent.decode().isfinite().all()


@pytest.mark.parametrize(("bits", "codes"), [(2, 15), (4, 30), (8, 59)])
def test_bytes_by_hand(tiny, simulate, bits, codes):
    """59 entries of 2, 4 or 8 bits are 14.75, 29.5 or 59 bytes, rounded up; a norm of 4 for each bucket.

    One bucket of 512, or 6 of 10. SCAFFOLD's change of its variate goes whole, 236, or as the update does.
    """
    for knobs, norms in (({}, 1), ({"bucket": 10}, 6), ({"bucket": None}, 1)):
        config = tiny(methods={"quantize": {"bits": bits, **knobs}})
        assert [done.bytes_up for done in simulate(config).rounds] == [3 * (codes + 4 * norms)] * 4
        assert cost_of(config).up == {"model": 4 * 3 * (codes + 4 * norms)}
    for vectors, variate in (("update", 236), ("all", codes + 4)):
        config = tiny(methods={"scaffold": {}, "quantize": {"bits": bits, "vectors": vectors}})
        assert simulate(config).simulation.exchange.traffic.up == 4 * 3 * (codes + 4 + variate)
        assert cost_of(config).up == {
            "model": 4 * 3 * (codes + 4),
            "scaffold": 4 * 3 * variate,
        }


@pytest.mark.parametrize("feedback", [False, True])
@pytest.mark.parametrize("norm", ["l2", "max"])
def test_a_run_is_fedavg_of_q_in_numpy(tiny, simulate, norm, feedback):
    """Softmax regression of 28 parameters in float64, buckets of 10, s = 7; two of three clients take part at a time.

    The draws are the client's own of this phase. With feedback, C = Q / (1 + min(d/s^2, sqrt(d)/s)), d = 10.
    """
    knobs = {"bits": 4, "bucket": 10, "norm": norm, "feedback": feedback}
    config = tiny(model={"name": "probes:softmax"}, methods={"quantize": knobs}, participation={"count": 2})
    federation, left = build_federation(config), {}

    def encode(client, phase, update):
        wanted = update + left.get(client, 0.0)
        uniform = generator(config.seed, client, phase, 0, "quantize: update").random(28)
        sent = np.zeros(28)
        for start in range(0, 28, 10):
            part = wanted[start : start + 10]
            size = np.linalg.norm(part) if norm == "l2" else np.abs(part).max()
            exact = 7 * np.abs(part) / size
            up = uniform[start : start + 10] < exact - np.floor(exact)
            sent[start : start + 10] = size * np.sign(part) * (np.floor(exact) + up) / 7
        if feedback:
            sent /= 1 + min(10 / 49, math.sqrt(10) / 7)
            left[client] = wanted - sent
        return sent

    run = simulate(config, federation)
    wanted = encoded_fedavg(config, federation, [done.cohort for done in run.rounds], encode)
    np.testing.assert_allclose(run.simulation.server.parameters.numpy(), wanted, rtol=0, atol=1e-11)
    kept = {number: c.halves["quantize"].residuals for number, c in run.simulation.runner.host.clients.items()}
    assert {number for number, of in kept.items() if of} == {*left}
    for number, residual in left.items():
        np.testing.assert_allclose(kept[number]["update"].numpy(), residual, rtol=0, atol=1e-11)


@pytest.mark.parametrize("bits", BITS)
def test_with_feedback_all_that_is_sent_and_what_is_left_is_all_there_was(bits):
    """e_T + sum C(p_t) = sum x_t up to roundings in float64, 2^-53 of numbers below 1000 in each of 30 rounds."""
    half = half_of(bits=bits, feedback=True, bucket=16)
    given_in, sent = np.zeros(50), np.zeros(50)
    for _ in range(30):
        vector = DRAWS.normal(size=50)
        given_in += vector
        sent += half.encode("update", torch.from_numpy(vector), DRAWS).decode().numpy()
    residual = half.residuals["update"].numpy()
    assert np.abs(given_in - sent - residual).max() <= 30 * 1000 * 2.0**-52
    assert np.abs(residual).max() < 100  # it does not grow: C contracts


def test_what_is_sent_says_nothing_more_than_its_fields():
    sent = half_of(bits=2, bucket=4).encode("update", torch.arange(10.0), DRAWS)
    assert isinstance(sent, QuantizedVector)
    assert (len(sent.steps), len(sent.codes), sent.nbytes) == (3, 3, 3 * 4 + 3)
    assert (sent.bits, sent.bucket, sent.length) == (2, 4, 10)


@pytest.mark.parametrize("wrong", [{"bits": 3}, {"bits": 16}, {"bucket": 0}, {"norm": "l1"}])
def test_other_knobs_are_refused(tiny, wrong):
    with pytest.raises(ConfigError, match=r"methods\.quantize\."):
        tiny(methods={"quantize": wrong})
