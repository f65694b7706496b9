"""Who takes part: plans derived from the named random streams with hashlib and NumPy alone, and by hand."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import pytest

from raysim.api import Method, Server, ServerHalf
from raysim.config import Config
from raysim.engine import attendance
from raysim.engine.attendance import Participants, choosing_methods, plan_rounds, plan_updates
from raysim.engine.compatibility import make_methods
from raysim.engine.hosted_server import HostedServer
from raysim.engine.virtual_time import Update
from raysim.federation.federation import build_federation
from raysim.models.building import check_model

SEED = 5


@dataclass(frozen=True, kw_only=True)
class Choosy(Method):
    """A custom method that chooses the clients."""

    class Server(ServerHalf):
        def select(self, server: Server) -> Sequence[int]:
            return [server.present[-1], server.present[0]]


@dataclass(frozen=True, kw_only=True)
class Plain(Method):
    """A custom method that leaves the choice to the sampler."""


def stream(*name: int | str) -> np.random.Generator:
    """The named stream: PCG64 of the BLAKE2b digest of the parts, each with its type, and its length before it."""
    digest = blake2b(digest_size=16)
    for part in name:
        text = f"{type(part).__name__}:{part}".encode()
        digest.update(len(text).to_bytes(4, "little") + text)
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest.digest(), "little")))


def server_of(config: Config) -> HostedServer:
    federation = build_federation(config)
    return HostedServer(config, federation, check_model(config, federation.shape, federation.classes))


def rounds_of(config: Config, rounds: Iterable[int]) -> list[Participants]:
    return [*plan_rounds(config, server_of(config), make_methods(config), rounds)]


def updates_of(config: Config) -> list[Update]:
    availability = build_federation(config).availability
    return plan_updates(config, availability, server_of(config), make_methods(config))


def test_the_chosen_and_those_that_drop_out_are_draws_of_their_streams(tiny: Callable[..., Config]) -> None:
    """Four of nine clients in 50 rounds; each drops out with probability 0.3."""
    config = tiny(seed=SEED, clients={"count": 9, "dropout": 0.3}, participation={"count": 4})
    for number, planned in enumerate(rounds_of(config, range(1, 51)), start=1):
        chosen = sorted(stream(SEED, "cohort", number).choice(9, size=4, replace=False).tolist())
        dropped = [client for client in chosen if stream(SEED, "dropout", client, number).random() < 0.3]
        assert (planned.round, planned.chosen, planned.dropped) == (number, tuple(chosen), tuple(dropped))
        assert planned.cohort == tuple(client for client in chosen if client not in dropped)
        assert planned.fates == ["dropped" if client in dropped else "used" for client in chosen]


def test_without_a_choice_all_who_are_there_take_part(tiny: Callable[..., Config]) -> None:
    """Client 2 arrives in round 2, client 0 leaves in round 4."""
    come_and_go = {"arrive": {"at": [{"round": 2, "clients": [2]}]}, "leave": [{"round": 4, "clients": [0]}]}
    planned = rounds_of(tiny(clients={"count": 3, **come_and_go}), range(1, 5))
    assert [each.cohort for each in planned] == [(0, 1), (0, 1, 2), (0, 1, 2), (1, 2)]
    assert not any(each.dropped for each in planned)


def test_a_round_is_the_same_whichever_rounds_are_planned(tiny: Callable[..., Config]) -> None:
    config = tiny(clients={"count": 9, "dropout": 0.3}, participation={"count": 4}, training__rounds_per_task=20)
    everything = rounds_of(config, range(1, 41))
    assert rounds_of(config, [3, 17, 40]) == [everything[2], everything[16], everything[39]]


def test_the_server_is_in_the_round_that_is_planned(tiny: Callable[..., Config]) -> None:
    config = tiny()
    server = server_of(config)
    assert [server.round for _ in plan_rounds(config, server, {}, [2, 4])] == [2, 4]


def test_a_run_has_the_cohorts_of_the_plan(tiny: Callable[..., Config], simulate: Callable[..., Any]) -> None:
    config = tiny(clients={"count": 6, "dropout": 0.4}, participation={"count": 4}, logging__dispatches=True)
    planned, run = rounds_of(config, range(1, 5)), simulate(config)
    assert [tuple(done.cohort) for done in run.rounds] == [each.cohort for each in planned]
    told = [[(client, fate) for client, *_, fate in done.dispatches] for done in run.rounds]
    assert told == [[*zip(each.chosen, each.fates, strict=True)] for each in planned]
    assert any(each.dropped for each in planned)


def test_a_methods_choice_comes_before_the_sampler(tiny: Callable[..., Config]) -> None:
    """Fixed chooses no client in task 2, which is rounds 3 and 4."""
    planned = rounds_of(tiny(methods={"fixed": {}}), range(1, 5))
    assert [each.cohort for each in planned] == [(0, 1, 2), (0, 1, 2), (), ()]
    planned = rounds_of(tiny(methods={f"{__name__}:Choosy": {}}), [1])
    assert planned[0].chosen == (0, 2)


@pytest.mark.parametrize(
    ("methods", "choosing"),
    [({"fixed": {}}, []), ({f"{__name__}:Plain": {}}, []), ({f"{__name__}:Choosy": {}, "er": {}}, ["Choosy"])],
)
def test_custom_methods_that_choose_are_named(
    tiny: Callable[..., Config], methods: dict[str, dict[str, object]], choosing: list[str]
) -> None:
    assert choosing_methods(make_methods(tiny(methods=methods))) == choosing


def test_who_drops_out_is_drawn_when_it_is_asked_for(
    tiny: Callable[..., Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The picture of a stream asks for a few clients of thousands of rounds."""
    drawn: list[tuple[int, int]] = []

    def note(seed: int, rate: float, client: int, round: int) -> bool:
        drawn.append((client, round))
        return client == 1

    monkeypatch.setattr(attendance, "drops_out", note)
    _, second = rounds_of(tiny(clients__dropout=0.5), [1, 2])
    assert not drawn
    assert second.fate(1) == "dropped"
    assert drawn == [(1, 2)]
    assert (second.dropped, second.cohort) == ((1,), (0, 2))


def test_a_timetable_by_hand(tiny: Callable[..., Config]) -> None:
    """Two equal clients, both away, and a buffer of one.

    18 samples of a second, and 59 parameters of 4 bytes down and up at 472 bytes a second: a trip lasts 19 s. Both are
    back at once. The server applies one update and then the other, which is one update old.
    """
    schedule = {"kind": "asynchronous", "concurrency": 2, "buffer_size": 1, "bandwidth": 472}
    updates = updates_of(tiny(seed=SEED, clients__count=2, schedule=schedule | {"speeds": {"seconds_per_sample": 1}}))
    first, second = (stream(SEED, "dispatch", number).choice(2, size=2, replace=False).tolist() for number in (0, 2))
    assert [update.time for update in updates] == [19, 19, 38, 38]
    assert [[d.client for d in update.dispatched] for update in updates] == [first, [], second, []]
    assert [[d.client for d in update.arrivals] for update in updates] == [[client] for client in first + second]
    assert [[d.staleness for d in update.arrivals] for update in updates] == [[0], [1], [0], [1]]
    assert [update.fates for update in updates] == [["used", "used"], [], ["used", "used"], []]


def test_dispatches_that_drop_out_are_draws_of_their_streams(tiny: Callable[..., Config]) -> None:
    schedule = {"kind": "asynchronous", "concurrency": 3, "buffer_size": 2}
    keys = {"clients": {"count": 5, "dropout": 0.4}, "training__rounds_per_task": 30}
    sent = [d for update in updates_of(tiny(seed=SEED, schedule=schedule, **keys)) for d in update.dispatched]
    wanted = [stream(SEED, "dropout", dispatch.client, number).random() < 0.4 for number, dispatch in enumerate(sent)]
    assert [dispatch.dropped for dispatch in sent] == wanted
    assert [dispatch.fate == "dropped" for dispatch in sent] == wanted
    assert len(sent) > 120
