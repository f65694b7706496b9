"""How many vectors of the model's length a host takes while it carries out an order, against what torch allocates."""

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from raysim import config as configs
from raysim.api import ClientHalf, Method
from raysim.engine.replies import Reply
from raysim.engine.runner import LocalRunner
from raysim.engine.simulation import Simulation
from raysim.estimate.memory import estimate_memory
from raysim.estimate.saved_tensors import measure_saved
from raysim.federation.federation import build_federation
from raysim.models.building import build_model
from raysim.models.flat import FlatModel

WIDE = {
    "name": "wide",
    "dataset": {"name": "digits", "train_samples": 32},
    "scenario": {"kind": "domain_incremental", "tasks": 1},
    "clients": {"count": 2},
    "model": {"name": "mlp", "hidden": [1500, 1500]},  # of 9 MB, with blocks of 1 MB in a sum
    "training": {"rounds_per_task": 4, "batch_size": 4},
}


class Own(Method):
    """FedAvg, with code of a user's at the clients."""

    class Client(ClientHalf):
        """Nothing."""


class Watched(LocalRunner):
    """Notes the most bytes of tensors that each order held beside what there was."""

    def __init__(self, *run) -> None:
        super().__init__(*run)
        self.peaks = []

    def begin(self, order, message, broadcasts) -> Reply:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
            reply = super().begin(order, message, broadcasts)
        now = peak = 0
        events = [event for event in seen.profiler.kineto_results.events() if event.name() == "[memory]"]
        for event in sorted(events, key=lambda event: event.start_ns()):
            now += event.nbytes()
            peak = max(peak, now)
        self.peaks.append(peak)
        return reply


@pytest.mark.parametrize(
    ("optimizer", "methods", "vectors"),
    [
        ({"name": "sgd"}, {}, 2 + 1),  # the sum, and an update
        ({"name": "sgd", "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}, {}, 2 + 1 + 2),
        ({"name": "adam", "weight_decay": 0.1}, {}, 2 + 2 + 3),
        ({"name": "sgd"}, {"scaffold": {}}, 2 + 1 + 4 + 3),
    ],
    ids=["sgd", "nesterov", "adam", "scaffold"],
)
def test_a_host_at_work_takes_the_vectors_estimated(optimizer, methods, vectors):
    """The estimate adds one for what the product of a layer packs, which torch's allocator does not see.

    What an evaluation takes more, 4 * 360 samples * 1,500 float32 at most, is less than a vector of 9,456,040 bytes.
    """
    training = {**WIDE["training"], "optimizer": optimizer}
    config = configs.load({**WIDE, "training": training, "methods": methods})
    federation = build_federation(config)
    runner = Watched(config, federation)
    simulation = Simulation(config, federation, runner)
    for _ in simulation.events():
        pass
    vector = simulation.model.weights().nbytes
    # of the first, methods' own vectors would be a part; the profiler has been seen to miss some of one order's
    assert vectors <= max(runner.peaks[1:]) / vector < vectors + 0.6
    assert estimate_memory(config, federation, simulation.model).working // vector == vectors + 1


def test_frozen_weights_of_a_file_count_once_for_a_node(tmp_path):
    """A layer of 64 x 4096 and 4096 frozen numbers, 1,064,960 bytes: mapped from a file, or drawn by each process.

    The adapter's numbers and the head's are trained. What hosts and the coordinator hold besides is the same.
    """
    model = {"name": "mlp", "hidden": [4096], "adapters": {"rank": 1, "where": ["1"]}}
    drawn = configs.load({**WIDE, "model": model})
    federation = build_federation(drawn)
    torch.save(
        build_model(configs.load({**WIDE, "model": model | {"adapters": None}}), (1, 8, 8), 10).state_dict(),
        tmp_path / "w.pt",
    )
    needs = []
    for weights in (None, str(tmp_path / "w.pt")):
        config = configs.load(drawn, {"model.weights": weights})
        needs.append(estimate_memory(config, federation, FlatModel(build_model(config, (1, 8, 8), 10))))
    everywhere, once = needs
    frozen = 4 * (64 * 4096 + 4096)
    assert (everywhere.frozen, everywhere.mapped, once.frozen, once.mapped) == (frozen, 0, 0, frozen)
    assert everywhere.host - once.host == everywhere.coordinator - once.coordinator == frozen
    assert everywhere.driver - once.driver == 2 * frozen  # of its own model, and of the coordinator's
    assert once.node - everywhere.node == frozen
    assert everywhere.alone - once.alone == frozen  # two models in one process, and one file


def test_a_step_with_a_memory_keeps_the_layers_inputs_of_two_batches():
    """Each layer keeps its input, and each ReLU its output, which is the next input: 64 + 2 * 1,500 float32 a sample.

    A batch has 4 samples, and with ER 4 of the memory more.
    """
    needs = []
    for methods in ({}, {"er": {}}):
        config = configs.load({**WIDE, "methods": methods})
        federation = build_federation(config)
        model = FlatModel(build_model(config, federation.shape, federation.classes))
        assert measure_saved(model, torch.zeros(2, 1, 8, 8)) == 4 * (64 + 2 * 1500)
        needs.append(estimate_memory(config, federation, model))
    assert needs[1].host - needs[0].host == 4 * 4 * (64 + 2 * 1500)
    assert (needs[0].rehearsed, needs[1].rehearsed // model.weights().nbytes) == (0, 2 + 1 + 4)


def test_a_host_has_broadcasts_twice_with_custom_code():
    """With FedAvg, the one broadcast is the model. A copy of it shows whether custom code has changed it."""
    needs = []
    for methods in ({}, {"test_vectors:Own": {}}):
        config = configs.load({**WIDE, "methods": methods})
        federation = build_federation(config)
        model = FlatModel(build_model(config, federation.shape, federation.classes))
        needs.append(estimate_memory(config, federation, model).host)
    assert needs[1] - needs[0] == model.weights().nbytes


def test_a_step_in_parts_keeps_one_part_and_one_in_bfloat16_half_of_it():
    """A batch of 4 in two parts keeps the inputs of 2 samples; see the test above for a sample's 64 + 2 * 1,500.

    In bfloat16 each number has 2 bytes, and a pass also keeps the trained weights as they were rounded.
    """
    needs = []
    for keys in ({}, {"training.accumulate": 2}, {"model.precision": "bfloat16"}):
        config = configs.load(WIDE, keys)
        federation = build_federation(config)
        model = FlatModel(build_model(config, federation.shape, federation.classes))
        needs.append(estimate_memory(config, federation, model).host)
    assert needs[0] - needs[1] == 2 * 4 * (64 + 2 * 1500)
    assert needs[0] - needs[2] == 4 * 2 * (64 + 2 * 1500) - model.weights().nbytes // 2


def test_methods_with_passes_of_their_own_keep_whole_batches():
    """A-GEM passes its memory's samples as one batch, in addition to the step's parts."""
    needs = []
    for keys in ({}, {"training.accumulate": 2}):
        config = configs.load({**WIDE, "methods": {"a_gem": {}}}, keys)
        federation = build_federation(config)
        needs.append(estimate_memory(config, federation, FlatModel(build_model(config, (1, 8, 8), 10))).host)
    assert needs[0] == needs[1]
