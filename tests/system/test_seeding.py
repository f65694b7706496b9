"""The golden numbers pin the streams: whoever changes them changes every result that anybody has published.

They were computed apart from raysim: BLAKE2b of, for each part of the name, a 4-byte little-endian length and the
UTF-8 text "TYPE:VALUE"; PCG64 seeded with the digest read as a little-endian whole number.
"""

import hashlib
import math

import numpy as np
import pytest
import torch

from raysim.engine.orders import RoundInfo
from raysim.system import seeding
from raysim.system.errors import RunError


def test_golden_numbers():
    assert seeding.hashed(0, 3, 1, 0, "batches") == 267179823226649055431014028671555312777
    assert seeding.hashed(7, "cohort", 12) == 278866480666530932582194191495070756368
    assert seeding.hashed(0, "initial weights", bits=64) == 10764647135071475886
    assert seeding.hashed() == 149489604723985495754514632671196997322


def test_the_hash_by_its_definition():
    text = b"\x05\x00\x00\x00int:7" + b"\x0a\x00\x00\x00str:cohort"
    wanted = int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "little")
    assert seeding.hashed(7, "cohort") == wanted


def test_golden_draws():
    assert seeding.generator(0, 3, 1, 0, "batches").permutation(10).tolist() == [7, 3, 1, 4, 6, 8, 0, 5, 9, 2]
    assert seeding.generator(7, "cohort", 12).choice(10, size=4, replace=False).tolist() == [5, 0, 2, 9]


def test_golden_draws_of_torch(quiet_torch):
    seeding.seed_torch(0, "initial weights")
    assert (
        torch.randint(1000, (4,)).tolist()
        == torch.randint(1000, (4,), generator=torch.Generator().manual_seed(10764647135071475886)).tolist()
    )


def test_names_do_not_run_into_one_another():
    names = [("ab", "c"), ("a", "bc"), ("abc",), ("a", "b", "c"), (1,), ("1",), (1, 2), (12,), ("int:1",), (), ("",)]
    names += [(True,), (-1,), (1, ""), ("", 1)]
    assert len({seeding.hashed(*name) for name in names}) == len(names)


def test_bits_bound_the_number():
    drawn = [seeding.hashed("x", k, bits=64) for k in range(200)]
    assert max(drawn) < 2**64
    assert max(drawn) > 2**60
    assert max(seeding.hashed("x", k) for k in range(50)) > 2**120


def test_neighbouring_streams_look_independent():
    """Means of 100 uniform draws for 400 neighbouring names: mean 1/2, sd 1/sqrt(12 * 100); 5 sigma of the mean."""
    means = [seeding.generator(0, client, 1, 0, "batches").random(100).mean() for client in range(400)]
    sigma = 1 / math.sqrt(12 * 100)
    assert abs(np.mean(means) - 0.5) < 5 * sigma / 20
    assert np.std(means) == pytest.approx(sigma, rel=5 / math.sqrt(2 * 400))


def test_torch_is_left_as_it_was_found():
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(), torch.random.get_rng_state()
    with seeding.torch_untouched():
        torch.set_num_threads(before[0] + 1)
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.manual_seed(5)
        torch.rand(3)
        torch.backends.cudnn.benchmark = True
    assert torch.get_num_threads() == before[0]
    assert torch.are_deterministic_algorithms_enabled() == before[1]
    assert not torch.is_deterministic_algorithms_warn_only_enabled()
    assert torch.equal(torch.random.get_rng_state(), before[2])
    assert not torch.backends.cudnn.benchmark


def test_torch_is_left_as_it_was_found_by_what_fails():
    threads, state = torch.get_num_threads(), torch.random.get_rng_state()

    def fail():
        with seeding.torch_untouched():
            torch.set_num_threads(threads + 1)
            torch.manual_seed(5)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.random.get_rng_state(), state)


# client.aside


@pytest.fixture
def client(host_of, tiny, quiet_torch):
    """Makes client 1 of a new host, in its first training phase."""

    def make(phases=1):
        made = host_of(tiny(model__dropout=0.5)).clients[1]
        for number in range(phases):
            made.begin_phase(RoundInfo(number + 1, 0, 0.1), 0.5)
        return made

    return make


def test_the_models_stream_is_named_by_seed_client_phase_and_purpose(client):
    client(phases=2)
    found = torch.rand(3)
    number = seeding.hashed(0, 1, 2, 0, "model", bits=64)
    assert torch.equal(found, torch.rand(3, generator=torch.Generator().manual_seed(number)))


def test_draws_aside_do_not_move_the_models_masks(client):
    one = client()
    dropout = torch.nn.Dropout(0.5)
    alone = [dropout(torch.ones(40)) for _ in range(3)]
    one = client()
    beside = []
    for _ in range(3):
        with one.rng_scope("teacher"):
            dropout(torch.ones(7))
        beside.append(dropout(torch.ones(40)))
        with one.rng_scope("other"):
            torch.randn(5)
    assert all(torch.equal(a, b) for a, b in zip(alone, beside, strict=True))
    assert not torch.equal(alone[0], alone[1])


def test_a_stream_aside_continues_within_a_phase_and_starts_anew_in_the_next(client):
    one = client()
    drawn = []
    for _ in range(2):
        with one.rng_scope("teacher"):
            drawn.append(torch.rand(4))
    number = seeding.hashed(0, 1, 1, 0, "teacher", bits=64)
    assert torch.equal(torch.cat(drawn), torch.rand(8, generator=torch.Generator().manual_seed(number)))
    one.begin_phase(RoundInfo(2, 0, 0.1), 0.5)
    with one.rng_scope("teacher"):
        later = torch.rand(4)
    number = seeding.hashed(0, 1, 2, 0, "teacher", bits=64)
    assert torch.equal(later, torch.rand(4, generator=torch.Generator().manual_seed(number)))


def test_a_stream_aside_inside_itself_goes_on(client):
    """As in an op, which is aside already, and calls what a step calls aside: no number is drawn twice."""
    one, drawn = client(), []
    with one.rng_scope("teacher"):
        drawn.append(torch.rand(2))
        with one.rng_scope("teacher"):
            drawn.append(torch.rand(2))
        with one.rng_scope("other"), one.rng_scope("teacher"):
            drawn.append(torch.rand(2))
        drawn.append(torch.rand(2))
    number = seeding.hashed(0, 1, 1, 0, "teacher", bits=64)
    assert torch.equal(torch.stack(drawn), torch.rand(4, 2, generator=torch.Generator().manual_seed(number)))


def test_a_fixed_stream_aside_starts_anew_and_moves_no_other(client):
    alone = client() and torch.rand(3)
    one, drawn = client(phases=1), []
    for _ in range(2):
        with one.fixed_rng_scope(4, "mask"):
            drawn.append(torch.rand(3))
    number = seeding.hashed(0, 1, 4, "mask", bits=64)
    assert torch.equal(drawn[0], torch.rand(3, generator=torch.Generator().manual_seed(number)))
    assert torch.equal(drawn[0], drawn[1])
    assert torch.equal(torch.rand(3), alone)


@pytest.mark.parametrize("order", ["bb", "cbcb", "bccb", "ccbcb"])
def test_a_stream_aside_is_the_same_whatever_others_draw(client, order):
    def draws(order):
        one = client()
        found = []
        for name in order:
            torch.rand(2)
            with one.rng_scope(name):
                drawn = torch.rand(3)
            if name == "b":
                found.append(drawn)
        return torch.stack(found)

    assert torch.equal(draws(order), draws("bb"))


def test_what_fails_aside_does_not_move_the_models_stream(client):
    client()
    alone = torch.rand(3)
    one = client()

    def fail():
        with one.rng_scope("teacher"):
            torch.rand(9)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert torch.equal(torch.rand(3), alone)


def test_an_exchange_has_streams_of_its_own(client):
    """The name's fourth part counts the exchanges since the last phase: 0 is the phase itself."""
    one = client()
    assert one.generator("x").random() == seeding.generator(0, 1, 1, 0, "x").random()
    one.begin_exchange("x", RoundInfo(1, 0, 0.1), 0.5)
    inside = one.generator("x").random()
    assert inside != seeding.generator(0, 1, 1, 0, "x").random()
    one.begin_phase(RoundInfo(2, 0, 0.1), 0.5)
    assert one.generator("x").random() == seeding.generator(0, 1, 2, 0, "x").random()


# the generators that a process shares


def test_a_global_generator_of_another_kind_is_guarded_too():
    usual = np.random.get_bit_generator()
    np.random.set_bit_generator(np.random.PCG64(0))
    try:
        with seeding.guard_globals("nobody", "server"):
            np.random.default_rng(0).random()
        with pytest.raises(RunError, match=r"^somebody used NumPy's global generator, which"):
            draw_globally()
    finally:
        np.random.set_bit_generator(usual)


def test_a_draw_that_was_made_ahead_is_guarded_too():
    """NumPy draws normal numbers in pairs and keeps the second one, so that its own draw moves no word of the state."""
    with seeding.generators_restored():
        np.random.seed(0)
        np.random.randn()
        with pytest.raises(RunError, match="used NumPy's global generator, which"):
            draw_globally(np.random.randn)


def draw_globally(draw=lambda: np.random.random(2)):
    with seeding.guard_globals("somebody", "server"):
        draw()
