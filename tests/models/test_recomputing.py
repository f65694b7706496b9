"""model.checkpointing: the same bits from fewer kept activations."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from raysim.config import load
from raysim.estimate.saved_tensors import SavedTensors, measure_saved
from raysim.models.building import build_model, check_model
from raysim.models.flat import FlatModel
from raysim.models.recomputing import find_blocks, recomputed_blocks
from raysim.system.errors import ConfigError

pytestmark = pytest.mark.usefixtures("quiet_torch")

TRANSFORMER = {"name": "transformer", "width": 8, "layers": 2, "heads": 2, "feedforward": 8, "dropout": 0.3}
VIT = {"name": "vit", "width": 8, "depth": 3, "heads": 2, "patch": 4, "input_size": 8}
L2P = {**VIT, "prompts": {"kind": "l2p", "pool": 3, "top": 2, "length": 1}}
LORA = {**VIT, "adapters": {"rank": 2, "where": ["blocks.[12].*"]}}
MODELS = {
    "transformer": (TRANSFORMER, (6,), 9, 2),
    "vit": (VIT, (3, 8, 8), None, 3),
    "vit with prompts": (L2P, (3, 8, 8), None, 3),
    "vit with adapters": (LORA, (3, 8, 8), None, 3),
    "vit that begins late": ({**LORA, "cache": True}, (3, 8, 8), None, 3),
    "normalised": ({"name": "test_recomputing:normalised"}, (4,), None, 2),
    "torchvision": ({"name": "torchvision", "architecture": "resnet18", "input_size": 32}, (1, 32, 32), None, 8),
}


class Normalised(nn.Module):
    """A linear layer with BatchNorm and dropout, and a count of its passes."""

    def __init__(self, width):
        super().__init__()
        self.linear, self.norm, self.dropout = nn.Linear(width, width), nn.BatchNorm1d(width), nn.Dropout(0.4)
        self.register_buffer("passes", torch.zeros(1, dtype=torch.int64))

    def forward(self, x):
        self.passes += 1
        return x + self.passes.clone() * self.dropout(self.norm(self.linear(x))).relu()


def normalised(shape, classes):
    return nn.Sequential(Normalised(shape[0]), Normalised(shape[0]), nn.Linear(shape[0], classes))


def plain(shape, classes):
    """Three blocks of two layers with a ReLU between."""
    return nn.Sequential(*(Feed() for _ in range(3)), nn.Linear(10, classes))


class Feed(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.relu, self.narrow = nn.Linear(10, 30), nn.ReLU(), nn.Linear(30, 10)

    def forward(self, x):
        return self.narrow(self.relu(self.wide(x)))


def config_of(model):
    return load(
        {
            "name": "again",
            "dataset": {"name": "digits"},
            "scenario": {"kind": "class_incremental", "tasks": 2},
            "clients": {"count": 1},
            "model": model,
            "training": {"rounds_per_task": 1},
        }
    )


def steps(model, shape, ids):
    """Take two steps; return the parameters, the statistics and torch's next random number."""
    flat = FlatModel(build_model(config_of(model), shape, 3, ids))
    torch.manual_seed(4)
    shape = getattr(flat.module, "feature_shape", ()) or shape
    for _ in range(2):
        x = torch.randint(ids, (5, *shape)) if ids else torch.randn(5, *shape)
        loss = functional.cross_entropy(flat(x), torch.tensor([0, 1, 2, 0, 1]))
        loss = loss + flat(x).square().mean()  # a second pass before the first one's backward pass, as with replay
        flat.gradient.zero_()
        loss.backward()
        flat.parameters.sub_(flat.gradient, alpha=0.1)
    return [*flat.copy().vectors, flat.gradient.clone(), torch.rand(1)]


@pytest.mark.parametrize("name", MODELS)
def test_steps_have_the_same_bits(name):
    model, shape, ids, blocks = MODELS[name]
    again = build_model(config_of({**model, "checkpointing": True}), shape, 3, ids)
    assert len(recomputed_blocks(again)) == blocks
    found, expected = steps({**model, "checkpointing": True}, shape, ids), steps(model, shape, ids)
    assert all(map(torch.equal, found, expected))
    assert found[3].any()


@pytest.mark.parametrize("name", ["transformer", "vit", "vit with prompts"])
def test_a_pass_in_training_keeps_less(name):
    """Autograd's own count, of a pass in training mode."""
    model, shape, ids, _ = MODELS[name]
    kept = []
    for checkpointing in (False, True):
        module = build_model(config_of({**model, "checkpointing": checkpointing}), shape, 3, ids)
        x = torch.randint(ids, (5, *shape)) if ids else torch.randn(5, *shape)
        saved = SavedTensors()
        with saved.noted():
            module.train()(x)
        kept.append(saved.peak)
    assert kept[1] < kept[0] / 2


def test_a_block_keeps_its_input_and_one_at_a_time_the_rest():
    """Per sample: a block of 10 numbers keeps its input and 30 outputs of the ReLU, and the head its input.

    In all 3 * 40 + 10 = 130. With checkpointing 3 inputs, the head's input and the 40 of one block: 80. float32.
    """
    found = []
    for checkpointing in (False, True):
        config = config_of({"name": "test_recomputing:plain", "checkpointing": checkpointing})
        model = FlatModel(build_model(config, (10,), 3))
        model.module.eval()
        found.append(measure_saved(model, torch.zeros(2, 10)))
    assert found == [4 * 130, 4 * 80]


def test_a_copy_of_the_network_has_its_own_blocks():
    """A copy that called the original's blocks would return the original's outputs."""
    flat = FlatModel(build_model(config_of({**VIT, "checkpointing": True}), (3, 8, 8), 3))
    other = flat.copy()
    other.parameters.mul_(2)
    x = torch.randn(2, 3, 8, 8)
    network = flat.network_at(other).train()
    expected = flat.logits(x, other.parameters, other.buffers)
    torch.testing.assert_close(network(x), expected)
    assert not torch.equal(flat(x), expected)


def test_blocks_are_the_outermost_modules_with_layers_of_their_own():
    network = nn.Sequential(nn.Linear(2, 2), nn.Sequential(Feed(), nn.ReLU()), nn.ModuleList([nn.Sequential(Feed())]))
    assert [*find_blocks(network)] == [network[1][0], network[2][0][0]]


def test_a_model_without_blocks_is_refused():
    config = config_of({"name": "mlp", "checkpointing": True})
    with pytest.raises(
        ConfigError, match=r"^model\.checkpointing: found true for mlp, which has no blocks, allowed: a"
    ):
        check_model(config, (6,), 3)
