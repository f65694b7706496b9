"""Models of transformers with recomputed blocks, and with passes in bfloat16."""

from pathlib import Path
from typing import Any

import pytest
import torch
from pretrained_folders import IDS, LENGTH, MASK, NAMES, TEXTS, write_folder
from torch.nn import functional

from raysim.config import load
from raysim.models.arrays import Arrays, NamedArray
from raysim.models.building import check_model
from raysim.models.flat import FlatModel
from raysim.models.recomputing import recomputed_blocks
from raysim.models.stages import StagedNetwork

pytest.importorskip("transformers")
pytestmark = pytest.mark.usefixtures("quiet_torch")

ARRAYS = Arrays((NamedArray("input_ids", (LENGTH,), IDS), NamedArray("attention_mask", (LENGTH,), 2)))
ROWS = torch.cat([TEXTS, MASK], 1)
QUERIES = {"gpt2": "c_attn", "distilbert": "q_lin", "llama": "q_proj", "qwen2": "q_proj"}


@pytest.fixture(scope="module", params=NAMES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("folders") / request.param, request.param)


def built(folder: Path, **keys: Any) -> FlatModel:
    config = {
        "name": "large",
        "dataset": {"name": "digits"},
        "scenario": {"kind": "class_incremental", "tasks": 1},
        "clients": {"count": 1},
        "model": {"name": "hugging_face", "path": str(folder), "dropout": 0.2, **keys},
        "training": {"rounds_per_task": 1},
    }
    return check_model(load(config), (2 * LENGTH,), 3, ARRAYS)


def gradient(model: FlatModel) -> torch.Tensor:
    torch.manual_seed(2)
    model.module.train()
    model.gradient.zero_()
    functional.cross_entropy(model(ROWS), torch.tensor([0, 2, 1])).backward()
    return model.gradient.clone()


def test_recomputed_blocks_have_the_same_bits_with_dropout(folder: Path) -> None:
    plain, again = built(folder), built(folder, checkpointing=True)
    assert recomputed_blocks(again.module)
    assert not recomputed_blocks(plain.module)
    assert torch.equal(gradient(again), gradient(plain))


def test_a_trunk_in_bfloat16_trains_adapters_in_float32(folder: Path) -> None:
    """The frozen matrices are stored in bfloat16. The gradient is near the one of a pass in float32."""
    adapters = {"rank": 2, "where": [QUERIES.get(folder.name, "query")]}
    low, full = built(folder, adapters=adapters, precision="bfloat16"), built(folder, adapters=adapters)
    matrices = [value for name, value in low.frozen.items() if name.endswith("weight") and value.dim() > 1]
    assert {value.dtype for value in matrices} == {torch.bfloat16}
    assert low.parameters.dtype == low(ROWS).dtype == torch.float32
    assert low.head == full.head
    found, expected = gradient(low), gradient(full)
    assert functional.cosine_similarity(found, expected, 0) > 0.99
    assert not torch.equal(found, expected)


def test_a_late_pass_in_bfloat16_with_recomputed_blocks_is_near_the_whole_one(folder: Path) -> None:
    """Only the second block has adapters, so the first one is left out.

    A late pass begins with hidden states in float32, so the last bits of bfloat16 differ.
    """
    adapters = {"rank": 2, "where": [f"*.1.*{QUERIES.get(folder.name, 'query')}"]}
    keys = {"adapters": adapters, "precision": "bfloat16", "checkpointing": True, "dropout": 0.0}
    late, whole = built(folder, **keys, cache=True), built(folder, **keys)
    assert len(recomputed_blocks(late.module)) == len(recomputed_blocks(whole.module))
    network = late.module.eval()
    assert isinstance(network, StagedNetwork)
    with torch.no_grad():
        expected, found = whole.module.eval()(ROWS), network(network.before(ROWS).float())
    assert 0 < len(network.stages()[: network.begin]) < 3
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.02)
