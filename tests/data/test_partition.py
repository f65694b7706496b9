import itertools

import numpy as np
import pytest

from raysim.data.partition import dirichlet, iid, pathological, quantity, shards
from raysim.system.errors import ConfigError

MNIST_COUNTS = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]


def mixed(counts, seed=0) -> np.ndarray:
    """Labels with these class counts, in random order."""
    labels = np.repeat(np.arange(len(counts)), counts)
    return np.random.default_rng(seed).permutation(labels)


DEALS = {
    "pathological": lambda labels, generator: pathological(labels, 7, generator, classes_per_client=2),
    "quantity": lambda labels, generator: quantity(labels, 7, generator, alpha=0.5, min_samples=2),
    "iid": lambda labels, generator: iid(labels, 7, generator),
    "shards": lambda labels, generator: shards(labels, 7, generator, shards_per_client=3),
    "dirichlet": lambda labels, generator: dirichlet(labels, 7, generator, alpha=0.5, min_samples=2, balanced=False),
    "dirichlet balanced": lambda labels, generator: dirichlet(
        labels, 7, generator, alpha=0.5, min_samples=2, balanced=True
    ),
}


@pytest.mark.parametrize("deal", DEALS.values(), ids=DEALS)
def test_every_row_goes_to_one_client(deal):
    labels = mixed([120, 77, 1, 205, 98])
    for seed in range(20):
        parts = deal(labels, np.random.default_rng(seed))
        assert len(parts) == 7
        assert all(part.dtype == np.int32 and len(part) for part in parts)
        assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))
        assert all((np.diff(part) > 0).all() for part in parts)


@pytest.mark.parametrize("deal", DEALS.values(), ids=DEALS)
def test_the_generator_decides(deal):
    labels = mixed([100, 100, 100])
    first, again, other = (deal(labels, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_iid_sizes_and_mixture():
    labels = mixed([3000] * 4)
    parts = iid(labels, 7, np.random.default_rng(0))
    assert sorted(len(part) for part in parts) == [1714] * 5 + [1715] * 2
    # 4 classes of ~428 per client; the standard deviation of such a count is about 17
    assert all(abs(np.bincount(labels[part]) - 428.5).max() < 5 * 18 for part in parts)


def test_shards_are_runs_of_the_sorted_labels():
    labels = mixed([10, 20, 30])
    parts = shards(labels, 3, np.random.default_rng(3), shards_per_client=2)
    # six shards of ten: one of class 0, two of class 1, three of class 2
    assert [len(part) for part in parts] == [20, 20, 20]
    held = sorted(tuple(np.bincount(labels[part], minlength=3) // 10) for part in parts)
    assert np.sum(held, axis=0).tolist() == [1, 2, 3]
    assert all(np.sum(hand) == 2 for hand in held)


def test_shards_that_do_not_divide_are_near_equal():
    parts = shards(
        mixed([53, 50]), 5, np.random.default_rng(0), shards_per_client=2
    )  # 103 rows in 10 shards of 10 or 11
    assert sum(len(part) for part in parts) == 103
    assert all(20 <= len(part) <= 22 for part in parts)


def test_shards_straddle_the_digits_of_mnist_as_often_as_they_must():
    """Which digits lie in each of 20 shards of 3000 follows from the counts; a client holds a random pair of shards.

    Over the 190 pairs the number of distinct digits is then known; methods.md measured .01/.39/.445/.156 over 200
    seeds of the official code.
    """
    ends = np.cumsum(MNIST_COUNTS)
    digits = [
        {int(np.searchsorted(ends, row, side="right")) for row in (start, start + 2999)}
        for start in range(0, 60000, 3000)
    ]
    pairs = [len(a | b) for a, b in itertools.combinations(digits, 2)]
    exact = np.bincount(pairs, minlength=5)[1:5] / len(pairs)
    assert np.allclose(exact, [0.01, 0.39, 0.445, 0.156], atol=0.015)

    labels = np.repeat(np.arange(10), MNIST_COUNTS)
    held = [
        len(np.unique(labels[part]))
        for seed in range(200)
        for part in shards(labels, 10, np.random.default_rng(seed), shards_per_client=2)
    ]
    # 2000 clients: a frequency of .4 has a standard deviation of .011
    assert np.allclose(np.bincount(held, minlength=5)[1:5] / len(held), exact, atol=0.04)


def overfull(parts, labels, clients) -> bool:
    """Whether a client got rows of a class when it already held its even share from the classes before."""
    for part in parts:
        counts = np.bincount(labels[part], minlength=labels.max() + 1)
        before = np.cumsum(counts) - counts
        if (counts[before >= len(labels) / clients] > 0).any():
            return True
    return False


def test_the_cap_keeps_full_clients_from_more_classes():
    labels = mixed([200] * 5)
    found = {True: 0, False: 0}
    for seed in range(50):
        for balanced in found:
            parts = dirichlet(labels, 4, np.random.default_rng(seed), alpha=0.3, min_samples=1, balanced=balanced)
            found[balanced] += overfull(parts, labels, 4)
    assert found[True] == 0
    assert found[False] > 10


def test_the_minimum_holds_and_is_why_deals_are_repeated():
    labels = mixed([100] * 4)
    smallest = {
        least: [
            min(
                map(len, dirichlet(labels, 5, np.random.default_rng(seed), alpha=0.3, min_samples=least, balanced=True))
            )
            for seed in range(30)
        ]
        for least in (0, 30)
    }
    assert min(smallest[30]) >= 30
    assert min(smallest[0]) < 30


def test_proportions_have_the_moments_of_the_dirichlet():
    """A client's share of a class under Dir(alpha * 1_n): mean 1/n, variance (1/n)(1 - 1/n) / (n alpha + 1)."""
    labels = np.zeros(1000, dtype=np.int64)
    shares = np.array(
        [
            [
                len(part) / 1000
                for part in dirichlet(labels, 5, np.random.default_rng(seed), alpha=0.3, min_samples=0, balanced=False)
            ]
            for seed in range(800)
        ]
    )
    assert np.allclose(shares.mean(0), 0.2, atol=0.04)
    assert abs(shares.var() - 0.2 * 0.8 / (5 * 0.3 + 1)) < 0.006


def test_rows_of_a_class_are_shuffled_before_the_cut():
    """Else the first rows of every class would always go to the first clients."""
    labels = np.zeros(100, dtype=np.int64)
    first = dirichlet(labels, 2, np.random.default_rng(0), alpha=100.0, min_samples=1, balanced=False)[0]
    assert 20 < np.sum(first < 50) < 35  # about half of about fifty


def test_tiny_alpha_deals_everything_even_when_all_the_mass_is_on_full_clients():
    class OneHot(np.random.Generator):
        """All mass on client 0, always."""

        def dirichlet(self, alpha, size=None):
            return np.eye(len(alpha))[0]

    labels = np.repeat([0, 1, 2], [50, 30, 20])
    parts = dirichlet(labels, 2, OneHot(np.random.PCG64(0)), alpha=1e-3, min_samples=1, balanced=True)
    # class 0 fills client 0 to its 100 / 2, so that the others can only go to client 1
    assert [np.bincount(labels[part], minlength=3).tolist() for part in parts] == [[50, 0, 0], [0, 30, 20]]
    for seed in range(100):
        parts = dirichlet(
            mixed([30, 30, 30, 30]), 4, np.random.default_rng(seed), alpha=1e-4, min_samples=0, balanced=True
        )
        assert sum(map(len, parts)) == 120


def test_a_minimum_that_cannot_be_is_refused_at_once():
    with pytest.raises(ConfigError, match="100 samples cannot give 10 clients 11 each; lower it to at most 10"):
        dirichlet(mixed([50, 50]), 10, np.random.default_rng(0), alpha=0.3, min_samples=11, balanced=True)


def test_a_minimum_that_hardly_ever_comes_is_given_up():
    with pytest.raises(
        ConfigError, match=r"alpha 0.01 the smallest of 10 clients never held more than \d of the 9"
    ) as e:
        dirichlet(mixed([50, 50]), 10, np.random.default_rng(0), alpha=0.01, min_samples=9, balanced=True)
    assert "lower min_samples, raise alpha, or have fewer clients" in str(e.value)
    assert "\n" not in str(e.value)


def test_more_parts_than_samples_are_refused():
    labels = mixed([3, 2])
    with pytest.raises(ConfigError, match=r"clients\.count: 6 asks for 6 parts of 5 samples"):
        iid(labels, 6, np.random.default_rng(0))
    with pytest.raises(ConfigError, match=r"partition\.shards_per_client: 2 asks for 6 parts of 5 samples"):
        shards(labels, 3, np.random.default_rng(0), shards_per_client=2)


def test_pathological_clients_have_so_many_classes():
    """5 clients with 2 of 10 classes: every class has one client. With 4 of 10, two: half of its 60 samples each.

    With 3 of 10 there are 15 places: five classes have two clients, five have one.
    """
    labels = mixed([60] * 10)
    for seed in range(20):
        for count, holders in ((2, [1] * 10), (4, [2] * 10), (3, [1] * 5 + [2] * 5)):
            parts = pathological(labels, 5, np.random.default_rng(seed), classes_per_client=count)
            held = np.array([np.bincount(labels[part], minlength=10) for part in parts])
            assert ((held > 0).sum(1) == count).all()
            assert sorted((held > 0).sum(0).tolist()) == holders
            assert set(held[held > 0].tolist()) <= {60, 30}


def test_pathological_says_how_many_classes_it_can_deal():
    for count in (1, 11):
        with pytest.raises(ConfigError) as refused:
            pathological(mixed([6] * 10), 5, np.random.default_rng(0), classes_per_client=count)
        assert str(refused.value) == (
            f"partition.classes_per_client: found {count} for 5 clients and 10 classes, allowed: 2 to 10"
        )


def test_quantities_have_the_moments_of_the_dirichlet():
    """Shares of Dir(0.5 x 4): mean 1/4, variance (1/4)(3/4) / (4 * 0.5 + 1) = 1/16; over 2000 draws their mean's

    standard deviation is 0.25 / sqrt(2000) = 0.0056. The labels stay mixed as they were.
    """
    labels = mixed([500, 500])
    shares = np.array(
        [
            [len(part) / 1000 for part in quantity(labels, 4, np.random.default_rng(seed), alpha=0.5, min_samples=0)]
            for seed in range(2000)
        ]
    )
    assert abs(shares[:, 0].mean() - 0.25) < 5 * 0.0056
    assert abs(shares[:, 0].var() - 1 / 16) < 0.006
    with pytest.raises(ConfigError, match=r"min_samples: found 251, .* of 1000 samples .* allowed: at most 250; "):
        quantity(labels, 4, np.random.default_rng(0), min_samples=251)
