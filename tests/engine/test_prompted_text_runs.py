"""Runs on texts that train prompts or adapters of a BERT's last block, from features of the block before it."""

import json

import pytest
import torch
from small_transformers import build

import raysim
from raysim.config import load

PROMPTS = {
    "fed_l2p": {"kind": "l2p", "pool": 4, "length": 2, "top": 2, "block": 1, "average": "prompts"},
    "fed_dualprompt": {"kind": "dual", "general_blocks": [], "blocks": [1], "length": 2, "pool": 3},
    "fed_coda_prompt": {"kind": "coda", "blocks": [1], "pool": 6, "per_task": 2, "length": 4},
}
LAST = {"rank": 2, "where": ["encoder.layer.1.*"]}
TRAINED = {name: {"prompts": keys} for name, keys in PROMPTS.items()}
TRAINED |= {name: {"adapters": LAST, "dropout": 0.0} for name in ("lorm", "pilora", "lora")}


@pytest.fixture(scope="module")
def config_of(tmp_path_factory):
    """A function: a config of texts in two tasks of two classes, for a BERT of two blocks."""
    folder = tmp_path_factory.mktemp("texts")
    build("bert").save_pretrained(folder / "bert")
    rows = [
        {"text": " ".join(f"w{(7 * row + n) % 11}" for n in range(3 + row % 4)), "label": row % 4, "split": split}
        for split, count in (("train", 36), ("test", 12))
        for row in range(count)
    ]
    (folder / "texts.jsonl").write_text("\n".join(map(json.dumps, rows)))

    def make(method, **keys):
        model = {"name": "hugging_face", "path": str(folder / "bert"), **TRAINED[method]}
        return load(
            {
                "name": "texts",
                "dataset": {"name": "text_jsonl", "path": str(folder / "texts.jsonl"), "length": 6},
                "scenario": {"kind": "class_incremental", "tasks": 2},
                "clients": {"count": 2},
                "model": model,
                "training": {"rounds_per_task": 1, "batch_size": 6, "optimizer": {"lr": 0.1}},
                "methods": {method: {}},
                "logging": {"tensorboard": False},
            },
            {key.replace("__", "."): value for key, value in keys.items()},
        )

    return make


FAST = ("fed_dualprompt", "lorm")


@pytest.mark.parametrize(
    "method", [name if name in FAST else pytest.param(name, marks=pytest.mark.soak) for name in TRAINED]
)
def test_a_run_from_features_is_the_run_without(method, config_of, tmp_path):
    """Up to the last bits. What is trained has moved, and the first block has not."""
    states = []
    for cache in (False, True):
        config = config_of(method, model__cache=cache, dataset__root=str(tmp_path))
        result = raysim.run(config, out=tmp_path / str(cache), local=True)
        states.append(torch.load(result.directory / "model.pt", weights_only=True))
    whole, late = states
    assert [*whole] == [*late]
    for name in whole:
        torch.testing.assert_close(late[name], whole[name], atol=2e-5, rtol=1e-4)
    began = build("bert").state_dict()
    assert all(torch.equal(whole[f"body.{name}"], began[name]) for name in began if "layer.0." in name)


@pytest.mark.parametrize("method", ["fed_dualprompt", "lorm"])
def test_hosts_do_not_matter(method, config_of, simulate):
    config = config_of(method)
    assert simulate(config, places=[[1], [0]]).sha256 == simulate(config).sha256
