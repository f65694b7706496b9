"""Runs with pretrained models: the same bits on any hosts, also resumed, and not with other weights."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from pretrained_folders import run_of_texts, write_folder, write_texts

import raysim
from raysim.config import load
from raysim.engine.events import RoundDone
from raysim.launch.display import RunDisplay
from raysim.system.errors import ConfigError

pytest.importorskip("transformers")

BLOCK = {"freeze": ["*embeddings*", "*layer.[01].*"], "dropout": 0.0}
KINDS: dict[str, dict[str, Any]] = {
    "all weights with dropout": {},
    "adapters": {"adapters": {"rank": 2, "where": ["query", "value"]}},
    "the last block": BLOCK,
}


class Power(Exception):
    """It fails."""


class Stopping(RunDisplay):
    """Ends a run after its second round, as a lost machine would."""

    def take(self, event: Any) -> None:
        super().take(event)
        if isinstance(event, RoundDone) and event.round == 2:
            raise Power


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder of a tiny BERT, and a file of texts."""
    root = tmp_path_factory.mktemp("made")
    return write_folder(root / "bert", "bert"), write_texts(root)


@pytest.mark.parametrize(
    "kind", [kind if "all" in kind else pytest.param(kind, marks=pytest.mark.soak) for kind in KINDS]
)
def test_hosts_make_no_difference(simulate: Any, made: tuple[Path, Path], kind: str) -> None:
    config = load(run_of_texts(*made, **KINDS[kind]))
    whole = simulate(config)
    assert simulate(config, places=[[0, 2], [1]]).sha256 == whole.sha256
    assert any(bool(tensor.isfinite().all()) for tensor in whole.state.values())


def test_features_give_the_run_without_them(
    simulate: Any, made: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To 1e-5: features are of texts of the full length, while training trims a batch to its longest text."""
    monkeypatch.setenv("RAYSIM_DATA", str(tmp_path))
    late = raysim.run(run_of_texts(*made, **BLOCK, cache=True), out=tmp_path / "late", local=True)
    plain = raysim.run(run_of_texts(*made, **BLOCK), out=tmp_path / "plain", local=True)
    first, second = (torch.load(tmp_path / name / "model.pt", weights_only=True) for name in ("late", "plain"))
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        torch.testing.assert_close(tensor, second[name], rtol=1e-4, atol=1e-5)
    assert late.model_sha256 != "" != plain.model_sha256
    again = raysim.run(run_of_texts(*made, **BLOCK, cache=True), out=tmp_path / "again", local=True)
    assert again.model_sha256 == late.model_sha256
    assert len([*(tmp_path / "features").glob("*.npy")]) == 2


def test_a_run_resumes_with_the_same_weights_alone(made: tuple[Path, Path], tmp_path: Path) -> None:
    folder = tmp_path / "bert"
    shutil.copytree(made[0], folder)
    config = run_of_texts(folder, made[1])
    whole = raysim.run(config, out=tmp_path / "whole", local=True)
    assert {"path/config.json", "path/model.safetensors"} <= whole.versions.keys()
    with pytest.raises(Power):
        raysim.run(config, out=tmp_path / "out", local=True, display=Stopping())
    file = folder / "model.safetensors"
    right, wrong = file.read_bytes(), bytearray(file.read_bytes())
    wrong[-1] ^= 1
    file.write_bytes(wrong)
    with pytest.raises(ConfigError, match=r"--resume: model.path/model.safetensors: .* changed since the checkpoint"):
        raysim.run(out=tmp_path / "out", resume=True, local=True)
    file.write_bytes(right)
    assert raysim.run(out=tmp_path / "out", resume=True, local=True).model_sha256 == whole.model_sha256
