"""The vision transformer: its size, its attention with prefixes, the sizes of images, and its errors."""

import pytest
import torch
from torch import nn

from raysim.models.building import build_model, check_model
from raysim.models.flat import FlatModel
from raysim.models.layers import find_head, name_layers
from raysim.models.vit import Attention, vit
from raysim.system.errors import ConfigError

SMALL = {"name": "vit", "width": 16, "depth": 2, "heads": 2, "patch": 2, "input_size": 8}
DIGITS = (1, 8, 8)


@pytest.fixture
def built(tiny):
    """A function: the module of a model block for the digits."""

    def make(seed=0, **model):
        return build_model(tiny(seed=seed, model=SMALL | model), DIGITS, 10)

    return make


@pytest.mark.parametrize(("width", "depth", "count"), [(192, 12, 5_717_416), (768, 1, 86_567_656 - 11 * 7_087_872)])
def test_sizes(width, depth, count):
    """timm reports 5,717,416 parameters for ViT-Tiny and 86,567,656 for ViT-Base, with patches of 16.

    A block has 12 W^2 + 13 W, which is 7,087,872 in Base. The patches have 769 W, the codes 197 W, the class token W,
    norm 2 W, and the head 1000 W + 1000.
    """
    assert depth * (12 * width**2 + 13 * width) + (769 + 197 + 1 + 2 + 1000) * width + 1000 == count
    network = vit((3, 224, 224), 1000, width=width, depth=depth)
    assert sum(p.numel() for p in network.parameters()) == count
    assert [block.attn.heads for block in network.blocks] == [width // 64] * depth
    assert {layer.eps for layer in network.modules() if isinstance(layer, nn.LayerNorm)} == {1e-6}


def test_attention_with_a_prefix():
    """One head of width 1: q = 1, K = (0), V = (2), prefix K = (0), V = (4): softmax is (.5, .5), so 3.

    A prefix with the key -inf has the weight 0: 2, as without a prefix.
    """
    attention = Attention(1, 1)
    with torch.no_grad():
        attention.qkv.weight.copy_(torch.tensor([[1.0], [0.0], [2.0]]))
        attention.proj.weight.fill_(1)
        for layer in (attention.qkv, attention.proj):
            layer.bias.zero_()
        x, four = torch.ones(1, 1, 1), torch.full((1, 1, 1), 4.0)
        assert attention(x, (torch.zeros(1, 1, 1), four)).item() == 3
        assert attention(x, (torch.full((1, 1, 1), -torch.inf), four)).item() == 2
        assert attention(x, None).item() == 2


def test_heads_share_a_prefix_as_they_share_the_width():
    """Head h sees numbers 2h and 2h + 1 of the prefix: another head's numbers do not change its values."""
    torch.manual_seed(0)
    attention = Attention(4, 2)
    mixed = []
    attention.proj.register_forward_pre_hook(lambda layer, given: mixed.append(given[0]))
    x, keys, values = torch.randn(1, 3, 4), torch.randn(1, 2, 4), torch.randn(1, 2, 4)
    other = values.clone()
    other[..., 2:] += 1
    attention(x, (keys, values)), attention(x, (keys, other))
    assert torch.equal(mixed[0][..., :2], mixed[1][..., :2])
    assert (mixed[0][..., 2:] != mixed[1][..., 2:]).all()


def test_images_are_resized_or_left(built):
    """A model for 16 x 16 gives the logits of images that are resized first. Without a size, codes fit the images."""
    x = torch.rand(2, *DIGITS, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        larger = built(input_size=16)
        resized = nn.functional.interpolate(x, (16, 16), mode="bilinear", antialias=True)
        assert torch.equal(larger(x), larger(resized))
        assert larger.pos_embed.shape == (1, 1 + 8 * 8, 16)
        assert torch.equal(built(input_size=None)(x), built()(x))


def test_position_codes_matter(built):
    """Images with their halves exchanged have the same patches in other places."""
    x = torch.rand(2, *DIGITS, generator=torch.Generator().manual_seed(0))
    network = built()
    with torch.no_grad():
        assert not torch.allclose(network(x), network(x.roll(4, 2)), atol=1e-6)
        network.pos_embed.zero_()
        torch.testing.assert_close(network(x), network(x.roll(4, 2)))


def test_the_head_and_all_layers_are_found(built):
    network = built()
    assert find_head(network, torch.zeros(2, *DIGITS)) == ("head.weight", "head.bias")
    assert len(name_layers(network)) == 1 + 2 * 4 + 1
    model = FlatModel(network)
    entered = model.inputs(torch.zeros(2, *DIGITS), model.parameters, model.buffers, ["blocks.1.attn.qkv.weight"])
    assert entered["blocks.1.attn.qkv.weight"].shape == (2 * 17, 16)


def test_initial_weights_are_the_seeds(built):
    first, again, other = (nn.utils.parameters_to_vector(built(seed).parameters()) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("shape", "model", "message"),
    [
        ((6,), {}, "model vit: found samples of shape (6,), allowed: images [channels, height, width]"),
        (
            DIGITS,
            {"patch": 3},
            "model.input_size: found patches of 3 for images of 8 x 8, allowed: a multiple of the patch",
        ),
        (
            (1, 8, 9),
            {"input_size": None},
            "model.patch: found patches of 2 for images of 8 x 9, allowed: a multiple of the patch",
        ),
        (DIGITS, {"heads": 3}, "model.heads: found 3, allowed: a number that divides model.width (16)"),
        (
            DIGITS,
            {"prompts": {"kind": "l2q"}},
            "model.prompts.kind: found 'l2q', allowed: l2p, dual, coda or prefix; did you mean 'l2p'?",
        ),
        (DIGITS, {"prompts": {"kind": "l2p", "top": 11}}, "model.prompts.top: found 11, allowed: at most pool (10)"),
        (
            DIGITS,
            {"prompts": {"kind": "l2p", "length": 0, "average": "prompts"}},
            "model.prompts.average: found prompts, allowed with length 0: class_and_prompts",
        ),
        (DIGITS, {"prompts": {"kind": "dual"}}, "model.prompts.blocks: found 4, allowed: below the model's depth (2)"),
        (
            DIGITS,
            {"prompts": {"kind": "dual", "blocks": [1]}},
            "model.prompts.blocks: found [0, 1, 1] in all, allowed: each block once",
        ),
        (
            DIGITS,
            {"prompts": {"kind": "coda", "blocks": [0], "pool": 17}},
            "model.prompts.pool: found 17, allowed: at most the model's width (16), as its rows are orthonormal",
        ),
    ],
)
def test_errors(tiny, shape, model, message):
    with pytest.raises(ConfigError) as caught:
        check_model(tiny(model=SMALL | model), shape, 10)
    assert str(caught.value).endswith(message)
