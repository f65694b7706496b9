"""torchvision's networks: their common files of weights fit but for the head, and images are prepared in the model."""

import sys
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from costs import cost_of
from PIL import Image
from torch import Tensor, nn

import raysim
from raysim.algorithms.parts.sample_gradients import squared_norms
from raysim.config import load
from raysim.models.building import build_model, check_model
from raysim.models.expected_images import check_expected_images, expected_by_torchvision
from raysim.models.flat import FlatModel
from raysim.models.torchvision_network import torchvision_network
from raysim.models.weight_sources import find_model_weights
from raysim.system.errors import ConfigError

models = pytest.importorskip("torchvision.models")

MEAN, STD = np.array([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])  # as torchvision's documentation prints them
SMALL = "shufflenet_v2_x0_5"  # 341,792 parameters and the head


def test_the_counts() -> None:
    """torchvision states 11,689,512 parameters, 513,000 of them the head's; here this has 512 * 10 + 10.

    BatchNorms have 4,800 channels, each a mean and a variance, and there are 20 of them: see test_resnet18. The tensors
    are named as torchvision's are, and the preparation has none.
    """
    network = built(architecture="resnet18")
    assert [*network.state_dict()] == [*models.resnet18(num_classes=10).state_dict()]
    model = FlatModel(network)
    assert len(model.parameters) == 11_689_512 - 513_000 + 5_130
    assert (len(model.buffers), len(model.integers), model.normalises) == (9_600, 20, True)


def built(shape: tuple[int, ...] = (3, 8, 8), classes: int = 10, seed: int = 0, **keys: object) -> nn.Module:
    return build_model(configured(seed, **keys), shape, classes)


def configured(seed: int = 0, **keys: object) -> Any:
    return load({
        "name": "torchvision",
        "seed": seed,
        "dataset": {"name": "synthetic", "classes": 4, "shape": [3, 8, 8], "train": 16, "test": 8},
        "scenario": {"kind": "class_incremental", "tasks": 2},
        "clients": {"count": 2},
        "model": {"name": "torchvision", "architecture": SMALL, "input_size": 32, **keys},
        "training": {"rounds_per_task": 1, "batch_size": 4},
        "logging": {"tensorboard": False},
    })  # fmt: skip


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A function: a state_dict of torchvision's for ImageNet's 1000 classes, in a file, changed by a function."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        whole = models.get_model(SMALL, weights=None).state_dict()
    folder = tmp_path_factory.mktemp("weights")

    def write(change: Callable[[dict[str, Any]], object] = lambda state: None, **options: Any) -> Path:
        state = copy(whole)  # with its layers' versions
        change(state)
        torch.save(state, folder / "weights.pth", **options)
        return folder / "weights.pth"

    return write


def drop_counts(state: dict[str, Tensor]) -> None:
    """As in the files of torch 0.4, whose BatchNorms did not count; they have no versions either."""
    for name in [name for name in state if name.endswith("num_batches_tracked")]:
        del state[name]
    vars(state).pop("_metadata")


def drop_head(state: dict[str, Tensor]) -> None:
    del state["fc.weight"], state["fc.bias"]


@pytest.mark.parametrize(
    ("change", "options"),
    [(lambda state: None, {}), (drop_counts, {"_use_new_zipfile_serialization": False}), (drop_head, {})],
    ids=["now", "of 2018", "without a head"],
)
def test_a_file_for_1000_classes_fits_but_for_the_head(
    published: Callable[..., Path], change: Any, options: dict[str, Any]
) -> None:
    """All but the head is the file's, bit for bit; the head is the one that the seed gives without a file."""
    before = torch.random.get_rng_state()
    path = published(change, **options)
    file = torch.load(path, weights_only=True)
    loaded, plain = (built(seed=3, weights=weights).state_dict() for weights in (str(path), None))
    assert torch.equal(torch.random.get_rng_state(), before)
    for name, tensor in loaded.items():
        own = name.startswith("fc.") or name not in file
        assert torch.equal(tensor, plain[name] if own else file[name]), name
    assert not torch.equal(loaded["conv1.0.weight"], plain["conv1.0.weight"])
    assert loaded["fc.weight"].shape == (10, 1024)


@pytest.mark.parametrize("change", [lambda state: None, drop_counts], ids=["now", "of 2018"])
def test_a_head_that_fits_is_the_files(published: Callable[..., Path], change: Any) -> None:
    path = published(change)
    loaded, file = built(classes=1000, weights=str(path)).state_dict(), torch.load(path, weights_only=True)
    assert all(torch.equal(loaded[name], file[name]) for name in file)


def test_a_files_versions_are_kept(tmp_path: Path) -> None:
    """MNASNet refuses a file that does not say which version of it this is."""
    torch.save(models.mnasnet0_5(num_classes=3).state_dict(), tmp_path / "weights.pth")
    built(architecture="mnasnet0_5", weights=str(tmp_path / "weights.pth"))


def test_a_new_head_is_new_as_a_whole(published: Callable[..., Path]) -> None:
    """No old bias with a new weight."""
    path = published(lambda state: state.update({"fc.weight": torch.ones(10, 7), "fc.bias": torch.ones(10)}))
    loaded, plain = built(weights=str(path)), built()
    assert torch.equal(loaded.get_parameter("fc.bias"), plain.get_parameter("fc.bias"))


def test_the_network_is_in_the_mode_that_it_is_built_in(published: Callable[..., Path]) -> None:
    assert all(module.training for module in built(weights=str(published())).modules())


def misfit(weights: Path, **keys: object) -> str:
    with pytest.raises(ConfigError) as caught:
        built(weights=str(weights), **keys)
    assert "\n" not in str(caught.value)
    assert "weights_only" not in str(caught.value)
    return str(caught.value)


def rename(state: dict[str, Tensor]) -> None:
    state["stem.weight"] = state.pop("conv1.0.weight")


def test_weights_that_do_not_fit_are_named(published: Callable[..., Path]) -> None:
    """The last file lacks 280 tensors: of 56 convolutions (5 in 3 units, 3 in 13, and 2) and their BatchNorms, 5."""
    path = published(lambda state: state.update({"conv1.0.weight": torch.ones(24, 3, 7, 7)}))
    assert misfit(path) == (
        f"model.weights: {path} does not fit the model: of another shape: conv1.0.weight [24, 3, 7, 7] for "
        "[24, 3, 3, 3]"
    )
    assert misfit(published(rename)) == (
        f"model.weights: {path} does not fit the model: not in the file: conv1.0.weight; not in the model: stem.weight"
    )
    torch.save(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).state_dict(), path)
    assert misfit(path) == (
        f"model.weights: {path} does not fit the model: not in the file: conv1.0.weight, conv1.1.weight, conv1.1.bias, "
        "conv1.1.running_mean and 276 more; not in the model: 0.weight, 0.bias, 1.weight, 1.bias and 3 more"
    )


def test_what_is_no_state_dict_is_named(published: Callable[..., Path], tmp_path: Path) -> None:
    allowed = "allowed: a state_dict that torch.save wrote"
    around = "names and tensors, or a dict with these under one of the keys state_dict, model, model_state_dict"
    path = tmp_path / "weights.pth"
    assert misfit(path) == f"model.weights: there is no file {path}"
    torch.save({"epoch": 3, "weights": {"conv1.0.weight": torch.ones(1)}}, path)
    assert misfit(path) == f"model.weights: {path} holds a dict with the keys epoch, weights; {allowed}, {around}"
    torch.save(torch.ones(3), path)
    assert misfit(path) == f"model.weights: {path} holds Tensor; {allowed}, {around}"
    torch.save(nn.Linear(2, 2), path)
    assert misfit(path) == f"model.weights: {path} holds more than tensors, or is no file of torch's; {allowed}"
    path.write_bytes(published().read_bytes()[:5000])
    assert misfit(path) == (
        f"model.weights: {path} is cut off: it begins as a file of torch's, but has no end; copy it again; {allowed}"
    )


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("resnet81", "resnet18, resnet152, resnet101 or resnet50"),
        ("zzz", "resnet18 or vit_b_16"),
        ("googlenet", None),
        ("fcn_resnet50", None),
    ],
)
def test_an_unknown_architecture_is_told_the_nearest_ones(asked: str, near: str | None) -> None:
    """googlenet has several heads in training; fcn_resnet50 is for segmentation."""
    with pytest.raises(ConfigError) as caught:
        built(architecture=asked)
    start = f"model.architecture: found '{asked}', allowed: a classifier of torchvision's, such as "
    assert str(caught.value).startswith(start)
    assert near is None or str(caught.value) == start + near


def test_it_takes_images_alone() -> None:
    with pytest.raises(ConfigError, match=r"found samples of shape \(6,\), allowed: images, grey or RGB"):
        built((6,))


def test_a_torchvision_that_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    config = configured()
    monkeypatch.setitem(sys.modules, "torchvision", None)
    monkeypatch.setitem(sys.modules, "torchvision.models", None)
    with pytest.raises(ConfigError, match=r"^model torchvision: torchvision cannot be imported \(.*\); install the"):
        build_model(config, (3, 8, 8), 4)


# what the network is shown


def shown(x: np.ndarray, **keys: object) -> np.ndarray:
    """What enters the first convolution where the model is given images."""
    network, found = built(tuple(x.shape[1:]), **keys), []
    network.get_submodule("conv1").register_forward_pre_hook(lambda layer, given: found.append(given[0]))
    with torch.no_grad():
        network.eval()(torch.from_numpy(x))
    return found[0].numpy()


@pytest.mark.parametrize(("before", "after"), [((8, 6), 32), ((50, 70), 32)], ids=["larger", "smaller"])
def test_images_are_resized_as_pillow_does_and_normalised(before: tuple[int, int], after: int) -> None:
    x = np.random.default_rng(0).random((2, 3, *before)).astype(np.float32)
    resized = [
        [np.asarray(Image.fromarray(channel).resize((after, after), Image.Resampling.BILINEAR)) for channel in image]
        for image in x
    ]
    expected = (np.array(resized) - MEAN[:, None, None]) / STD[:, None, None]
    np.testing.assert_allclose(shown(x), expected, atol=1e-5)


def test_images_are_normalized_as_the_architectures_weights_expect(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchvision's efficientnet_v2_l expects mean and deviation 0.5, most others ImageNet's: white is 1, or more."""
    monkeypatch.setattr(models, "get_model", lambda *_, **keys: nn.Flatten())
    white = torch.ones(1, 3, 2, 2)
    large, small = (
        torchvision_network((3, 2, 2), 3, architecture=f"efficientnet_v2_{size}", input_size=None)(white)[0, ::4]
        for size in "ls"
    )
    assert torch.equal(large, torch.ones(3))
    torch.testing.assert_close(small, torch.tensor([0.515 / 0.229, 0.544 / 0.224, 0.594 / 0.225]))


BICUBIC = """efficientnet_b0 efficientnet_b2 efficientnet_b3 efficientnet_b4 efficientnet_b5 efficientnet_b6
efficientnet_b7 efficientnet_v2_l maxvit_t regnet_y_128gf swin_b swin_s swin_t swin_v2_b swin_v2_s swin_v2_t vit_h_14"""
"""The architectures whose weights DEFAULT have bicubic transforms in torchvision 0.29."""


def test_images_are_resized_as_the_architectures_weights_expect(monkeypatch: pytest.MonkeyPatch) -> None:
    """All others of torchvision are bilinear, but with the names of some weights, such as those of SWAG."""
    found = {name: expected_by_torchvision(name).mode for name in models.list_models(module=models)}
    assert [name for name, mode in sorted(found.items()) if mode == "bicubic"] == BICUBIC.split()
    monkeypatch.setattr(models, "get_model", lambda *_, **keys: nn.Flatten())
    x = np.random.default_rng(0).random((1, 3, 9, 7)).astype(np.float32)
    for architecture, filter_ in (
        ("efficientnet_b0", Image.Resampling.BICUBIC),
        ("efficientnet_b1", Image.Resampling.BILINEAR),
        ("efficientnet_b1.IMAGENET1K_V1", Image.Resampling.BICUBIC),
        ("vit_b_16.IMAGENET1K_SWAG_E2E_V1", Image.Resampling.BICUBIC),
    ):
        network = torchvision_network((3, 9, 7), 3, architecture=architecture, input_size=16, normalize=False)
        expected = np.array([np.asarray(Image.fromarray(one).resize((16, 16), filter_)) for one in x[0]])
        np.testing.assert_allclose(network(torch.from_numpy(x))[0], expected.ravel(), atol=1e-5)


def test_weights_that_expect_other_images_are_refused() -> None:
    """A file of these weights has no name, such as that of a finished run: the architecture has it."""
    swag = "IMAGENET1K_SWAG_E2E_V1"
    how = "bicubic, mean 0.485 0.456 0.406, deviation 0.229 0.224 0.225"
    with pytest.raises(ConfigError) as caught:
        find_model_weights(configured(architecture="vit_b_16", weights=swag).model)
    assert str(caught.value) == (
        f"model.architecture: found vit_b_16, with other images than {swag} expects ({how}), allowed: vit_b_16.{swag}"
    )
    for keys in ({"architecture": f"vit_b_16.{swag}"}, {"architecture": "vit_b_16", "input_size": None}):
        check_expected_images(configured(**keys, weights=swag).model)
    with pytest.raises(ConfigError, match=r"found 'resnet18.DEFAULTS', allowed: resnet18 or resnet18.IMAGENET1K_V1$"):
        built(architecture="resnet18.DEFAULTS")


def test_grey_images_are_shown_as_rgb() -> None:
    x = np.random.default_rng(1).random((2, 1, 32, 32)).astype(np.float32)
    np.testing.assert_allclose(shown(x), (x - MEAN[:, None, None]) / STD[:, None, None], atol=1e-5)
    assert np.array_equal(shown(x, normalize=False), np.repeat(x, 3, axis=1))


def test_images_may_be_left_as_they_are() -> None:
    x = np.random.default_rng(2).random((2, 3, 40, 33)).astype(np.float32)
    assert np.array_equal(shown(x, input_size=None, normalize=False), x)


def test_images_are_not_normalised_twice() -> None:
    with pytest.raises(ConfigError) as caught:
        load(configured(), {"dataset.normalize": "standard"})
    assert str(caught.value) == (
        "dataset.normalize='standard': found 'standard', allowed: none with model.normalize, which does it in the model"
    )
    with pytest.raises(
        ConfigError, match=r"dataset.input_scale.*: found 2.*, allowed: 1 with model.normalize, which do"
    ):
        load(configured(), {"dataset.input_scale": 2.0})
    load(configured(), {"dataset.normalize": "standard", "dataset.input_scale": 2.0, "model.normalize": False})


# a run


def test_a_run_begins_with_the_files_weights_and_ends_in_a_file_of_torchvisions(
    published: Callable[..., Path], tmp_path: Path
) -> None:
    """At a rate of 1e-30 nothing but BatchNorm's statistics moves. `raysim evaluate` never takes a new head.

    A rehearsal foresees the bytes.
    """
    path = published()
    config = load(configured(weights=str(path)), {"training.optimizer.lr": 1e-30, "methods": {"er": {}}})
    result = raysim.run(config, out=tmp_path / "run", local=True)
    assert sum(cost_of(config).up.values()) == result.bytes_up
    state, file = torch.load(tmp_path / "run" / "model.pt", weights_only=True), torch.load(path, weights_only=True)
    models.get_model(SMALL, weights=None, num_classes=4).load_state_dict(state)
    assert torch.equal(state["conv5.0.weight"], file["conv5.0.weight"])
    assert not torch.equal(state["conv5.1.running_mean"], file["conv5.1.running_mean"])
    (again,) = raysim.evaluate(tmp_path / "run").evaluation["class_il"]["accuracy"][:1]
    assert again == result.evaluation["class_il"]["accuracy"][-1][0]
    with pytest.raises(ConfigError, match=r"does not fit the model: of another shape: fc.weight \[4, 1024\] for \[6, "):
        raysim.evaluate(tmp_path / "run", {"dataset.classes": 6})


def test_gradients_by_sample_go_through_the_preparation() -> None:
    """Re-Fed's, vectorised: the same norms as one by one."""
    model = check_model(configured(), (3, 8, 8), 4)
    x, y = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 3])
    loss = nn.functional.cross_entropy
    expected = [
        model.gradient_of(loss(model.module(x[i : i + 1]), y[i : i + 1])).square().sum().item() for i in range(3)
    ]
    found = squared_norms(model, loss, x, y)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-3)
