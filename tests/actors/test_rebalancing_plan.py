"""Clients are dealt to hosts by what they are expected to take; no Ray, and seconds are what the test says."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from raysim.actors import rebalancing
from raysim.actors.rebalancing import Rebalancing
from raysim.engine.orders import Call, Operation, Order, RoundInfo, Train

SAMPLES = 600  # 60 ms at the pace that is assumed before any was measured

TRAIN = Train()


def dealt(homes: Sequence[Sequence[int]], sizes: Mapping[int, int] | None = None, fixed: bool = False) -> Rebalancing:
    return Rebalancing(homes, lambda client, window: (sizes or {}).get(client, SAMPLES), fixed)


def order(
    clients: Sequence[int],
    round: int = 1,
    operation: Operation = TRAIN,
    windows: Mapping[int, int] | None = None,
) -> Order:
    return Order(operation, tuple(clients), {}, len(clients), RoundInfo(round, 0, 0.1), windows or {})


def play(
    made: Rebalancing, cohorts: Sequence[Sequence[int]], takes: Callable[[int, int], float], first: int = 1
) -> list[int]:
    """Do rounds whose clients take what `takes(client, host)` says; return how many clients moved in each."""
    moved = []
    for round, cohort in enumerate(cohorts, first):
        moves = made.plan_moves(order(cohort, round))
        moved.append(sum(map(len, moves.values())))
        for host in sorted({made.home[client] for client in cohort}):
            own = [client for client in cohort if made.home[client] == host]
            made.add_times(host, {client: takes(client, host) for client in own})
    return moved


def ends(made: Rebalancing, cohort: Sequence[int], takes: Callable[[int, int], float], hosts: int) -> list[float]:
    """Return the seconds for which each host computes."""
    return [sum(takes(k, h) for k in cohort if made.home[k] == h) for h in range(hosts)]


def test_the_fuller_host_gives_to_the_emptier_one_and_what_moved_stays() -> None:
    """Five of six equal clients live on host 0: 5 and 1 become 3 and 3. A later cohort of one from each stays."""
    made = dealt([[0, 1, 2, 3, 4, 6], [5, 7]])
    moves = made.plan_moves(order([0, 1, 2, 3, 4, 5]))
    ((way, gone),) = moves.items()
    assert way == (0, 1)
    assert len(gone) == 2
    assert made.clients_of(1) == sorted([*gone, 5, 7])
    assert made.plan_moves(order([6, 7], round=2)) == {}
    assert made.clients_of(1) == sorted([*gone, 5, 7])


def test_a_client_moves_with_its_first_order_of_a_round_only() -> None:
    """Between two orders of a round it may hold what no record has; 3 and 4, which were asked before, stay."""
    made = dealt([[0, 1, 2, 3, 4], [5]])
    assert made.plan_moves(order([3, 4], operation=Call("any", "prepare")))[0, 1]
    homes = dict(made.home)
    assert made.plan_moves(order([3, 4])) == made.plan_moves(order([3, 4], operation=Call("any", "conclude"))) == {}
    moved = [client for gone in made.plan_moves(order([0, 1, 2, 3, 4])).values() for client in gone]
    assert moved  # of those not asked before
    assert all(made.home[client] == homes[client] for client in (3, 4))


@pytest.mark.parametrize(("samples", "moves"), [(15, 0), (50, 1)])
def test_a_move_has_to_pay(samples: int, moves: int) -> None:
    """Two clients on one host, of 1.5 ms or of 5 ms each: a move is assumed to take 2 ms, as is asking for any.

    2 x 5 ms end after 10 ms; with one of them moved, both hosts after 5 + 2 ms.
    """
    made = dealt([[0, 1], [2]], {0: samples, 1: samples})
    assert sum(map(len, made.plan_moves(order([0, 1])).values())) == moves


def test_what_moves_took_is_learned() -> None:
    """Four clients of 60 ms on one host: half of them move, but not if a move takes 200 ms, as it did before."""
    cohort = [0, 1, 2, 3]
    for price, moved in ((0.001, 2), (0.4, 0)):
        made = dealt([cohort, [4]])
        made.add_times(1, {}, price)
        assert sum(map(len, made.plan_moves(order(cohort)).values())) == moved


def test_one_that_stalled_is_forgotten() -> None:
    """A move took 10 s once. A hundred rounds later a gain of 1 s is not worth it; a thousand later it is."""
    made = dealt([[0, 1], [2]], {0: 10_000, 1: 10_000, 2: 1})
    made.add_times(0, {}, 10.0)
    for round in range(1, 100):
        made.plan_moves(order([2], round))
    assert made.plan_moves(order([0, 1], 100)) == {}
    for round in range(101, 1000):
        made.plan_moves(order([2], round))
    assert made.plan_moves(order([0, 1], 1000))


@pytest.mark.parametrize(("fuller", "moves"), [(51, 0), (52, 2)])
def test_a_gain_within_the_noise_is_left_alone(fuller: int, moves: int) -> None:
    """100 clients of 0.6 s: with 51 on one host moving one saves 1/51, less than 2%; with 52 moving two saves 2/52."""
    made = dealt([range(fuller), range(fuller, 100)], dict.fromkeys(range(100), 6000))
    assert sum(map(len, made.plan_moves(order(range(100))).values())) == moves


def test_a_slow_host_gets_less() -> None:
    """Host 1 takes three times as long: of eight equal clients it ends up with two, and its clients are not blamed.

    Every client then takes 6 x 1 on host 0 and 2 x 3 on host 1.
    """

    def takes(client: int, host: int) -> float:
        return 0.05 * (1, 3)[host]

    made = dealt([[0, 2, 4, 6], [1, 3, 5, 7]])
    moved = play(made, [range(8)] * 6, takes)
    assert len(made.clients_of(1)) == 2
    assert moved[0] == 0
    assert sum(moved) == 2
    assert sum(moved[3:]) == 0


def test_one_slow_client_is_not_its_hosts_fault() -> None:
    """Client 1 takes as long as 6 others: 6 + 3 and 4 become 6 + 1 and 6, once; then nothing moves any more."""

    def takes(client: int, host: int) -> float:
        return 0.3 if client == 1 else 0.05

    made = dealt([[0, 2, 4, 6], [1, 3, 5, 7]])
    moved = play(made, [range(8)] * 10, takes)
    assert max(ends(made, range(8), takes, 2)) < 0.36
    assert sum(moved) == 2


def test_a_processs_first_phase_is_not_counted() -> None:
    """It takes ten times as long, as libraries make themselves ready; nothing moves for that."""
    took = {(client, host): 0.05 for client in range(8) for host in range(2)}
    made = dealt([[0, 2, 4, 6], [1, 3, 5, 7]])
    warm: set[int] = set()

    def takes(client: int, host: int) -> float:
        first = host not in warm
        warm.add(host)
        return took[client, host] * (10 if first and host == 0 else 1)

    assert play(made, [range(8)] * 3, takes) == [0, 0, 0]


def test_the_samples_of_the_window_that_a_client_has_count() -> None:
    """Clients 0 and 1 have a window of 600 samples each now, 2 and 3 of one; before it was the other way round."""
    sizes = {0: (1, 600), 1: (1, 600), 2: (600, 1), 3: (600, 1)}
    made = Rebalancing([[0, 1], [2, 3]], lambda client, window: sizes[client][window])
    ((_, gone),) = made.plan_moves(order(range(4), windows=dict.fromkeys(range(4), 1))).items()
    assert len(gone) == 1
    assert gone[0] in (0, 1)


def test_noise_moves_few_clients() -> None:
    """Forty equal clients on four hosts, balanced, all of them in every round, each up to 20% off its usual time."""
    draws = np.random.default_rng(0)
    made = dealt([range(host, 40, 4) for host in range(4)])
    moved = play(made, [range(40)] * 50, lambda client, host: 0.05 * (1 + draws.uniform(-0.2, 0.2)))
    assert sum(moved) / 50 < 1


def test_a_host_never_has_more_than_twice_its_share_of_the_clients() -> None:
    """Host 0 is a hundred times as fast as the three others, and would have all 16; 4 is an equal share."""
    made = dealt([range(host, 16, 4) for host in range(4)])
    play(made, [range(16)] * 8, lambda client, host: 0.05 * (0.01 if host == 0 else 1))
    assert len(made.clients_of(0)) == rebalancing.FULLEST * 4


def test_where_clients_stay_they_stay() -> None:
    made = dealt([[0, 1, 2, 3, 4], [5]], fixed=True)
    assert play(made, [range(6)] * 3, lambda client, host: 0.05) == [0, 0, 0]
    assert made.clients_of(1) == [5]


@pytest.mark.parametrize("hosts", [2, 8, 64])
@pytest.mark.parametrize("seed", range(3))
def test_all_hosts_end_nearly_together(hosts: int, seed: int) -> None:
    """A thousand clients of log-normal size. No dealing ends before an equal share, nor before the largest client."""
    sizes = np.maximum(1, np.random.default_rng(seed).lognormal(np.log(SAMPLES), 1, 1000)).astype(int)
    made = dealt([range(host, 1000, hosts) for host in range(hosts)], dict(enumerate(map(int, sizes))))

    def takes(client: int, host: int) -> float:
        return float(sizes[client]) * 1e-4

    play(made, [range(1000)] * 2, takes)
    last = max(ends(made, range(1000), takes, hosts))
    assert last <= max(float(sizes.sum()) / hosts, float(sizes.max())) * 1e-4 / 0.95
