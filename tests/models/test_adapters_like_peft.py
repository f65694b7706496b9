"""Low-rank additions to transformers' models: passes and gradients have the bits of peft's, merged weights are close.

peft and raysim compute W x + s B (A x) in the same operations. B A is a product of matrices in peft, and a batch of
products in raysim, one for each group of a convolution: the last bit of W + s B A may differ.
"""

import pytest
import torch
from small_transformers import IDS, MODELS, build, outputs

from raysim.models.adapters import add_adapters, find_adapters, is_transposed, merged_state, products
from raysim.models.layers import find_head, name_layers

peft = pytest.importorskip("peft")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # peft asks transformers for an old name


def config_of(name, **keys):
    """peft's config. It asks for `fan_in_fan_out` if weights are transposed."""
    return peft.LoraConfig(fan_in_fan_out=name == "gpt2", **keys)


class Logits(torch.nn.Module):
    """A causal language model that returns its logits, under the names of its own tensors."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return outputs(self.model, ids)


def like_peft(name, rank=2, alpha=3, **choice):
    """A model with raysim's adapters and one with peft's, with the same A and B, neither zero."""
    ours, theirs, where = build(name), build(name), MODELS[name][1]
    add_adapters(ours, rank, where, alpha / rank, train_head=False, **choice)
    dropout = choice.get("dropout", 0.0)
    config = config_of(name, r=rank, lora_alpha=alpha, target_modules=where, lora_dropout=dropout)
    theirs = peft.get_peft_model(theirs, config)
    draw, layers = torch.Generator().manual_seed(2), dict(theirs.base_model.model.named_modules())
    for layer, adapter in find_adapters(ours):
        for part, other in ((adapter.lora_a, layers[layer].lora_A), (adapter.lora_b, layers[layer].lora_B)):
            assert part.weight.shape == other["default"].weight.shape
            part.weight.data.normal_(generator=draw)
            other["default"].weight.data.copy_(part.weight)
    return ours, theirs


@pytest.fixture(params=MODELS)
def pair(request):
    return request.param, *like_peft(request.param)


def test_passes_gradients_and_merged_weights_are_equal(pair):
    name, ours, theirs = pair
    assert len([*find_adapters(ours)]) == MODELS[name][2]
    found, expected = outputs(ours.eval()), outputs(theirs.eval())
    assert torch.equal(found, expected)
    assert not torch.allclose(found, outputs(build(name)), atol=1e-2)
    for result in (found, expected):
        result.square().mean().backward()
    layers = dict(theirs.base_model.model.named_modules())
    for layer, adapter in find_adapters(ours):
        for part, other in ((adapter.lora_a, layers[layer].lora_A), (adapter.lora_b, layers[layer].lora_B)):
            assert part.weight.grad.abs().max() > 0
            assert torch.equal(part.weight.grad, other["default"].weight.grad), layer
    trained = {n for n, p in ours.named_parameters() if p.requires_grad}
    assert trained == {f"{layer}.lora_{part}.weight" for layer, _ in find_adapters(ours) for part in "ab"}
    assert len(trained) == sum(p.requires_grad for p in theirs.parameters())

    merged, expected = merged_state(ours), theirs.merge_and_unload().state_dict()
    assert merged.keys() == expected.keys() == build(name).state_dict().keys()
    for key, value in merged.items():
        torch.testing.assert_close(value, expected[key], atol=1e-6, rtol=0)


def test_dropout_draws_what_peft_draws():
    """It changes A's input alone, and only in training."""
    ours, theirs = like_peft("llama", dropout=0.5)
    found = []
    for model in (ours, theirs):
        torch.manual_seed(3)
        found.append(outputs(model.train()))
    assert torch.equal(*found)
    assert not torch.equal(found[0], outputs(ours.eval()))
    assert torch.equal(outputs(ours.eval()), outputs(theirs.eval()))


def test_the_products_of_a_transposed_weight_are_transposed():
    """GPT-2's c_attn has a weight [16 inputs, 48 outputs], so s B A [48, 16] is added as [16, 48]."""
    ours, _ = like_peft("gpt2", rank=2, alpha=3)
    weights = dict(ours.named_parameters())
    layer = "transformer.h.0.attn.c_attn"
    b, a = weights[f"{layer}.lora_b.weight"], weights[f"{layer}.lora_a.weight"]
    found = products(ours, weights)[f"{layer}.weight"]
    assert found.shape == (16, 48)
    torch.testing.assert_close(found, 1.5 * (b @ a).T)
    assert is_transposed(ours.get_submodule(layer).base)
    named = {*name_layers(ours).values()}  # methods see A, and not the transposed weight
    assert f"{layer}.lora_a.weight" in named
    assert f"{layer}.base.weight" not in named


@pytest.mark.parametrize("name", ["gpt2", "qwen2"])
@pytest.mark.parametrize("tied", [True, False])
def test_all_layers_are_those_of_peft_without_the_output_layer(name, tied):
    """A star leaves out the layer that makes the logits. It is no head if it shares its weight with the embedding."""
    model = build(name)
    if not tied:
        layer = torch.nn.Linear(16, 50, bias=False)
        layer.weight.data.copy_(model.lm_head.weight)
        model.lm_head = layer
    elif name == "qwen2":
        model.lm_head.weight = model.model.embed_tokens.weight
    assert (model.lm_head.weight is model.get_input_embeddings().weight) is tied
    whole = Logits(model)
    head = find_head(whole, IDS)
    assert head == (() if tied else ("model.lm_head.weight",))
    add_adapters(whole, 1, ["*"], head=head, train_head=tied)  # a tied one is not trained in any case
    found = {layer.removeprefix("model.") for layer, _ in find_adapters(whole)}
    wanted = peft.get_peft_model(build(name), config_of(name, r=1, target_modules="all-linear"))
    assert found == {n for n, m in wanted.base_model.model.named_modules() if hasattr(m, "lora_A")}
    assert not any(p.requires_grad for n, p in whole.named_parameters() if "lora" not in n)


def test_adapters_of_a_trunk_in_bf16_are_in_float32():
    """peft's rule, too. Outputs keep the trunk's type."""
    ours, theirs = build("llama").to(torch.bfloat16), build("llama").to(torch.bfloat16)
    add_adapters(ours, 2, ["q_proj"], 0.5, train_head=False)
    theirs = peft.get_peft_model(theirs, peft.LoraConfig(r=2, lora_alpha=1, target_modules=["q_proj"]))
    layers = dict(theirs.base_model.model.named_modules())
    for layer, adapter in find_adapters(ours):
        adapter.lora_b.weight.data.fill_(0.5)
        layers[layer].lora_A["default"].weight.data.copy_(adapter.lora_a.weight)
        layers[layer].lora_B["default"].weight.data.copy_(adapter.lora_b.weight)
    assert outputs(ours).dtype == torch.bfloat16
    assert torch.equal(outputs(ours), outputs(theirs))
    assert {p.dtype for p in ours.parameters() if p.requires_grad} == {torch.float32}
    merged, expected = merged_state(ours), theirs.merge_and_unload().state_dict()
    assert all(torch.equal(merged[key], expected[key]) for key in merged)  # both are rounded to bf16
