"""Seconds by part: nested parts are not counted twice, and a run records every hook of both halves."""

import itertools

import pytest
import torch

from raysim.cli import main
from raysim.engine import profile
from raysim.engine.profile import Profile

CPU = torch.device("cpu")


def test_the_seconds_inside_a_part_are_not_its_own(monkeypatch):
    """The clock reads 0, 1, 3, 6, 10: outer 0 to 10, of which inner took 1 to 3 and again 6 - 3 is outer's."""
    times = iter([0.0, 1.0, 3.0, 6.0, 6.5, 10.0])
    monkeypatch.setattr(profile.time, "perf_counter", lambda: next(times))
    measured = Profile(True, CPU)
    with measured.part("outer"):
        with measured.part("inner"):
            pass
        with measured.part("inner"):
            pass
    assert measured.take() == {"inner": 2.5, "outer": 7.5}
    assert measured.take() == {}


def test_without_it_no_clock_is_read(monkeypatch):
    monkeypatch.setattr(profile.time, "perf_counter", lambda: pytest.fail("a clock was read"))
    silent = Profile(False, CPU)
    with silent.part("outer"):
        pass
    assert silent.take() == {}


def test_a_round_records_every_hook(tiny, simulate):
    config = {"training__rounds_per_task": 1, "methods": {"ewc": {}, "fedprox": {}}}
    measured = simulate(tiny(**config, logging={"profile": True}))
    names = set(itertools.chain.from_iterable(done.profile for done in measured.rounds))
    assert {"client: ewc.gradient", "client: ewc.need", "server: ewc.announce", "server: ewc.end_task"} <= names
    assert {"client: forward pass", "client: backward pass", "client: optimizer", "client: everything else"} <= names
    assert {"server: waiting for clients", "server: evaluation", "server: everything else"} <= names
    plain = simulate(tiny(**config))
    assert all(done.profile is None for done in plain.rounds)
    assert torch.equal(plain.simulation.server.parameters, measured.simulation.server.parameters)


def test_the_command_line_prints_a_table(tmp_path, capsys):
    settings = ["dataset.train_samples=60", "training.rounds_per_task=1"]
    assert main(["run", "quickstart", *settings, "--local", "--profile", "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "clients, all together" in said
    assert "waiting for clients" in said
