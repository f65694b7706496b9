"""Requests to forget: a run with them has the bits of a run whose streams lacked the samples from round 1."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from raysim.engine.compatibility import check_methods
from raysim.engine.events import Checkpoint
from raysim.engine.forgetting import follow_requests
from raysim.engine.simulation import simulate_here
from raysim.federation.federation import build_federation
from raysim.federation.stream import Stream
from raysim.records.run_directory import sha256
from raysim.system.errors import ConfigError

GRID = {"grid": 12, "bound": 4.0, "ridge": 0.5, "ridge_relative": False}
METHODS = [{"analytic": GRID}, {"stsa": {**GRID, "train_first": False}}]
DATA = {"name": "synthetic", "classes": 4, "shape": [5], "train": 72, "test": 8}
RUN = {"dataset": DATA, "model": {"name": "mlp", "hidden": []}, "clients__count": 4, "training__rounds_per_task": 3}
REGRESSION = {"dataset": {"name": "friedman", "train": 72, "test": 20}, "objective": "regression"}
REGRESSION |= {"scenario": {"kind": "domain_incremental", "tasks": 2, "shift": "permutation"}}
WINDOWS = {"window": 4, "windows": 3, "rounds_per_window": 2, "stream": "test_forgetting:endless"}
OWN_STREAM = {
    "scenario": {"kind": "class_incremental", "tasks": 1, "boundaries": {"asynchronous": WINDOWS}},
    "training": {"batch_size": 4},
    "training__rounds_per_task": None,
}
FEDBUFF = {"kind": "asynchronous", "concurrency": 3, "buffer_size": 1, "max_staleness": 1}
RUN |= {"scenario": {"kind": "class_incremental", "tasks": 2}}


def endless(client, start):
    """A custom stream, which no test reads."""
    yield np.zeros(5, np.float32), 0


def without(stream, positions):
    """The stream without these positions, in the same windows and stages."""
    kept = np.ones(len(stream), dtype=bool)
    kept[positions] = False
    ends = np.cumsum([0, *map(len, stream.rows)])
    rows = [part[kept[start : start + len(part)]] for part, start in zip(stream.rows, ends, strict=False)]
    windows = [int(kept[: stream.end(window)].sum()) for window in range(stream.windows)]
    return Stream(rows, stream.tasks, windows, stream._stages, stream._stage_tasks)


def lacking(federation, requests):
    """The federation of a config without requests, without the samples that they name in the clients' streams."""
    train, named = federation.dataset.train, [set() for _ in federation.streams]
    for request in requests:
        for client, stream in enumerate(federation.streams):
            y = train.y[np.concatenate(stream.rows)]
            named[client] |= {*range(len(stream))} if client in request.get("clients", ()) else set()
            named[client] |= {*np.flatnonzero(np.isin(y, request.get("classes", ()))).tolist()}
            named[client] |= {position for k, position in request.get("pairs", ()) if k == client}
    streams = [without(stream, sorted(part)) for stream, part in zip(federation.streams, named, strict=True)]
    return replace(federation, streams=streams)  # with the same presence: a client may be asked with an empty window


def check_requests(tiny, simulate, methods, requests, folder, **keys):
    said = []
    for number, request in enumerate(requests):
        said.append({key: value for key, value in request.items() if key != "pairs"})
        if "pairs" in request:
            path = folder / f"{number}.csv"
            path.write_text("".join(f"{client},{position}\n" for client, position in request["pairs"]))
            said[-1]["samples"] = str(path)
    run = simulate(tiny(**RUN | keys, methods=methods, clients__forget=said))
    gone = {(client, request["round"]) for request in requests for client in request.get("clients", ())}
    assert all(client not in done.cohort for client, last in gone for done in run.rounds[last:])
    plain = tiny(**RUN | keys, methods=methods)
    other = simulate(plain, lacking(build_federation(plain), requests))
    mine, theirs = (next(iter(each.simulation.exchange.halves.values())) for each in (run, other))
    assert mine.samples == theirs.samples
    if mine.samples:
        assert torch.equal(mine.gram, theirs.gram)
        assert torch.equal(mine.solution, theirs.solution)
        assert run.sha256 == other.sha256


@pytest.mark.parametrize("methods", METHODS, ids=lambda methods: next(iter(methods)))
@pytest.mark.parametrize(
    "requests",
    [
        [{"round": 4, "clients": [2]}],
        [{"round": 1, "clients": [0]}],
        [{"round": 3, "classes": [1]}],
        [{"round": 2, "classes": [3]}],
        [{"round": 6, "pairs": [(0, 0), (3, 7), (1, 17)]}],
        [{"round": 3, "clients": [1]}, {"round": 3, "classes": [0]}, {"round": 5, "pairs": [(0, 1), (1, 0), (3, 17)]}],
    ],
    ids=str,
)
def test_a_run_with_requests_is_a_run_without_the_samples(tiny, simulate, tmp_path, methods, requests):
    check_requests(tiny, simulate, methods, requests, tmp_path)


def draw_requests(seed, count):
    """Requests on a run of 6 rounds with 4 clients of 18 samples, most of them for single samples."""
    draws = np.random.default_rng(seed)
    requests = []
    for _ in range(count):
        kind, named = draws.random(), int(draws.integers(4))
        what = {"clients": [named]} if kind < 0.02 else {"classes": [named]} if kind < 0.04 else None
        pairs = [(named, int(position)) for position in draws.integers(0, 18, size=2)]
        requests.append({"round": int(draws.integers(1, 7)), **(what or {"pairs": pairs})})
    return requests


@pytest.mark.parametrize(("seed", "online", "dropout"), [(0, False, 0.0), (1, True, 0.6), (2, False, 0.6)])
def test_a_stream_of_fifty_requests_leaves_no_trace(tiny, simulate, tmp_path, seed, online, dropout):
    keys = {"scenario": RUN["scenario"] | {"online": online}, "clients__dropout": dropout}
    check_requests(tiny, simulate, METHODS[0], draw_requests(seed, 50), tmp_path, **keys)


@pytest.mark.parametrize("methods", METHODS, ids=lambda methods: next(iter(methods)))
@pytest.mark.parametrize(
    "keys", [{}, pytest.param({"schedule": FEDBUFF}, marks=pytest.mark.soak)], ids=["rounds", "fedbuff"]
)
def test_hosts_and_checkpoints_make_no_difference_to_requests(tiny, simulate, tmp_path, methods, keys):
    """The 50 requests on four hosts, and resumed from the checkpoint after each round, have the head of one process."""
    requests = draw_requests(1, 50)
    for number, request in enumerate(requests):
        if pairs := request.pop("pairs", None):
            path = tmp_path / f"{number}.csv"
            path.write_text("".join(f"{client},{position}\n" for client, position in pairs))
            request["samples"] = str(path)
    config = tiny(**RUN | keys, methods=methods, clients__forget=requests, checkpoint__every_rounds=1)
    whole, parts = simulate(config), simulate(config, places=[[3, 1], [0], [2]])
    assert parts.sha256 == whole.sha256
    assert sum(len(done.forgotten or ()) for done in whole.rounds) == 50
    federation, resumed = follow_requests(config, build_federation(config)), 0
    for event in whole.events:
        if isinstance(event, Checkpoint):
            (clients,) = event.clients
            *_, last = simulate_here(config, federation, event.server, clients).events()
            assert sha256(last.state) == whole.sha256
            resumed += 1
    assert resumed == 5


def refused(tiny, request, methods=METHODS[0], **keys):
    def load():
        config = tiny(**RUN | keys, methods=methods, clients__forget=[request])
        check_methods(config)
        follow_requests(config, build_federation(config))

    with pytest.raises(ConfigError) as error:
        load()
    return str(error.value)


def test_what_makes_no_sense_is_refused(tiny, tmp_path):
    late = {"clients__arrive": {"at": [{"round": 5, "clients": [2]}]}}
    gone = {"clients__leave": [{"round": 4, "clients": [2]}]}
    file = tmp_path / "samples.csv"
    file.write_text("0,3\n2,400\n")
    empty = tmp_path / "empty.csv"
    empty.write_text("\n")
    said = [
        refused(tiny, {"round": 7, "clients": [2]}),
        refused(tiny, {"round": 2, "clients": [2]}, **late),
        refused(tiny, {"round": 5, "clients": [2]}, **gone),
        refused(tiny, {"round": 2, "classes": [9]}),
        refused(tiny, {"round": 2, "samples": str(file)}),
        refused(tiny, {"round": 2, "samples": str(tmp_path / "none.csv")}),
        refused(tiny, {"round": 2, "samples": str(empty)}),
        refused(tiny, {"round": 2, "clients": [2]}, {"analytic": {}}),
        refused(tiny, {"round": 2, "clients": [2]}, {"stsa": {}}),
        refused(tiny, {"round": 2, "classes": [1]}, {}, **REGRESSION),
        refused(tiny, {"round": 2, "clients": [2]}, {}, **OWN_STREAM),
        refused(tiny, {"round": 2, "clients": [9]}),
        refused(tiny, {"round": 2}),
    ]
    expected = [
        "clients.forget.0.round: found 7, allowed: 1 to 6, the rounds of the run",
        "clients.forget.0.clients: found client 2 in round 2, before which it has no data, allowed: clients that have",
        "clients.forget.0: found round 5, in which client 2 has no data but samples of the request in the sums, all",
        "clients.forget.0.classes: found 9, allowed: classes that some client has samples of",
        "clients.forget.0.samples: found 2,400, which is in no client's stream, allowed: positions in the str",
        f"clients.forget.0.samples: found {tmp_path}/none.csv, which cannot be read (",
        f"clients.forget.0.samples: found {empty}, which names no sample, allowed: a file with lines client,position",
        "methods.analytic: found grid=null with clients.forget, allowed: a number of bits, with which sums are exact",
        "methods.stsa: found train_first=true with clients.forget: the features of task 1 remember, allowed: false",
        "clients.forget.0.classes: found 1, but samples have no class with objective=regression, allowed: a req",
        "clients.forget: found requests, allowed with a custom stream: none, as raysim does not know its sam",
    ]
    for found, start in zip(said, expected, strict=False):
        assert found.startswith(start), found
    assert "found client 9, allowed: 0 to 3 (clients.count is 4)" in said[-2]
    assert "found none of them, allowed: one of clients, classes and samples" in said[-1]
