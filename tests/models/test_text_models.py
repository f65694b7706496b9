"""The models of texts: what they compute, that padding is not seen, and how many parameters they have."""

import numpy as np
import pytest
import torch
from torch import nn

from raysim.algorithms.parts.sample_gradients import squared_norms
from raysim.models.activations import measure_activations
from raysim.models.building import build_model, check_model
from raysim.models.flat import FlatModel
from raysim.models.inputs import two_samples
from raysim.models.layers import find_head, name_layers
from raysim.system.errors import ConfigError

LENGTH, IDS = 6, 11
TEXTS = torch.tensor([[4, 9, 3, 10, 0, 0], [2, 1, 5, 7, 8, 6], [3, 0, 0, 0, 0, 0]])
SMALL = {"name": "transformer", "width": 8, "heads": 2, "layers": 2, "feedforward": 12}


@pytest.fixture
def built(tiny):
    """A function: the module of a model block for texts of 6 tokens of 11, and 3 classes."""

    def make(seed=0, **model):
        return build_model(tiny(seed=seed, model=model), (LENGTH,), 3, IDS).eval()

    return make


def count(module):
    return sum(p.numel() for p in module.parameters())


def test_parameter_counts(built):
    """bag: 11 ids of 8, and 8 x 3 + 3 = 115; with a hidden layer of 5: 88 + 45 + 18 = 151.

    transformer: tokens 11 * 8, places 6 * 8; a block: two norms 2 * 16, qkv 8 * 24 + 24, mixed 8 * 8 + 8, feedforward
    8 * 12 + 12 + 12 * 8 + 8; norm 16, head 27: 136 + 2 * (32 + 216 + 72 + 212) + 43 = 1243. A table of 20 ids: + 72.
    """
    assert count(built(name="bag_of_embeddings", width=8)) == 115
    assert count(built(name="bag_of_embeddings", width=8, hidden=[5])) == 151
    assert count(built(**SMALL)) == 1243
    assert count(built(**SMALL, vocabulary=20)) == 1243 + 9 * 8


def test_a_bag_is_the_mean_of_its_tokens(built):
    module = built(name="bag_of_embeddings", width=4)
    table, weight, bias = (p.detach().numpy().astype(np.float64) for p in module.parameters())
    means = np.stack([table[[token for token in text if token]].mean(0) for text in TEXTS.tolist()])
    with torch.no_grad():
        np.testing.assert_allclose(module(TEXTS), means @ weight.T + bias, atol=1e-6)
        assert torch.equal(module(torch.zeros(1, 6, dtype=torch.int64))[0], module.head.bias)
        assert torch.allclose(module(TEXTS), module(TEXTS.flip(1)), atol=1e-6)


@pytest.mark.parametrize("causal", [False, True])
def test_the_transformer_is_torchs_encoder_with_the_mean_of_its_tokens(built, causal):
    """torch's own encoder layers, normalising first, with the same weights and masks."""
    module = built(**SMALL, causal=causal, output="token")
    layers = []
    for block in module.blocks:
        layer = nn.TransformerEncoderLayer(8, 2, 12, 0.0, "gelu", batch_first=True, norm_first=True)
        layer.load_state_dict(
            {
                "self_attn.in_proj_weight": block.qkv.weight,
                "self_attn.in_proj_bias": block.qkv.bias,
                **{f"self_attn.out_proj.{kind}": getattr(block.mixed, kind) for kind in ("weight", "bias")},
                **{f"linear1.{kind}": getattr(block.wide, kind) for kind in ("weight", "bias")},
                **{f"linear2.{kind}": getattr(block.narrow, kind) for kind in ("weight", "bias")},
                **{f"norm1.{kind}": getattr(block.norm1, kind) for kind in ("weight", "bias")},
                **{f"norm2.{kind}": getattr(block.norm2, kind) for kind in ("weight", "bias")},
            }
        )
        layers.append(layer.train())  # dropout is 0; in evaluation torch takes another way
    padding, later = TEXTS == 0, torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1) if causal else None
    with torch.no_grad():
        x = module.tokens(TEXTS) + module.places.weight
        for layer in layers:
            x = layer(x, src_mask=later, src_key_padding_mask=padding)
        logits = module.head(module.norm(x))
        known = ~padding
        torch.testing.assert_close(module(TEXTS)[known], logits[known])
        module.each = False
        features = torch.stack([module.norm(x)[row][known[row]].mean(0) for row in range(3)])
        torch.testing.assert_close(module(TEXTS), module.head(features))


@pytest.mark.parametrize("model", [{"name": "bag_of_embeddings"}, SMALL, {**SMALL, "causal": True}])
def test_padding_is_not_seen(built, model):
    """The same text with less padding, and whatever stands in the table for padding; a text of padding is finite."""
    module = built(**model)
    with torch.no_grad():
        before = module(TEXTS[:1])
        torch.testing.assert_close(module(TEXTS[:1, :4]), before)
        module.tokens.weight[0] += 100
        assert torch.equal(module(TEXTS[:1]), before)
        assert module(torch.zeros(2, LENGTH, dtype=torch.int64)).isfinite().all()


def test_a_causal_transformer_does_not_see_what_comes(built):
    causal, both = (built(**SMALL, output="token", causal=causal) for causal in (True, False))
    other = TEXTS.clone()
    other[1, 4] = 3
    with torch.no_grad():
        assert causal(TEXTS).shape == (3, LENGTH, 3)
        assert torch.equal(causal(TEXTS)[1, :4], causal(other)[1, :4])
        assert not torch.allclose(causal(TEXTS)[1, 4:], causal(other)[1, 4:])
        assert not torch.allclose(both(TEXTS)[1, :4], both(other)[1, :4])


def test_dropout_is_off_unless_asked_for_and_in_evaluation(built):
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        module = built(**SMALL).train()
        assert torch.equal(module(TEXTS), module(TEXTS))
        module = built(**SMALL, dropout=0.5).train()
        assert not torch.equal(module(TEXTS), module(TEXTS))
        assert torch.equal(module.eval()(TEXTS), module(TEXTS))


def test_initial_weights_are_the_seeds(built):
    first, again, other = (torch.nn.utils.parameters_to_vector(built(seed, **SMALL).parameters()) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_head_and_all_layers_are_found(built):
    """Methods by layer see every linear layer: four in a block, and the head."""
    module = built(**SMALL)
    assert find_head(module, TEXTS) == ("head.weight", "head.bias")
    assert len(name_layers(module)) == 2 * 4 + 1
    model = FlatModel(module)
    entered = model.inputs(TEXTS, model.parameters, model.buffers, model.widths)
    assert {name: len(rows) for name, rows in entered.items()} == {
        name: 3 if name == "head.weight" else 3 * LENGTH for name in model.widths
    }


@pytest.mark.parametrize("model", [{"name": "bag_of_embeddings", "width": 4}, {**SMALL, "layers": 1}])
def test_each_texts_gradient_is_the_one_that_it_has_alone(built, model):
    module, y = built(**model), torch.tensor([0, 2, 1])
    flat = FlatModel(module)
    norms = squared_norms(flat, nn.functional.cross_entropy, TEXTS, y)
    for row in range(3):
        gradient = flat.gradient_of(nn.functional.cross_entropy(module(TEXTS[row : row + 1]), y[row : row + 1]))
        torch.testing.assert_close(norms[row], gradient.square().sum())


def test_activations_are_counted_by_hand(built):
    """bag, 4 bytes a number: the table's rows 6 * 8, their mean 8 (the empty hidden layers), the logits 3: 236 bytes.

    transformer of one block: rows and places 6 * 8 and 6 * 8 / 2 (the places are made once for the two samples that
    are tried); a block: norms 2 * 48, qkv 144, softmax 2 * 36, mixed 48, dropout 2 * 48, wide 72, gelu 72, narrow 48;
    norm 48, head 3 = 771 numbers, the widest qkv's 144.
    """
    bag, text = (
        FlatModel(built(**model)) for model in ({"name": "bag_of_embeddings", "width": 8}, {**SMALL, "layers": 1})
    )
    x = two_samples(bag.module, (LENGTH,), IDS)
    assert x.tolist() == [[0] * LENGTH, [IDS - 1] * LENGTH]
    assert measure_activations(bag, x) == (4 * 59, 4 * 48)
    assert measure_activations(text, x) == (4 * (72 + 96 + 144 + 72 + 48 + 96 + 72 + 72 + 48 + 48 + 3), 4 * 144)


def test_what_does_not_fit_is_refused(tiny):
    def refused(shape=(LENGTH,), ids=IDS, **model):
        with pytest.raises(ConfigError) as found:
            check_model(tiny(model=model), shape, 3, ids)
        assert "\n" not in str(found.value)
        return str(found.value)

    allowed = "allowed for {}: token ids (int64) [length]"
    for name in ("transformer", "bag_of_embeddings"):
        assert refused(ids=None, name=name) == f"model.name: found numbers of shape (6,), {allowed.format(name)}"
        assert refused((2, 3), name=name) == f"model.name: found ids of shape (2, 3), {allowed.format(name)}"
    assert refused(name="transformer", heads=3).startswith("model.heads: found 3, allowed: a number that divides")
    assert "samples of shape (6,), ids (int64) from 0 to 10: IndexError" in refused(name="transformer", vocabulary=10)
    assert "mlp cannot take samples of shape (6,), ids (int64) from 0 to 10" in refused(name="mlp")
    assert "returns (2, 6, 3) for 2 samples, allowed: a tensor of (2, 3)" in refused(name="transformer", output="token")
