"""ResNet-20 and its like (He et al., CVPR 2016, section 4.2): parameters, shapes, and what is computed."""

import pytest
import torch
from torch.nn import functional

from raysim.engine.vectorised.support import check_vectorised
from raysim.models.building import check_model
from raysim.models.flat import FlatModel
from raysim.models.recomputing import find_blocks
from raysim.models.small_resnet import small_resnet
from raysim.system.errors import ConfigError


def test_the_counts():
    """A block from b to c channels has 9bc + 9cc weights and 4c of its BatchNorms; the shortcut has none.

    Depth 20 on RGB images: stem 3*16*9 + 32 = 464; group 1 three times 2*9*256 + 64 = 4,672; group 2 (13,824 + 128) +
    2 (18,432 + 128) = 51,072; group 3 (55,296 + 256) + 2 (73,728 + 256) = 203,520; head 64*10 + 10: in all 269,722, the
    paper's .27 million. Depth 32 has two more blocks in each group, 2 (4,672 + 18,560 + 73,984) = 194,432 more.
    Depth 8 and width 8 on gray images: 72 + 16, 1,184, 3,456 + 64, 13,824 + 128, 330: 19,074. BatchNorms have
    16 + 6*16 + 6*32 + 6*64 = 688 channels at depth 20, each a mean and a variance, and there are 19 of them.
    """
    model = FlatModel(small_resnet((3, 32, 32), 10))
    assert (len(model.parameters), len(model.buffers), len(model.integers)) == (269_722, 2 * 688, 19)
    assert len(FlatModel(small_resnet((3, 32, 32), 10, depth=32)).parameters) == 269_722 + 194_432
    assert len(FlatModel(small_resnet((1, 8, 8), 10, depth=8, width=8)).parameters) == 19_074


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (1, 8, 8), (1, 5, 3)])
def test_shapes(shape):
    """Two strides of 2 leave a quarter, rounded up: 8 x 8 of 32, 7 x 7 of 28, 2 x 2 of 8."""
    module = small_resnet(shape, 7, depth=8, width=2).eval()
    sizes = []
    module.layer3.register_forward_hook(lambda layer, given, out: sizes.append(tuple(out.shape)))
    with torch.no_grad():
        assert module(torch.rand(2, *shape)).shape == (2, 7)
    assert sizes == [(2, 8, -(-shape[1] // 4), -(-shape[2] // 4))]


def test_it_is_what_its_text_says():
    """In evaluation, with moved statistics: depth 14 written out with functions."""
    f = functional
    module = small_resnet((3, 8, 8), 4, depth=14, width=2)
    x = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        module(3 * x)
        module.eval()
        p = module.state_dict()

        def conv(h, name, bn, stride=1):
            h = f.conv2d(h, p[f"{name}.weight"], stride=stride, padding=1)
            return f.batch_norm(h, p[f"{bn}.running_mean"], p[f"{bn}.running_var"], p[f"{bn}.weight"], p[f"{bn}.bias"])

        h = conv(x, "conv1", "bn1").clamp(min=0)
        for group in (1, 2, 3):
            for block in (0, 1):
                name, halved = f"layer{group}.{block}", group > 1 and block == 0
                y = conv(h, f"{name}.conv1", f"{name}.bn1", 2 if halved else 1).clamp(min=0)
                y = conv(y, f"{name}.conv2", f"{name}.bn2")
                if halved:  # option A: every second pixel, and zeros for the new channels
                    h = torch.cat([h[:, :, ::2, ::2], torch.zeros_like(h[:, :, ::2, ::2])], 1)
                h = (y + h).clamp(min=0)
        expected = h.mean((2, 3)) @ p["linear.weight"].T + p["linear.bias"]
        assert torch.allclose(module(x), expected, atol=1e-5)


def test_it_fits_what_other_networks_do(tiny):
    """It has a head, blocks and stages, and trains clients together."""
    config = tiny(
        model={"name": "small_resnet", "depth": 14, "width": 2}, training={"rounds_per_task": 1, "vectorise": 2}
    )
    model = check_model(config, (1, 8, 8), 4)
    assert model.head == ("linear.weight", "linear.bias")
    assert [type(block).__name__ for block in find_blocks(model.module)] == ["PlainBlock"] * 6  # depth 14: 2 a group
    frozen = {"name": "small_resnet", "depth": 8, "width": 2, "cache": True, "freeze": ["[!l]*", "layer[12].*"]}
    scenario = {"kind": "class_incremental", "tasks": 2}
    assert check_model(tiny(model=frozen, scenario=scenario), (1, 8, 8), 4).module.feature_shape == (4, 4, 4)
    check_vectorised(config, model)


@pytest.mark.parametrize("depth", [9, 18])
def test_other_depths_are_refused(depth):
    """18 is ResNet-18's, which is another family: 18 = 6 * 2 + 6."""
    with pytest.raises(ConfigError, match=f"model.depth: found {depth}, allowed: 6 n \\+ 2, such as 8, 14, 20 or 32"):
        small_resnet((3, 8, 8), 4, depth=depth)
