"""Networks that begin late: their pass from features, where it begins, and which networks cannot."""

import pytest
import torch
from torch import nn
from torchvision.ops import StochasticDepth

from raysim.config import load
from raysim.models.building import build_model
from raysim.models.stages import begin_late, names_left_out
from raysim.system.errors import ConfigError

pytestmark = pytest.mark.usefixtures("quiet_torch")

VIT = {"name": "vit", "width": 8, "depth": 3, "heads": 2, "patch": 4, "input_size": 8}
DUAL = {"kind": "dual", "general_blocks": [1], "blocks": [2], "general_length": 2, "length": 2, "pool": 3}
CODA = {"kind": "coda", "blocks": [1, 2], "pool": 4, "per_task": 2, "length": 2}
L2P = {"kind": "l2p", "pool": 3, "top": 2, "length": 1}
TIMM = {"name": "timm", "input_size": 32}
TORCHVISION = {"name": "torchvision", "architecture": "resnet18", "input_size": 32}

# name -> the model, a sample's shape, the number of stages that are left out, the shape of a sample's features
LATE = {
    "the head alone": ({**VIT, "adapters": {"rank": 0, "where": ["*"]}}, (3, 8, 8), 5, (8,)),
    "late blocks": ({**VIT, "adapters": {"rank": 2, "where": ["blocks.2.*"]}}, (1, 8, 8), 3, (5, 8)),
    "tokens": ({**VIT, "prompts": L2P}, (3, 8, 8), 1, (6, 8)),  # the query, the class token and 4 patches
    "prefixes": ({**VIT, "prompts": DUAL}, (3, 6, 6), 1, (6, 8)),
    "components": ({**VIT, "prompts": CODA}, (3, 8, 8), 1, (6, 8)),
    "resnet18": ({"name": "resnet18", "freeze": ["conv1.*", "bn1.*", "layer[1-3].*"]}, (3, 8, 8), 4, (256, 2, 2)),
    "mnist_cnn": ({"name": "mnist_cnn", "freeze": ["conv*"]}, (1, 28, 28), 2, (20, 8, 8)),  # dropout2d is after conv2
    "mlp": ({"name": "mlp", "hidden": [6, 5], "batch_norm": True, "freeze": ["[1-5].*"]}, (1, 2, 2), 7, (5,)),
    "critic": ({"name": "critic", "width": 4, "freeze": ["0.0.*", "0.2.*"]}, (1, 16, 16), 4, (8, 4, 4)),
    "torchvision": ({**TORCHVISION, "freeze": ["conv1.*", "bn1.*", "layer1.*"]}, (1, 20, 20), 7, (64, 8, 8)),
    # timm's begin with the preparation of images
    # conv, norm, 5 blocks, conv, norm, pooling
    "efficientnet": (
        {**TIMM, "architecture": "test_efficientnet", "freeze": ["[!c]*", "conv*"]},
        (3, 9, 9),
        11,
        (256,),
    ),
    # three times conv, norm and ReLU, pooling, and the blocks of two layers
    "a resnet of timm's": (
        {**TIMM, "architecture": "test_resnet", "freeze": ["conv1*", "bn1*", "layer[12]*"]},
        (1, 9, 9),
        13,
        (48, 4, 4),
    ),
    # conv, norm, none or two layers before 1, 2, 4 and 2 blocks, then six of which four have no parameters
    "convnext": ({**TIMM, "architecture": "test_convnext", "freeze": ["st*", "*norm*"]}, (3, 9, 9), 25, (64,)),
    # embedding, 5 blocks; a class token and 4 patches
    "a vit of timm's": (
        {**TIMM, "architecture": "test_vit", "freeze": ["patch*", "cls*", "pos*", "blocks.[0-4].*"]},
        (3, 9, 9),
        7,
        (5, 64),
    ),
    # embedding, 9 blocks, norm, pooling, and two that do nothing
    "attention pooling": (
        {**TIMM, "architecture": "test_vit3", "input_size": 160, "freeze": ["[!h]*"]},
        (3, 9, 9),
        15,
        (96,),
    ),
}


def built(model, shape, **keys):
    config = load(
        {
            "name": "late",
            "dataset": {"name": "digits"},
            "scenario": {"kind": "class_incremental", "tasks": 2},
            "clients": {"count": 1},
            "model": {**model, **keys},
            "training": {"rounds_per_task": 1},
        }
    )
    return build_model(config, shape, 3)


@pytest.mark.parametrize("name", LATE)
def test_the_late_pass_over_features_is_the_whole_pass(name):
    """In training mode too, as far as nothing is drawn: the stages are the same operations on the same numbers."""
    model, shape, begin, feature_shape = LATE[name]
    plain, late = built(model, shape), built(model, shape, cache=True)
    assert (late.begin, late.feature_shape) == (begin, feature_shape)
    assert [*late.state_dict()] == [*plain.state_dict()]
    assert all(map(torch.equal, late.state_dict().values(), plain.state_dict().values()))
    x = torch.randn(4, *shape, generator=torch.Generator().manual_seed(0))
    for mode in (True, False):
        plain.train(mode), late.train(mode)
        features = late.before(x).detach()
        assert features.shape[1:] == feature_shape
        torch.manual_seed(1)
        logits = plain(x)
        torch.manual_seed(1)
        assert torch.equal(late(features), logits)
    plain.zero_grad(), late.zero_grad()
    plain(x).sum().backward(), late(late.before(x).detach()).sum().backward()
    gradients = {key: p.grad for key, p in plain.named_parameters() if p.grad is not None}
    assert gradients
    assert all(torch.equal(gradients[key], late.get_parameter(key).grad) for key in gradients)


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(x)


def own(shape, classes):
    return Own()


def shared(shape, classes):
    """One ReLU in two places, and layers in which features must not be past: a BatchNorm without weights, a dropout."""
    relu = nn.ReLU()
    norm, dropout = nn.BatchNorm1d(5, affine=False), nn.Dropout(0.5)
    return nn.Sequential(
        nn.Linear(4, 5), relu, nn.Sequential(nn.Linear(5, 5), relu), norm, nn.Linear(5, 5), dropout, nn.Linear(5, 3)
    )


def test_it_begins_before_what_is_not_constant():
    """Stages: 0 linear, 1 ReLU, 2 linear, 3 ReLU, 4 BatchNorm."""
    model, x = {"name": "test_stages:shared", "freeze": ["[0-4].*"]}, torch.randn(2, 4)
    plain, late = built(model, (4,)), built(model, (4,), cache=True)
    assert late.begin == 4
    assert torch.equal(late.eval()(late.before(x)), plain.eval()(x))


class Instances(nn.InstanceNorm1d):
    """InstanceNorm of features [n, 5] as one channel."""

    def forward(self, x):
        return super().forward(x[:, None])[:, 0]


@pytest.mark.parametrize(("follows", "begin"), [(True, 2), (False, 3)])
def test_an_instance_norm_with_running_statistics_is_not_constant(follows, begin):
    """It uses the sample's statistics in training and running ones in tests. Without these it is always the same."""
    layer = Instances(1, track_running_stats=follows)
    network = nn.Sequential(nn.Linear(4, 5).requires_grad_(False), nn.ReLU(), layer, nn.Linear(5, 3))
    assert begin_late(network, torch.randn(2, 4), "network").begin == begin


@pytest.mark.parametrize("layer", [nn.Dropout(1), nn.RReLU(), StochasticDepth(0.2, "row"), nn.AlphaDropout(0.1)])
def test_layers_that_draw_are_not_constant(layer):
    network = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), layer, nn.Linear(5, 3))
    for part in network[:3]:
        part.requires_grad_(False)
    assert begin_late(network, torch.randn(2, 4), "network").begin == 2


def test_frozen_prompts_depend_on_the_task_all_the_same():
    assert built({**VIT, "prompts": DUAL, "freeze": ["prompts.*"]}, (3, 8, 8), cache=True).begin == 1


@pytest.mark.parametrize(
    ("model", "shape", "words"),
    [
        (
            {"name": "test_stages:own", "freeze": ["*.bias"]},
            (4,),
            "own .*test_stages.py:.*, which has no stages, allowed: vit,",
        ),
        ({"name": "mlp", "freeze": ["3.*"]}, (4,), "mlp, which trains its first layer, allowed: false, or frozen"),
        ({**VIT, "prompts": L2P, "adapters": {"rank": 1, "where": ["fc1"]}}, (3, 8, 8), "vit, which trains its"),
    ],
)
def test_what_cannot_begin_late_is_one_line(model, shape, words):
    with pytest.raises(ConfigError, match=rf"^model.cache: found true for {words}[^\n]*$"):
        built(model, shape, cache=True)


def test_the_names_of_what_is_left_out():
    """With prompts the query needs all blocks, so none of their weights can be replaced."""
    late = built({**VIT, "adapters": {"rank": 2, "where": ["blocks.2.*"]}}, (3, 8, 8), cache=True)
    left = names_left_out(late)
    assert {"cls_token", "patch_embed.proj.weight", "blocks.1.mlp.fc2.bias"} < left
    assert not any(name.startswith(("blocks.2.", "norm.", "head.")) for name in left)
    prompted = names_left_out(built({**VIT, "prompts": L2P}, (3, 8, 8), cache=True))
    assert {"blocks.2.mlp.fc2.bias", "norm.weight"} < prompted
    assert not any(name.startswith(("prompts.", "head.")) for name in prompted)
    assert names_left_out(built(VIT, (3, 8, 8))) == set()
