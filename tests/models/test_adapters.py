"""LoRA: sizes, first gradients, equal outputs of merged weights, and which layers are adapted."""

from collections import OrderedDict
from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from raysim.models.adapters import (
    LowRankAdapter,
    add_adapters,
    draw_a,
    find_adapters,
    merged_state,
    merged_weights,
    products,
)
from raysim.models.flat import FlatModel
from raysim.models.layers import find_head
from raysim.models.resnet18 import BasicBlock, resnet18
from raysim.models.transformer import transformer
from raysim.models.vit import vit
from raysim.system.errors import ConfigError

IMAGES = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
TEXTS = torch.tensor([[4, 9, 3, 10], [2, 1, 5, 0], [3, 0, 0, 0]])
Y = torch.tensor([0, 1, 2])
ALL_OF_VIT = ["attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2"]


def small_vit():
    return vit((3, 8, 8), 4, width=16, depth=2, heads=2, patch=4, input_size=None)


def small_resnet():
    """A stem and one block of ResNet-18."""
    stem, block = nn.Conv2d(3, 4, 3, padding=1, bias=False), BasicBlock(4, 8, 2)
    layers = {"conv1": stem, "block": block, "pool": nn.AdaptiveAvgPool2d(1), "flat": nn.Flatten()}
    return nn.Sequential(OrderedDict(layers | {"linear": nn.Linear(8, 4)}))


MODELS = {
    "vit": (small_vit, IMAGES, ALL_OF_VIT, 8),
    "residual": (small_resnet, IMAGES, ["conv?", "shortcut.0"], 4),
    "transformer": (
        lambda: transformer((4,), 4, width=8, heads=2, layers=1, feedforward=12, vocabulary=11),
        TEXTS,
        ["qkv", "mixed", "wide", "narrow"],
        4,
    ),
}


@pytest.fixture(params=MODELS)
def adapted(request):
    """A model with adapters of rank 2, the same model without them, samples, and the number of adapted layers."""
    build, x, where, count = MODELS[request.param]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        plain = build().eval()
        torch.manual_seed(0)
        model = build().eval()
        add_adapters(model, 2, where, 0.5, head=find_head(model, x))
    return model, plain, x, count


def train(model, x, steps=3):
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.5)
    for _ in range(steps):
        optimizer.zero_grad()
        functional.cross_entropy(model(x), Y).backward()
        optimizer.step()


def test_at_first_the_model_is_unchanged_and_head_and_adapters_are_trained(adapted):
    model, plain, x, count = adapted
    assert torch.equal(model(x), plain(x))
    assert len([*find_adapters(model)]) == count
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    ends = {name.rpartition(".")[0].rpartition(".")[2] for name in trained}
    assert ends == {"lora_a", "lora_b", "linear" if "linear.weight" in trained else "head"}
    assert len(trained) == 2 * count + 2


def test_the_first_step_moves_b_and_the_head(adapted):
    """dA = B^T dW is zero for B = 0, and dB = dW A^T is not."""
    model, _, x, _ = adapted
    functional.cross_entropy(model(x), Y).backward()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            assert bool(parameter.grad.any()) == ("lora_a" not in name), name


def test_merged_weights_give_the_same_outputs(adapted):
    """The state without adapters fits the plain model. The frozen weights keep their bits."""
    model, plain, x, _ = adapted
    before = {name: p.detach().clone() for name, p in model.named_parameters() if not p.requires_grad}
    train(model, x)
    assert not torch.allclose(model(x), plain(x), atol=1e-3)
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters() if name in before)
    plain.load_state_dict(merged_state(model))
    torch.testing.assert_close(model(x), plain(x), atol=1e-4, rtol=1e-4)


def test_a_layer_with_two_names_is_merged_under_both():
    layer = nn.Linear(3, 3)
    model = nn.ModuleDict({"a": layer, "b": layer, "head": nn.Linear(3, 2)})
    before, plain = layer.weight.detach().clone(), deepcopy(model)
    add_adapters(model, 1, ["*"], 1.0, head=("head.weight", "head.bias"))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora" in name:
                parameter.fill_(1.0)
    state = merged_state(model)
    plain.load_state_dict(state)
    torch.testing.assert_close(state["b.weight"], before + 1.0)
    assert torch.equal(state["a.weight"], state["b.weight"])


def test_the_gradients_are_those_of_the_product(adapted):
    """dB = s dW A^T and dA = s B^T dW, where dW is the gradient of the merged weight by autograd."""
    model, plain, x, _ = adapted
    train(model, x)
    model.zero_grad()
    functional.cross_entropy(model(x), Y).backward()
    plain.load_state_dict(merged_state(model))
    functional.cross_entropy(plain(x), Y).backward()
    for name, adapter in find_adapters(model):
        gradient = plain.get_parameter(f"{name}.weight").grad.flatten(1)
        a, b = adapter.lora_a.weight.detach().flatten(1), adapter.lora_b.weight.detach().flatten(1)
        close = {"atol": 1e-5, "rtol": 1e-3}
        torch.testing.assert_close(adapter.lora_b.weight.grad.flatten(1), 0.5 * gradient @ a.T, **close)
        torch.testing.assert_close(adapter.lora_a.weight.grad.flatten(1), 0.5 * b.T @ gradient, **close)


def test_the_input_of_a_is_the_layers_input():
    """LoRM and RegMean need it: `FlatModel.inputs` has trained layers only, and A is one."""
    model = small_vit()
    add_adapters(model, 2, ["blocks.0.attn.qkv"], head=("head.weight", "head.bias"))
    seen = []
    model.blocks[0].attn.qkv.base.register_forward_pre_hook(lambda layer, given: seen.append(given[0]))
    flat, name = FlatModel(model), "blocks.0.attn.qkv.lora_a.weight"
    rows = flat.inputs(IMAGES, flat.parameters, flat.buffers, [name])[name]
    assert torch.equal(rows, seen[0].flatten(0, 1))
    assert rows.shape == (3 * 5, 16)


def test_what_is_sent():
    """At rank 16 and 100 classes on ViT-B/16: per block A has 16 (3 * 768 + 3072) and B 16 (2304 + 768 + 3072 + 768)
    numbers; with 12 blocks and the head of 76,900 these are 2,436,196. One block of the 12 is built here.
    """
    a, b = 16 * (3 * 768 + 3072), 16 * (2304 + 768 + 3072 + 768)
    assert 12 * (a + b) + 76_900 == 2_436_196
    model = vit((3, 32, 32), 100, width=768, depth=1, input_size=None)
    add_adapters(model, 16, ALL_OF_VIT, head=("head.weight", "head.bias"))
    assert len(FlatModel(model).parameters) == a + b + 76_900
    sizes = {part: sum(p.numel() for name, p in model.named_parameters() if part in name) for part in ("_a.", "_b.")}
    assert sizes == {"_a.": a, "_b.": b}


@pytest.mark.parametrize("build", ["linear", "conv"])
def test_the_draw_of_a(build):
    """U(-1/sqrt(i), 1/sqrt(i)): i is 100 inputs, or 4 channels of 5 x 5. The variance is 1 / (3 i)."""
    base = nn.Linear(100, 7) if build == "linear" else nn.Conv2d(4, 7, 5)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        first = LowRankAdapter(base, 300, 1.0).lora_a.weight
    for weight in (first, draw_a(first, torch.Generator().manual_seed(1))):
        assert weight.abs().max() <= 0.1
        assert weight.abs().max() > 0.0999
        assert weight.var().item() == pytest.approx(1 / 300, rel=0.02)
    assert torch.equal(draw_a(first, torch.Generator().manual_seed(1)), weight)


@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 3, "padding": 1},
        {"kernel_size": (2, 3), "stride": 2, "dilation": 2},
        {"kernel_size": 3, "padding": "same", "padding_mode": "circular", "bias": False},
        {"kernel_size": 3, "groups": 2},
        {"kernel_size": 1, "groups": 4},
    ],
)
def test_convolutions_of_any_kind(options):
    """The adapted layer equals a convolution with W0 + s B A."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        base = nn.Conv2d(4, 8, **options)
        adapter = LowRankAdapter(base, 2, 0.3)
        nn.init.normal_(adapter.lora_b.weight)
        x, merged = torch.randn(2, 4, 8, 8), nn.Conv2d(4, 8, **options)
    weights = merged_weights(nn.ModuleDict({"layer": adapter}), {
        f"layer.{name}": p.detach() for name, p in adapter.named_parameters()
    })  # fmt: skip
    merged.load_state_dict(base.state_dict() | {"weight": weights["layer.weight"]})
    assert not torch.allclose(merged(x), base(x), atol=1e-2)
    torch.testing.assert_close(adapter(x), merged(x), atol=1e-5, rtol=1e-4)


def test_products_of_a_vector():
    """s B A by hand: 2 (1, 3)^T (1, -1)."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 3))
    add_adapters(model, 1, ["0"], 2.0, head=("1.weight", "1.bias"))
    flat = FlatModel(model)
    flat.named(flat.parameters)["0.lora_a.weight"].copy_(torch.tensor([[1.0, -1.0]]))
    flat.named(flat.parameters)["0.lora_b.weight"].copy_(torch.tensor([[1.0], [3.0]]))
    found = products(model, flat.named(flat.parameters))
    assert {name: value.tolist() for name, value in found.items()} == {"0.weight": [[2, -2], [6, -6]]}


def test_the_mean_of_products_is_exact_if_a_is_shared():
    """FFA-LoRA: mean(B) A = mean(B A). LoRA: mean(B) mean(A) is not mean(B A): 0 and -1 for B = 1, 3, A = 1, -1."""
    generator = np.random.default_rng(0)
    adapter = LowRankAdapter(nn.Linear(5, 4), 2, 1.5)
    a, bs = torch.tensor(generator.normal(size=(2, 5))), torch.tensor(generator.normal(size=(3, 4, 2)))
    torch.testing.assert_close(adapter.product(a, bs.mean(0)), torch.stack([adapter.product(a, b) for b in bs]).mean(0))
    one = LowRankAdapter(nn.Linear(1, 1), 1, 1.0)
    bs, as_ = torch.tensor([[[1.0]], [[3.0]]]), torch.tensor([[[1.0]], [[-1.0]]])
    assert one.product(as_.mean(0), bs.mean(0)).item() == 0
    assert torch.stack([one.product(*pair) for pair in zip(as_, bs, strict=True)]).mean().item() == -1


def test_rank_0_is_a_linear_probe():
    model, plain = small_vit(), small_vit()
    plain.load_state_dict(model.state_dict())
    add_adapters(model, 0, ["*"], head=("head.weight", "head.bias"))
    assert [*find_adapters(model)] == []
    assert {name for name, p in model.named_parameters() if p.requires_grad} == {"head.weight", "head.bias"}
    assert torch.equal(model(IMAGES), plain(IMAGES))


def test_all_convolutions_of_resnet18_are_adapted():
    """A stem, two in each of 8 blocks and 3 shortcuts; with `*` the head, too, is left."""
    model = resnet18((3, 8, 8), 4)
    add_adapters(model, 1, ["*"], head=find_head(model, IMAGES))
    assert len([*find_adapters(model)]) == 1 + 2 * 8 + 3
    assert {n for n, p in model.named_parameters() if p.requires_grad and "lora" not in n} == {
        "linear.weight", "linear.bias"
    }  # fmt: skip


def test_a_star_is_all_layers_except_the_head():
    model = small_vit()
    add_adapters(model, 1, ["*"], head=("head.weight", "head.bias"))
    assert len([*find_adapters(model)]) == 1 + 2 * 4
    assert isinstance(model.head, nn.Linear)


def test_a_shared_layer_has_one_adapter():
    layer = nn.Linear(3, 3)
    model = nn.Sequential(layer, nn.ReLU(), layer, nn.Linear(3, 2))
    add_adapters(model, 1, ["0", "2"], head=("3.weight", "3.bias"))
    assert isinstance(model[0], LowRankAdapter)
    assert model[0] is model[2]


def test_a_pattern_without_a_layer_is_refused():
    """The nearest name is suggested, and the head is not among the names."""
    model, known = small_vit(), "proj, qkv, fc1, fc2, patch_embed.proj, attn.qkv, attn.proj, mlp.fc1, mlp.fc2"
    for where, near in (["attn.qkv", "attn.qkw"], "; did you mean 'attn.qkv'?"), (["head"], ";"):
        with pytest.raises(ConfigError) as caught:
            add_adapters(model, 2, where, head=("head.weight", "head.bias"))
        assert str(caught.value) == f"model.adapters.where: unknown layer '{where[-1]}'{near} allowed: {known}"
    assert all(p.requires_grad for p in model.parameters())


def test_layers_that_are_not_called_are_refused():
    """nn.MultiheadAttention multiplies with out_proj.weight itself, so that an adapter would not be used."""
    model = nn.Sequential(nn.MultiheadAttention(4, 2), nn.Linear(4, 2))
    with pytest.raises(ConfigError, match=r"found 0.out_proj in torch's MultiheadAttention, which does not call it"):
        add_adapters(model, 2, ["*"], head=("1.weight", "1.bias"))
