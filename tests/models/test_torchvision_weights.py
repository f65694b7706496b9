"""torchvision's weights by name. Its own functions download them here, from addresses of files on this disk."""

import hashlib
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import raysim
from raysim.config import Config, load
from raysim.engine.input_files import pin_weights
from raysim.models.building import build_model
from raysim.models.torchvision_weights import find_torchvision_weights
from raysim.system.errors import ConfigError

models = pytest.importorskip("torchvision.models")
api = pytest.importorskip("torchvision.models._api")
ImageClassification = pytest.importorskip("torchvision.transforms._presets").ImageClassification
SMALL = "shufflenet_v2_x0_5"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that torchvision downloads from. It has SMALL's weights V1, and lacks those of V2."""
    site = tmp_path / "site"
    site.mkdir()
    torch.save(models.get_model(SMALL, weights=None).state_dict(), site / "small.pth")
    digest = hashlib.sha256((site / "small.pth").read_bytes()).hexdigest()[:8]
    (site / "small.pth").rename(site / f"small-{digest}.pth")
    urls = {"V1": f"file://{site}/small-{digest}.pth", "V2": f"file://{site}/other-00000000.pth"}
    expected = partial(ImageClassification, crop_size=224)
    published = api.WeightsEnum(
        "Published",
        {name: api.Weights(url=url, transforms=expected, meta={}) for name, url in urls.items()}
        | {"DEFAULT": api.Weights(url=urls["V1"], transforms=expected, meta={})},
    )
    monkeypatch.setattr(models, "get_model_weights", {SMALL: published}.__getitem__)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    return site


def configured(weights: str, **keys: object) -> Config:
    return load({
        "name": "named",
        "dataset": {"name": "synthetic", "classes": 4, "shape": [3, 8, 8], "train": 16, "test": 8},
        "scenario": {"kind": "class_incremental", "tasks": 2},
        "clients": {"count": 2},
        "model": {"name": "torchvision", "architecture": SMALL, "input_size": 32, "weights": weights, **keys},
        "training": {"rounds_per_task": 1, "batch_size": 4},
        "logging": {"tensorboard": False},
    })  # fmt: skip


def test_weights_are_downloaded_once_without_a_word(site: Path, tmp_path: Path, capfd: Any) -> None:
    file = find_torchvision_weights(SMALL, "V1")
    assert file.parent == tmp_path / "torch" / "hub" / "checkpoints"
    (published,) = site.iterdir()
    assert file.read_bytes() == published.read_bytes()
    published.unlink()
    assert find_torchvision_weights(SMALL, "V1") == find_torchvision_weights(SMALL, "DEFAULT") == file
    assert capfd.readouterr() == ("", "")


def test_the_model_has_them_and_the_run_knows_their_digest(site: Path) -> None:
    config = configured("DEFAULT")
    network, (published,) = build_model(config, (3, 8, 8), 4), site.iterdir()
    file = torch.load(published, weights_only=True)
    assert torch.equal(network.get_parameter("conv5.0.weight"), file["conv5.0.weight"])
    (pinned,) = pin_weights(config)
    assert pinned.sha256 == hashlib.sha256(published.read_bytes()).hexdigest()


def test_an_unknown_name_is_told_the_names(site: Path) -> None:
    with pytest.raises(ConfigError) as found:
        raysim.check(configured("V3"))
    assert str(found.value) == f"model.weights: found 'V3', allowed: a file, or weights of {SMALL}: DEFAULT, V1 or V2"


def test_without_the_file_the_error_says_what_to_put_where(site: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as found:
        find_torchvision_weights(SMALL, "V2")
    place = tmp_path / "torch" / "hub" / "checkpoints" / "other-00000000.pth"
    assert str(found.value).startswith("model.weights: V2 could not be downloaded (URLError: ")
    assert str(found.value).endswith(f"); download file://{site}/other-00000000.pth to {place}")
    assert "\n" not in str(found.value)


def test_a_file_with_other_content_is_refused(site: Path, tmp_path: Path) -> None:
    """Both what arrives and what is there already. SHA-256 of b"cut off" begins with the digits that are computed."""
    (site / "other-00000000.pth").write_bytes(b"cut off")
    with pytest.raises(ConfigError, match=r"could not be downloaded \(RuntimeError: invalid hash value \(expected \"0"):
        find_torchvision_weights(SMALL, "V2")
    file = tmp_path / "torch" / "hub" / "checkpoints" / "other-00000000.pth"
    assert not file.exists()
    file.write_bytes(b"cut off")
    digest = hashlib.sha256(b"cut off").hexdigest()[:8]
    with pytest.raises(ConfigError) as found:
        find_torchvision_weights(SMALL, "V2")
    todo = f"remove the file, or download file://{site}/other-00000000.pth again"
    assert str(found.value) == f"model.weights: found SHA-256 {digest} of {file}, allowed: 00000000; {todo}"


def test_such_a_name_is_a_file_for_other_models(site: Path) -> None:
    with pytest.raises(ConfigError, match=r"^model\.weights: there is no file DEFAULT$"):
        pin_weights(load("quickstart", {"model.weights": "DEFAULT"}))


def test_torchvisions_names_and_addresses() -> None:
    """ResNet-18 has one set of weights, and torchvision's documentation has this address of it."""
    published = models.get_model_weights("resnet18")
    assert [one.name for one in published] == ["IMAGENET1K_V1"]
    assert published["DEFAULT"].url == "https://download.pytorch.org/models/resnet18-f37072fd.pth"
