"""Layers: what enters them as rows, and the head, which is found by what the model does."""

import pytest
import torch
from torch import nn

from raysim.models.flat import FlatModel
from raysim.models.layers import find_head, input_rows
from raysim.models.mnist_cnn import mnist_cnn
from raysim.models.resnet18 import resnet18

CONVOLUTIONS = [
    {"kernel_size": 3},
    {"kernel_size": (3, 2), "stride": (2, 1), "padding": (1, 2)},
    {"kernel_size": (3, 5), "padding": "same"},
    {"kernel_size": (4, 3), "dilation": (2, 1), "padding": "same"},
    {"kernel_size": (2, 3), "padding": "valid"},
    {"kernel_size": (4, 3), "padding": "same", "padding_mode": "reflect"},
    {"kernel_size": 3, "dilation": 2, "padding": 1, "groups": 2},
    {"kernel_size": 3, "padding": 1, "padding_mode": "circular", "groups": 4},
]


@pytest.mark.parametrize("keys", CONVOLUTIONS, ids=str)
def test_a_convolution_multiplies_its_weight_with_these_rows(keys):
    """rows [n groups places, d] times W [out, d], each group's filters with its own rows, is what torch's puts out."""
    layer = nn.Conv2d(4, 8, bias=False, **keys).double()
    x = torch.randn(3, 4, 7, 6, dtype=torch.float64)
    wanted = layer(x).flatten(2)  # [n, out, places]
    groups, places = layer.groups, wanted.shape[2]
    rows = input_rows(layer, x).view(3, groups, places, -1)
    weight = layer.weight.view(groups, 8 // groups, -1)
    found = torch.einsum("ngpd,god->ngop", rows, weight).reshape(3, 8, places)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)


def test_a_linear_layer_takes_the_last_dimension():
    x = torch.randn(2, 5, 3)
    assert torch.equal(input_rows(nn.Linear(3, 4), x), x.view(10, 3))


class Twice(nn.Module):
    """x -> head(relu(layer(relu(layer(x))))), and a layer that nothing passes."""

    def __init__(self):
        super().__init__()
        self.layer, self.unused, self.head = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, x):
        return self.head(self.layer(self.layer(x).relu()).relu())


def test_inputs_under_other_weights_change_nothing():
    """A layer that stands in two places has the rows of both; half-way through a step nothing may be written to."""
    model, other = FlatModel(Twice()), FlatModel(Twice())
    x, y = torch.randn(4, 3), torch.tensor([0, 1, 1, 0])
    model.module.train()
    loss = nn.functional.cross_entropy(model.module(x), y)
    before = model.parameters.clone()
    found = model.inputs(x, other.parameters, other.buffers, ["layer.weight", "unused.weight", "head.weight"])
    loss.backward()
    first = other.module.layer(x).relu()
    wanted = [torch.cat([x, first]), torch.zeros(0, 3), other.module.layer(first).relu()]
    assert [torch.equal(a, b) for a, b in zip(found.values(), wanted, strict=True)] == [True] * 3
    assert torch.equal(model.parameters, before)
    assert model.module.training
    assert not any(part.requires_grad for part in found.values())
    assert model.widths == {"layer.weight": 3, "unused.weight": 3, "head.weight": 3}


def tied():
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    return nn.Sequential(first, second)


def test_layers_that_share_a_weight_are_one():
    model = FlatModel(tied())
    assert model.widths == {"0.weight": 3}
    x = torch.randn(2, 3)
    found = model.inputs(x, model.parameters, model.buffers, model.widths)
    assert torch.equal(found["0.weight"], torch.cat([x, model.module[0](x)]))


def frozen(layer):
    return layer.requires_grad_(False)


class Times(nn.Module):
    def forward(self, x):
        return 2 * x


@pytest.mark.parametrize(
    ("module", "shape", "head"),
    [
        (nn.Linear(3, 2), (3,), ("weight", "bias")),
        (nn.Sequential(nn.Linear(3, 2, bias=False)), (3,), ("0.weight",)),
        (nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5), nn.Identity()), (3,), ("0.weight", "0.bias")),
        (nn.Sequential(nn.Linear(3, 4), nn.Unflatten(1, (4, 1)), nn.Flatten()), (3,), ("0.weight", "0.bias")),
        (Twice(), (3,), ("head.weight", "head.bias")),
        (mnist_cnn((1, 28, 28), 10), (1, 28, 28), ("fc2.weight", "fc2.bias")),
        (resnet18((3, 8, 8), 10), (3, 8, 8), ("linear.weight", "linear.bias")),
        (nn.Sequential(nn.Linear(3, 2), Times()), (3,), ()),
        (nn.Sequential(nn.Linear(3, 2), nn.ReLU()), (3,), ()),
        (nn.Sequential(nn.Linear(3, 2), nn.ReLU(inplace=True)), (3,), ()),
        (nn.Sequential(nn.Linear(3, 2), nn.Softmax(1)), (3,), ()),
        (nn.Sequential(nn.Linear(3, 3), frozen(nn.Linear(3, 2))), (3,), ()),
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten()), (1, 3, 3), ()),
    ],
    ids=str,
)
def test_the_head_is_the_linear_layer_whose_output_is_returned(module, shape, head):
    state = {name: value.clone() for name, value in module.state_dict().items()}
    assert find_head(module, torch.zeros(2, *shape)) == head
    assert all(torch.equal(value, state[name]) for name, value in module.state_dict().items())
