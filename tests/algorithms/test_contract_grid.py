"""What every method must keep: determinism, packing, company, and not one bit moved where it says that it is neutral.

The table is raysim's own, so a new method is in the grid by itself; two of the tests' own stand beside it: Bystander
draws and asks all the time and changes nothing, Noise shows every one of its draws in the model. The model has dropout
and BatchNorm, the clients take part in turns, and the memory is full after the first batch.

Every method is run alone, twice, in three packings, neutral on three models, and against the bytes foreseen; resumed
in tests/records/test_checkpoints.py, and on Ray in tests/actors. All ordered pairs of methods are asked whether they
are refused. Those that are run, also neutral and against the bytes foreseen, are chosen by the hooks that they have:
contract_company.py says which and why they are enough. In these, every hook is called, and in the listed order.
`make test` runs a sample of these pairs, `make test-all` all of them, behind the marker `grid`.
"""

import functools
import itertools

import pytest
import torch
from contract_company import NAMES, REPRESENTATIVES, beside, hooks_of, meetings, pairs, sample, write_down_calls
from costs import cost_of
from small_runs import MODELS, hyperparameters

from raysim.config.lookup import resolve, table
from raysim.engine.attendance import Participants
from raysim.engine.compatibility import check_methods
from raysim.engine.events import line
from raysim.federation.federation import build_federation
from raysim.system.errors import ConfigError

GENERATES = (("batch", 2), ("steps", 1), ("images", 3), ("width", 2), ("warmup", 1), ("student_steps", 1))
QUICK = {  # that have the loss of statistics, which their small runs have not
    "target": (*GENERATES, ("calls", 2), ("z", 2)),
    # keep_best would keep the model that was sent in a task's only round
    "lander": (*GENERATES, ("calls", 1), ("hidden", 2), ("dimension", 3), ("keep_best", False)),
}
DATA = {"name": "synthetic", "classes": 4, "shape": [1, 8, 8], "train": 18, "test": 8}  # images, for generators
BOTH = {"dropout": 0.4, "batch_norm": True}
NEUTRAL = [name for name in NAMES if resolve("method", name).neutral is not None]
ALONE = [{"dropout": 0.4}, {"batch_norm": True}]
COMPANY = [pytest.param(sample, id="sample"), pytest.param(beside, id="all", marks=pytest.mark.grid)]
PACKINGS = {"one host": [(2, 0, 1)], "one each": [(0,), (1,), (2,)], "uneven": [(1,), (2, 0)]}


@pytest.fixture(scope="module")
def asked(tiny):
    """A function: the config of methods (name and knobs, in order), or the line that refuses them; each made once.

    The model is the one that a method needs: one of the listed ones, or the one that `like` names.
    """

    base = tiny(
        seed=3,
        training__rounds_per_task=1,
        training__batch_size=3,
        dataset={**DATA, "unlabelled": {**DATA, "seed": 1, "train": 7}},
        memory={"capacity": 4},
        participation={"count": 2},
    )

    @functools.cache
    def resolved(name, knobs):
        return tiny(methods={name: dict(knobs)}).methods[name]

    @functools.cache
    def prompted(name):
        return tiny(model=MODELS[name]).model

    @functools.cache
    def ask(methods, like=None, **model):
        network = base.model.model_copy(update=model or BOTH)
        if needy := [name for name in (like, *(name for name, _ in methods)) if name in MODELS]:
            network = prompted(needy[0])
        known = {name: resolved(name, knobs) for name, knobs in methods}
        config = base.model_copy(update={"methods": known, "model": network})
        try:
            check_methods(config)
        except ConfigError as refusal:
            return str(refusal)
        return config

    return ask


@pytest.fixture(scope="module")
def ran(asked, simulate):
    """A function: the run of methods, with its `calls` of hooks, or the line that refuses them; each done once."""
    federation, calls = build_federation(asked(())), []

    @functools.cache
    def run(methods, again=0, packing=None, like=None, **model):
        config = asked(methods, like, **model)
        if isinstance(config, str):
            return config
        calls.clear()
        done = simulate(config, federation, PACKINGS.get(packing))
        vars(done)["calls"] = tuple(calls)
        return done

    with pytest.MonkeyPatch.context() as patched:
        write_down_calls(NAMES, calls, patched)
        yield run


def with_defaults(*names):
    return tuple((name, QUICK.get(name) or tuple(hyperparameters(name).items())) for name in names)


def name_of(name):
    return name.rpartition(":")[2]


def neutral(name):
    return (name, tuple(resolve("method", name).neutral.items()))


def test_the_grid_has_all_methods():
    assert "fedprox" in NEUTRAL
    assert set(table("method")) < set(NAMES)


def test_every_hook_of_a_method_has_a_representative_that_has_it():
    lacking = {hook: name for name in NAMES for hook in hooks_of(name) if hook not in REPRESENTATIVES}
    assert not lacking, (
        f"name a representative of these in contract_company.py; so far only the method beside: {lacking}"
    )
    assert [hook for hook, name in REPRESENTATIVES.items() if hook not in hooks_of(name)] == []


def test_wherever_two_hooks_can_meet_they_do(asked):
    """In this order, in a pair that is run and not refused. The way out is another representative of one of the two."""
    allowed = [pair for pair in itertools.permutations(NAMES, 2) if not isinstance(asked(with_defaults(*pair)), str)]
    possible, seen = meetings(allowed), meetings(pair for pair in allowed if pair in pairs())
    unseen = {hooks: by for hooks, by in possible.items() if hooks not in seen}
    assert not unseen, f"no pair that is run has these hooks, which the pair beside has: {unseen}"


@pytest.mark.parametrize("name", NAMES)
def test_alone_it_runs_and_twice_gives_the_same_bits(ran, name):
    run = ran(with_defaults(name))
    assert not isinstance(run, str), run
    assert all(value.isfinite().all() for value in run.state.values())
    assert len(run.rounds) == 2
    assert run.rounds[0].cohort != run.rounds[1].cohort
    assert run.sha256 == ran(with_defaults(name), again=1).sha256


@pytest.mark.parametrize("name", [name for name in NAMES if "end_task" in hooks_of(name)])
def test_a_task_may_end_before_any_client_has_trained(asked, simulate, monkeypatch, name):
    """All clients of the first round drop out, which is the only one of its task."""
    monkeypatch.setattr(Participants, "dropped", property(lambda each: each.chosen if each.round == 1 else ()))
    run = simulate(asked(with_defaults(name)))
    assert [len(done.cohort) for done in run.rounds] == [0, 2]
    assert all(value.isfinite().all() for value in run.state.values())


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
def test_another_beside_it_is_allowed_or_refused_in_one_line(asked, name):
    """Every ordered pair that this method begins, whether or not it is run."""
    for other in NAMES:
        found = asked(with_defaults(name, other)) if other != name else None
        if isinstance(found, str):
            assert "\n" not in found
            assert found.startswith(("methods", "memory"))
            assert isinstance(asked(with_defaults(other, name)), str)  # refused whatever the order


@pytest.mark.parametrize("company", COMPANY)
@pytest.mark.parametrize("name", NAMES)
def test_in_company_every_hook_is_called_and_in_the_listed_order(ran, name, company):
    """What is called of a method alone is called of it here; hooks that both have in turns, the first one's first."""
    for other in company(name):
        run = ran(with_defaults(name, other))
        if isinstance(run, str):
            continue
        assert all(value.isfinite().all() for value in run.state.values()), other
        both = [name_of(name), name_of(other)]
        assert {*run.calls} == {call for one in (name, other) for call in ran(with_defaults(one)).calls}, other
        for hook in hooks_of(name) & hooks_of(other):
            turns = [who for called, who in run.calls if called == hook]
            assert turns == both * (len(turns) // 2), (other, hook)


@pytest.fixture(scope="module")
def foreseen(asked):
    """A function: the foreseen cost of methods that are not refused; each done once."""
    federation = build_federation(asked(()))
    return functools.cache(lambda methods, like=None: cost_of(asked(methods, like), federation))


@pytest.mark.parametrize("company", COMPANY)
@pytest.mark.parametrize("name", NAMES)
def test_its_bytes_and_steps_are_known_before(ran, foreseen, name, company):
    """Alone and in company: what is sure beforehand is what the run counted, and the rest is near."""
    for other in [name, *company(name)]:
        methods = with_defaults(*dict.fromkeys([name, other]))
        run = ran(methods)
        if not isinstance(run, str):
            before, counted = foreseen(methods), run.simulation.exchange
            bytes_sent = (counted.traffic.up, counted.traffic.down)
            near = pytest.approx(bytes_sent, rel=0.5) if before.unsure_bytes else bytes_sent
            assert (sum(before.up.values()), sum(before.down.values())) == near, other
            near = pytest.approx(counted.steps, rel=0.5) if before.unsure_steps else counted.steps
            assert before.steps == near, other


@pytest.mark.parametrize("company", COMPANY)
@pytest.mark.parametrize("name", NAMES)
def test_in_company_it_sends_what_it_sends_alone(asked, foreseen, name, company):
    """Unless the other chooses who takes part, whether they train, or what the memory is filled with, or when."""
    said = name_of(name)
    for other in company(name):
        uses = [use for use in (resolve("method", one).memory for one in (name, other)) if use is not None]
        if hooks_of(other) & {"select", "batches", "trains"} or len({use.fills[0] for use in uses}) > 1:
            continue
        for pair in itertools.permutations(with_defaults(name, other)):
            if not isinstance(asked(pair), str):
                found = foreseen(pair)
                chooses = next((one for one, _ in pair if one in MODELS), None)  # whose model the pair has
                alone = foreseen(with_defaults(name), like=chooses)
                assert (found.up.get(said), found.down.get(said)) == (alone.up.get(said), alone.down.get(said)), pair


@pytest.mark.parametrize("model", [BOTH, *ALONE], ids=["both", "dropout", "batch_norm"])
@pytest.mark.parametrize("name", NEUTRAL)
def test_neutral_it_changes_no_bit_of_fedavg(ran, name, model):
    assert ran((neutral(name),), **model).sha256 == ran((), like=name, **model).sha256


@pytest.mark.parametrize("company", COMPANY)
@pytest.mark.parametrize("name", NEUTRAL)
def test_neutral_it_changes_no_bit_of_another(ran, name, company):
    moved = []
    for other in company(name):
        alone = ran(with_defaults(other), like=name)
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
