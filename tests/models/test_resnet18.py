import pytest
import torch

from raysim.models.flat import FlatModel
from raysim.models.resnet18 import ResNet18, resnet18


def test_the_counts():
    """A block from b to c channels has 9bc + 9cc weights, 4c of its BatchNorms, and bc + 2c of a 1x1 shortcut.

    Stem 3*64*9 + 128 = 1,856; layer1 2 (2 * 36,864 + 256) = 147,968; layer2 (73,728 + 147,456 + 512 + 8,192 + 256) +
    (294,912 + 512) = 525,568; layer3 2,099,712; layer4 8,393,728; head 512 * 10 + 10: in all 11,173,962. BatchNorms
    have 64 + 4*64 + 5*128 + 5*256 + 5*512 = 4,800 channels, each a mean and a variance, and there are 20 of them.
    """
    for classes, parameters in ((10, 11_173_962), (100, 11_220_132)):
        model = FlatModel(resnet18((3, 32, 32), classes))
        assert len(model.parameters) == parameters
        assert len(model.buffers) == 9_600
        assert len(model.integers) == 20
    stages = [sum(p.numel() for p in stage.parameters()) for stage in (model.module.layer1, model.module.layer4)]
    assert stages == [147_968, 8_393_728]
    assert len(FlatModel(resnet18((1, 28, 28), 10)).parameters) == 11_173_962 - 2 * 64 * 9


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (1, 32, 32), (3, 28, 28), (3, 8, 8)])
def test_shapes(shape):
    """Three strides of 2 leave 4 x 4 of 32 and of 28 (28, 14, 7, 4), and 1 x 1 of 8; the mean takes what remains."""
    module = resnet18(shape, 7).eval()
    sizes = []
    module.layer4.register_forward_hook(lambda layer, given, out: sizes.append(tuple(out.shape)))
    with torch.no_grad():
        assert module(torch.rand(2, *shape)).shape == (2, 7)
    assert sizes == [(2, 512, -(-shape[1] // 8), -(-shape[2] // 8))]


def test_it_is_what_its_text_says():
    """In evaluation, with moved statistics: the first two stages and the head written out with functions."""
    f = torch.nn.functional
    module: ResNet18 = resnet18((3, 16, 16), 4)
    x = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        module(3 * x)
        module.eval()
        p = module.state_dict()

        def conv(h, name, bn, stride=1):
            h = f.conv2d(h, p[f"{name}.weight"], stride=stride, padding=p[f"{name}.weight"].shape[-1] // 2)
            return f.batch_norm(h, p[f"{bn}.running_mean"], p[f"{bn}.running_var"], p[f"{bn}.weight"], p[f"{bn}.bias"])

        def block(h, name, stride=1):
            y = conv(h, f"{name}.conv1", f"{name}.bn1", stride).clamp(min=0)
            y = conv(y, f"{name}.conv2", f"{name}.bn2")
            if f"{name}.shortcut.0.weight" in p:
                h = conv(h, f"{name}.shortcut.0", f"{name}.shortcut.1", stride)
            return (y + h).clamp(min=0)

        h = conv(x, "conv1", "bn1").clamp(min=0)
        assert h.shape == (2, 64, 16, 16)  # no stride, no pooling
        for stage in (1, 2, 3, 4):
            h = block(block(h, f"layer{stage}.0", 1 if stage == 1 else 2), f"layer{stage}.1")
        expected = h.mean((2, 3)) @ p["linear.weight"].T + p["linear.bias"]
        assert torch.allclose(module(x), expected, atol=1e-5)
