"""What every method must keep: determinism, packing, company, and not one bit moved where it says that it is neutral.

The table is raysim's own, so a new method is in the grid by itself; three of the tests' own stand beside it: Bystander
draws and asks all the time and changes nothing, Noise shows every one of its draws in the model. The model has dropout
and BatchNorm, the clients take part in turns, and the memory is full after the first batch.
"""

import functools
import itertools

import pytest
import torch

from raysim.config.lookup import resolve, table
from raysim.engine.compatibility import check_methods
from raysim.engine.events import line
from raysim.estimate.dry_run import dry_run
from raysim.federation.federation import build_federation
from raysim.system.errors import ConfigError

OWN = ["probes:Bystander", "probes:Noise"]
QUICK = {"re_fed": (("epochs", 2),)}  # knobs that only make a method cheaper to run
DATA = {"name": "synthetic", "classes": 4, "shape": [6], "train": 18, "test": 8}
BOTH = {"dropout": 0.4, "batch_norm": True}
NAMES = [*table("method"), *OWN]
NEUTRAL = [name for name in NAMES if resolve("method", name).neutral is not None]
ALONE = [{"dropout": 0.4}, {"batch_norm": True}]
PACKINGS = {"one host": [(2, 0, 1)], "one each": [(0,), (1,), (2,)], "uneven": [(1,), (2, 0)]}


@pytest.fixture(scope="module")
def ran(tiny, simulate):
    """A function: the run of methods (name and knobs, in order), or the one line that refuses them; each done once."""

    base = tiny(
        seed=3,
        training__rounds_per_task=1,
        training__batch_size=3,
        dataset={**DATA, "unlabelled": {**DATA, "seed": 1, "train": 7}},
        memory={"capacity": 4},
        participation={"count": 2},
    )
    federation = build_federation(base)

    @functools.cache
    def resolved(name, knobs):
        return tiny(methods={name: dict(knobs)}).methods[name]

    @functools.cache
    def run(methods, again=0, packing=None, **model):
        network = base.model.model_copy(update=model or BOTH)
        known = {name: resolved(name, knobs) for name, knobs in methods}
        config = base.model_copy(update={"methods": known, "model": network})
        try:
            check_methods(config)
        except ConfigError as refusal:
            return str(refusal)
        return simulate(config, federation, PACKINGS.get(packing))

    return run


def with_defaults(*names):
    return tuple((name, QUICK.get(name, ())) for name in names)


def neutral(name):
    return (name, tuple(resolve("method", name).neutral.items()))


def test_the_grid_has_all_methods():
    assert "fedprox" in NEUTRAL
    assert set(table("method")) < set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_alone_it_runs_and_twice_gives_the_same_bits(ran, name):
    run = ran(with_defaults(name))
    assert not isinstance(run, str), run
    assert all(value.isfinite().all() for value in run.state.values())
    assert len(run.rounds) == 2
    assert run.rounds[0].cohort != run.rounds[1].cohort
    assert run.sha256 == ran(with_defaults(name), again=1).sha256


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("name", NAMES)
def test_however_clients_are_packed_the_bits_are_the_same(ran, name, packing):
    """The model, all that rounds.jsonl says but the seconds, and what a checkpoint would keep of the clients."""
    plain, packed = ran(with_defaults(name)), ran(with_defaults(name), packing=packing)
    assert packed.sha256 == plain.sha256
    assert [line(r) | {"seconds": 0} for r in packed.rounds] == [line(r) | {"seconds": 0} for r in plain.rounds]
    assert clients_of(packed) == clients_of(plain)


def clients_of(run):
    return {number: record for host in run.simulation.runner.snapshot() for number, record in host.items()}


@pytest.mark.parametrize("name", NAMES)
def test_in_company_it_runs_or_is_refused_in_one_line(ran, name):
    """Every ordered pair that this method begins."""
    for other in NAMES:
        if other == name:
            continue
        run = ran(with_defaults(name, other))
        if isinstance(run, str):
            assert "\n" not in run
            assert run.startswith(("methods", "memory"))
            assert isinstance(ran(with_defaults(other, name)), str)  # refused whatever the order
        else:
            assert all(value.isfinite().all() for value in run.state.values()), other


@pytest.mark.parametrize("name", NAMES)
def test_its_bytes_and_steps_are_known_before(ran, name):
    """Alone and in every company that it begins: what the dry run says is what the run counted."""
    for other in NAMES:
        run = ran(with_defaults(*dict.fromkeys([name, other])))
        if not isinstance(run, str):
            of = run.simulation
            before, counted = dry_run(of.config, of.federation), of.exchange
            found = (sum(before.up.values()), sum(before.down.values()), before.steps)
            assert found == (counted.traffic.up, counted.traffic.down, counted.steps), other


@pytest.mark.parametrize("model", [BOTH, *ALONE], ids=["both", "dropout", "batch_norm"])
@pytest.mark.parametrize("name", NEUTRAL)
def test_neutral_it_changes_no_bit_of_fedavg(ran, name, model):
    assert ran((neutral(name),), **model).sha256 == ran((), **model).sha256


@pytest.mark.parametrize("name", NEUTRAL)
def test_neutral_it_changes_no_bit_of_any_other(ran, name):
    moved = []
    for other in NAMES:
        if other == name:
            continue
        alone = ran(with_defaults(other))
        for pair in itertools.permutations([neutral(name), *with_defaults(other)]):
            both = ran(pair)
            if isinstance(both, str):
                assert "\n" not in both
            elif both.sha256 != alone.sha256:
                moved.append([first for first, _ in pair])
    assert moved == []


def test_the_grid_would_notice(ran):
    """A method away from its neutral knobs does move bits, and the two models differ."""
    plain = ran(())
    assert ran((("fedprox", (("mu", 1.0),)),)).sha256 != plain.sha256
    assert ran(with_defaults("probes:Noise")).sha256 != plain.sha256
    assert not torch.equal(next(iter(plain.state.values())), next(iter(ran((), dropout=0.4).state.values())))
