"""What all replaying methods owe to `training.logits`."""

import pytest
from replay_oracle import SOFTMAX, vector

from raysim.engine.compatibility import check_methods
from raysim.engine.events import RoundDone
from raysim.engine.runner import LocalRunner
from raysim.engine.simulation import Simulation
from raysim.federation.federation import build_federation
from raysim.memory import Memory
from raysim.models.building import build_model
from raysim.system.errors import ConfigError
from raysim.system.seeding import torch_untouched

METHODS = {
    "a_gem": {}, "fed_a_gem": {}, "er": {}, "der": {"alpha": 0.0, "beta": 1.0}, "c_flag": {"adaptive": "off"},
    "re_fed": {"epochs": 2},
}  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
def test_classes_not_seen_yet_do_not_move(tiny, simulate, method):
    """Under logits=seen the cross-entropy leaves classes out, so their rows of the head have gradient 0, replayed too.

    Softmax regression, six classes in three tasks: after two tasks the rows and biases of classes 4 and 5 (6 features)
    are what they were.
    """
    config = tiny(
        model=SOFTMAX,
        dataset={"name": "synthetic", "classes": 6, "shape": [6], "train": 60, "test": 20},
        scenario={"kind": "class_incremental", "tasks": 3},
        training__logits="seen",
        training__rounds_per_task=3,
        methods={method: METHODS[method]},
    )
    federation = build_federation(config)
    start = vector(build_model(config, federation.shape, federation.classes).state_dict())
    with torch_untouched():
        simulation = Simulation(config, federation, LocalRunner(config, federation))
        for event in simulation.events():
            if isinstance(event, RoundDone) and event.round == 6:
                break
    unseen = [*range(4 * 6, 6 * 6), 40, 41]
    now = simulation.server.parameters.numpy()
    assert (now[unseen] == start[unseen]).all()
    assert (now[: 4 * 6] != start[: 4 * 6]).all()


@pytest.mark.parametrize("method", METHODS)
def test_a_softmax_over_the_task_alone_is_refused(tiny, method):
    """Replayed labels of earlier tasks would have logit minus infinity."""
    config = tiny(
        scenario={"kind": "class_incremental", "tasks": 2}, training__logits="task", methods={method: METHODS[method]}
    )
    with pytest.raises(ConfigError, match=f"methods.{method}: trains on earlier tasks"):
        check_methods(config)


@pytest.mark.parametrize("method", ["a_gem", "fed_a_gem", "er", "der"])
@pytest.mark.parametrize(("model", "drawn"), [({"name": "probes:normalised"}, {2}), (SOFTMAX, {1})])
def test_with_batchnorm_at_least_two_samples_are_drawn(tiny, simulate, monkeypatch, method, model, drawn):
    """One sample alone has no variance, so a method with sample_size 1 would be FedAvg."""
    sizes, real = [], Memory.sample

    def spy(memory, count, draws):
        entries = real(memory, count, draws)
        sizes.append(len(entries.positions))
        return entries

    monkeypatch.setattr(Memory, "sample", spy)
    simulate(tiny(model=model, methods={method: METHODS[method] | {"sample_size": 1}}))
    assert {*sizes} == drawn
