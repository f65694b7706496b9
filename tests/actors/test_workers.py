"""Actors are forked where they can be, start by themselves where not, and no bit knows of it."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

import raysim
from raysim.actors import compat, liveness, workers
from raysim.actors.fork_server import ForkServer
from raysim.engine.events import Event, Notice, Started
from raysim.launch.display import RunDisplay
from raysim.system.capacity import CAN_FORK
from raysim.system.errors import ConfigError

pytestmark = [
    pytest.mark.ray,
    pytest.mark.usefixtures("cluster"),
    pytest.mark.skipif(
        not CAN_FORK,
        reason="workers are forked on Linux alone; elsewhere raysim spawns them, as all other tests here show",
    ),
]

Facts = Callable[[raysim.Result], Mapping[str, Any]]
SERVER = "fork_server.py"


class Watching(RunDisplay):
    """Keeps the parents of the run's actors as they are in the first round, and what is said; may act then."""

    def __init__(self, act: Callable[[], object] = lambda: None) -> None:
        self.act = act
        self.before = {actor.pid for actor in actors()}  # of the last run, while they end
        self.parents: list[str] = []
        self.said: list[str] = []

    def take(self, event: Event) -> None:
        if isinstance(event, Notice) and not event.text.startswith("waiting for "):  # a slow machine's stalls
            self.said.append(event.text)
        if isinstance(event, Started):
            own = [actor for actor in actors() if actor.pid not in self.before]
            self.parents = [" ".join(actor.parent().cmdline()) for actor in own]
            self.act()


def actors() -> list[psutil.Process]:
    """The actors of this cluster; a server that forked them on a joined node is not below this process."""
    found = []
    for actor in compat.alive_actors():
        with suppress(psutil.Error):  # it has ended
            found.append(psutil.Process(actor["Pid"]))
    return found


@pytest.fixture(scope="module")
def expected(small: dict[str, Any], facts: Facts, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    return facts(raysim.run(small, out=tmp_path_factory.mktemp("local") / "run", local=True))


@pytest.fixture
def carried_out(
    small: dict[str, Any], facts: Facts, expected: Mapping[str, Any], tmp_path: Path
) -> Callable[..., Watching]:
    """A function: run with these workers, check the bits, return what was seen."""

    def run(kind: str, act: Callable[[], object] = lambda: None) -> Watching:
        seen = Watching(act)
        out = tmp_path / f"{kind}-{len(list(tmp_path.iterdir()))}"
        result = raysim.run(small, {"resources": {"workers": kind, "clients_per_actor": 4}}, out=out, display=seen)
        assert facts(result) == expected
        assert len(seen.parents) == 2  # a coordinator and a host
        return seen

    return run


@pytest.mark.parametrize("kind", ["auto", "forked", "spawned"])
def test_they_are_forked_where_that_is_not_ruled_out(kind: str, carried_out: Callable[..., Watching]) -> None:
    assert [SERVER in parent for parent in carried_out(kind).parents] == [kind != "spawned"] * 2


def server() -> psutil.Process:
    return next(
        process
        for process in psutil.Process().children()
        if process.status() != psutil.STATUS_ZOMBIE and SERVER in " ".join(process.cmdline())
    )


def test_a_server_that_dies_takes_nobody_with_it_and_the_next_run_has_another(
    carried_out: Callable[..., Watching],
) -> None:
    first = server()
    carried_out("forked", act=first.kill)
    assert all(SERVER in parent for parent in carried_out("forked").parents)
    assert server() != first


def test_where_no_server_answers_they_start_by_themselves_and_one_line_says_so(
    carried_out: Callable[..., Watching], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ForkServer, "keep", lambda _: None)
    server().kill()
    seen = carried_out("auto")
    assert not any(SERVER in parent for parent in seen.parents)
    assert seen.said == ["1 of 1 hosts were not forked, because no fork server answered them"]


@pytest.mark.soak
def test_where_a_node_cannot_they_start_by_themselves_and_one_line_says_so(
    carried_out: Callable[..., Watching], monkeypatch: pytest.MonkeyPatch, small: dict[str, Any], tmp_path: Path
) -> None:
    def refuse(folder: str | None) -> tuple[str, str]:  # sent by value: a worker cannot import this module
        raise ConfigError("no room")

    monkeypatch.setattr(liveness, "CURRENT", liveness.Cluster())  # as on a cluster that was joined
    monkeypatch.setattr(workers, "serve_this_node", refuse)
    seen = carried_out("auto")
    assert not any(SERVER in parent for parent in seen.parents)
    (line,) = seen.said
    assert line.startswith("Ray spawns the workers, and each imports torch, on these nodes: ")
    assert line.endswith(" (no room)")
    with pytest.raises(
        ConfigError,
        match=r"^resources\.workers: found forked, but these nodes cannot .* \(no room\); ",
    ):
        raysim.run(small, {"resources": {"workers": "forked"}}, out=tmp_path / "forked")


def test_a_joined_node_has_a_server_while_there_is_something_to_do(
    carried_out: Callable[..., Watching], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "CURRENT", liveness.Cluster())
    monkeypatch.setattr(workers, "FOLDERS", {})
    assert all(SERVER in parent for parent in carried_out("forked").parents)
    (folder,) = workers.FOLDERS.values()
    assert Path(folder).stat().st_mode & 0o777 == 0o700
    assert all(SERVER in parent for parent in carried_out("forked").parents)
    assert [*workers.FOLDERS.values()] == [folder]  # the same server
