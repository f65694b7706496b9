"""Pretrained models of transformers: equality with transformers' own passes, what is refused, and late passes."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from pretrained_folders import DECODERS, IDS, LENGTH, MASK, NAMES, TEXTS, WIDTH, write_folder
from torch import nn
from torch.nn import functional

from raysim.config import load
from raysim.engine.vectorised.support import check_vectorised
from raysim.models.arrays import Arrays, NamedArray
from raysim.models.building import build_model, check_model
from raysim.models.flat import FlatModel
from raysim.models.freezing import frozen_bytes
from raysim.models.hugging_face.network import pool_tokens
from raysim.system.errors import ConfigError

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.usefixtures("quiet_torch")

ARRAYS = Arrays((NamedArray("input_ids", (LENGTH,), IDS), NamedArray("attention_mask", (LENGTH,), 2)))
ROWS = torch.cat([TEXTS, MASK], 1)


def config_for(folder: Path, objective: str = "classification", training: Any = None, **keys: Any) -> Any:
    return load(
        {
            "name": "pretrained",
            "dataset": {"name": "digits"},
            "scenario": {"kind": "class_incremental", "tasks": 1},
            "clients": {"count": 1},
            "objective": objective,
            "model": {"name": "hugging_face", "path": str(folder), **keys},
            "training": {"rounds_per_task": 1, **(training or {})},
        }
    )


def built(folder: Path, classes: int = 3, vocabulary: Any = ARRAYS, **keys: Any) -> nn.Module:
    return build_model(config_for(folder, **keys), (2 * LENGTH,), classes, vocabulary)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of each tested architecture, and of each decoder with its output layer."""
    root = tmp_path_factory.mktemp("folders")
    made = {kind: write_folder(root / kind, kind) for kind in NAMES}
    return made | {f"{kind} causal": write_folder(root / f"{kind}_causal", kind, causal=True) for kind in DECODERS}


@pytest.mark.parametrize("kind", NAMES)
def test_a_classifier_is_transformers_own_body_with_a_linear_layer(folders: dict[str, Path], kind: str) -> None:
    """Forward, loss and gradient to the bit in evaluation mode, where both compute on all positions."""
    model = built(folders[kind]).eval()
    body = transformers.AutoModel.from_pretrained(folders[kind], dtype=torch.float32).eval()
    head = nn.Linear(WIDTH, 3)
    head.load_state_dict(model.head.state_dict())
    keys = {} if kind == "distilbert" else {"use_cache": False}
    hidden = body(input_ids=TEXTS, attention_mask=MASK, **keys).last_hidden_state
    if kind in DECODERS:  # the last tokens of the three texts
        pooled = hidden[[0, 1, 2], [3, 3, 0]]
    else:
        pooled = torch.stack([hidden[0, :4].sum(0) / 4, hidden[1, :4].sum(0) / 4, hidden[2, 0]])
    expected = head(pooled)
    torch.testing.assert_close(model(ROWS), expected, rtol=1e-6, atol=1e-6)
    labels = torch.tensor([0, 2, 1])
    functional.cross_entropy(model(ROWS), labels).backward()
    functional.cross_entropy(expected, labels).backward()
    for name, parameter in model.body.named_parameters():
        torch.testing.assert_close(parameter.grad, body.get_parameter(name).grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", DECODERS)
def test_a_language_model_is_transformers_own(folders: dict[str, Path], kind: str) -> None:
    """Logits to the bit, and transformers' own loss of the shifted labels, which raysim's targets are already."""
    folder = folders[f"{kind} causal"]
    model = built(folder, IDS, objective="next_token", head="causal_lm").eval()
    own = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    labels = TEXTS.where(MASK.bool(), -100)
    expected = own(input_ids=TEXTS, attention_mask=MASK, labels=labels, use_cache=False)
    logits = model(ROWS)
    assert torch.equal(logits, expected.logits)
    targets = functional.pad(labels[:, 1:], (0, 1), value=-100)
    loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)
    torch.testing.assert_close(loss, expected.loss, rtol=1e-6, atol=1e-6)
    loss.backward()
    expected.loss.backward()
    for name, parameter in model.body.named_parameters():
        torch.testing.assert_close(parameter.grad, own.get_parameter(name).grad, rtol=1e-5, atol=1e-6)
    before = model.body.get_input_embeddings().weight.detach().clone()
    for network in (model, own):
        torch.optim.SGD(network.parameters(), lr=0.1).step()
    step = model.body.get_input_embeddings().weight
    assert not torch.equal(step, before)
    torch.testing.assert_close(step, own.get_input_embeddings().weight, rtol=1e-5, atol=1e-6)
