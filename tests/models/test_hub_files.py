"""Weights by their name on the Hugging Face hub, with a stand-in for its package: this machine may be offline."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from raysim.config import load
from raysim.models.building import build_model
from raysim.models.vit import vit
from raysim.system.errors import ConfigError
from raysim.system.hub_files import find_folder, find_weights


class NotCached(Exception):
    pass


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the hub was asked for. It has one repository, and its files are in the cache after the first download."""
    calls, cached = list[dict[str, Any]](), set[str]()

    def hf_hub_download(repo_id: str, filename: str, revision: str | None, local_files_only: bool = False) -> str:
        calls.append({"file": f"{repo_id}/{filename}@{revision}", "offline": local_files_only})
        if local_files_only and filename not in cached:
            raise NotCached("not here")
        if repo_id != "owner/vit.tiny":
            raise OSError("401 Client Error\nRepository Not Found for url: ...")
        cached.add(filename)
        return str(tmp_path / filename)

    def snapshot_download(repo_id: str, revision: str | None, allow_patterns: list[str], **keys: bool) -> str:
        calls.append({"folder": f"{repo_id}@{revision}", "offline": keys.get("local_files_only", False)})
        folder = tmp_path / "snapshot"
        if not keys.get("local_files_only"):
            folder.mkdir(exist_ok=True)
            (folder / "config.json").touch()
            (folder / "model.safetensors").touch()
        elif not folder.exists():
            raise NotCached("not here")
        return str(folder)

    hub, errors = ModuleType("huggingface_hub"), ModuleType("huggingface_hub.errors")
    vars(hub)["snapshot_download"] = snapshot_download
    vars(hub)["hf_hub_download"], vars(errors)["LocalEntryNotFoundError"] = hf_hub_download, NotCached
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    monkeypatch.setitem(sys.modules, "huggingface_hub.errors", errors)
    return calls


def test_a_file_is_downloaded_once(asked: list[dict[str, Any]], tmp_path: Path) -> None:
    for _ in range(2):
        assert find_weights("hf://owner/vit.tiny") == tmp_path / "model.safetensors"
    name = "owner/vit.tiny/model.safetensors@None"
    assert asked == [
        {"file": name, "offline": True},
        {"file": name, "offline": False},
        {"file": name, "offline": True},
    ]
    assert find_weights("hf://owner/vit.tiny/sub/weights.pt@v1.0") == tmp_path / "sub" / "weights.pt"
    assert asked[-1]["file"] == "owner/vit.tiny/sub/weights.pt@v1.0"
    assert find_weights("~/weights.pt") == Path.home() / "weights.pt"


def test_a_model_has_the_weights_of_the_hub(asked: list[dict[str, Any]], tmp_path: Path) -> None:
    keys = {"width": 64, "depth": 1, "patch": 4, "input_size": None}
    published = vit((1, 8, 8), 10, **keys)
    torch.save(published.state_dict(), tmp_path / "weights.pt")
    model = {"model": {"name": "vit", **keys, "weights": "hf://owner/vit.tiny/weights.pt"}}
    module = build_model(load("quickstart", model), (1, 8, 8), 10)
    assert all(map(torch.equal, module.state_dict().values(), published.state_dict().values()))


@pytest.mark.parametrize("others", [(), ("tokenizer.json",)], ids=["nothing", "a tokenizer"])
def test_a_folder_is_downloaded_once_also_if_the_cache_has_a_part_of_it(
    asked: list[dict[str, Any]], tmp_path: Path, others: tuple[str, ...]
) -> None:
    """Another program may have asked for the tokenizer alone: the hub's package then says that the folder is there."""
    for name in others:
        (tmp_path / "snapshot").mkdir()
        (tmp_path / "snapshot" / name).touch()
    for _ in range(2):
        found = find_folder("model.path", "hf://owner/vit.tiny@v2", needed=("config.json", "*.safetensors"))
        assert (found / "model.safetensors").is_file()
    name = "owner/vit.tiny@v2"
    assert asked == [{"folder": name, "offline": offline} for offline in (True, False, True)]


@pytest.mark.parametrize("name", ["hf://owner", "hf://", "hf://owner/name@", "hf://owner/name/", "hf://a/b@c@d"])
def test_a_name_of_another_form_is_refused(asked: list[dict[str, Any]], name: str) -> None:
    with pytest.raises(ConfigError, match=r"^model\.weights: found 'hf://.*', allowed: hf://OWNER/NAME\[/FILE\]"):
        find_weights(name)
    assert asked == []


def test_what_the_hub_does_not_have_is_an_error_in_one_line(asked: list[dict[str, Any]]) -> None:
    with pytest.raises(ConfigError) as found:
        find_weights("hf://owner/none")
    assert str(found.value) == (
        "model.weights: hf://owner/none could not be downloaded (OSError: 401 Client Error); "
        "check the name and the network, or download the files and give their path"
    )


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(
        ConfigError, match=r"huggingface_hub cannot be imported .*pip install 'raysim-cfl\[hugging_face\]'"
    ):
        find_weights("hf://owner/vit.tiny")
