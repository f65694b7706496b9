"""What is refused with pretrained models of transformers: one line each."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from pretrained_folders import ARRAYS, IDS, LENGTH, built, config_for, write_folder

from raysim.config import load
from raysim.engine.vectorised.support import check_vectorised
from raysim.models.arrays import Arrays, NamedArray
from raysim.models.building import build_model, check_model
from raysim.system.errors import ConfigError

pytest.importorskip("transformers")
pytestmark = pytest.mark.usefixtures("quiet_torch")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of an encoder and of a decoder."""
    root = tmp_path_factory.mktemp("folders")
    return {kind: write_folder(root / kind, kind) for kind in ("bert", "qwen2")}


def rewritten(folder: Path, out: Path, **keys: Any) -> Path:
    """Write a folder's config alone, with other values; None leaves a key out."""
    out.mkdir()
    values = {**json.loads((folder / "config.json").read_text()), **keys}
    (out / "config.json").write_text(json.dumps({key: value for key, value in values.items() if value is not None}))
    return out


def test_what_a_folder_must_have(folders: dict[str, Path], tmp_path: Path) -> None:
    bert, empty = folders["bert"], tmp_path / "empty"
    empty.mkdir()
    cases = [
        (tmp_path / "absent", {}, "which is no folder, allowed: a folder, hf://OWNER/NAME"),
        (empty, {}, "has no config.json, allowed: a folder that save_pretrained of transformers wrote"),
        (rewritten(bert, tmp_path / "a"), {}, "has no weights, allowed: model.safetensors .* model.pretrained=false"),
        (rewritten(bert, tmp_path / "b", model_type="mine"), {}, "found model_type 'mine' .* such as bert, distilbert"),
        (
            rewritten(bert, tmp_path / "c", model_type="mine", auto_map={"AutoModel": "code.py"}),
            {},
            r"brings its own code \(auto_map\), which raysim never runs",
        ),
        (rewritten(bert, tmp_path / "d", model_type="t5"), {}, "found t5, an encoder with a decoder"),
        (
            write_folder(tmp_path / "e", "bert", causal=True),
            {"head": "causal_lm", "objective": "next_token"},
            "found causal_lm for bert, in which tokens see those after them, allowed: classifier or none",
        ),
    ]
    for number, index in enumerate(({}, {"weight_map": ["model.safetensors"]}, {"weight_map": {"a": 1}})):
        folder = rewritten(bert, tmp_path / f"index {number}")
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        cases.append((folder, {}, "has no weight_map of files' names, allowed: the index that save_pretrained"))
    for folder, keys, words in cases:
        with pytest.raises(ConfigError, match=words) as refused:
            built(folder, **({"pretrained": False} if folder.name in "bcd" else {}), **keys)
        assert "\n" not in str(refused.value)


def test_a_folder_of_adapters_is_no_model(tmp_path: Path) -> None:
    """transformers would take the base that adapter_config.json names, and put the adapters into it."""
    base, folder = (write_folder(tmp_path / name, "bert") for name in ("base", "folder"))
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(base)}))
    with pytest.raises(
        ConfigError, match=r"model.path: .* has adapter_config.json of adapters, allowed: a folder with"
    ):
        built(folder)


def test_what_does_not_fit(folders: dict[str, Path], tmp_path: Path) -> None:
    bert = folders["bert"]
    other = rewritten(bert, tmp_path / "wider", hidden_size=16)
    (other / "model.safetensors").write_bytes((bert / "model.safetensors").read_bytes())
    deeper = rewritten(bert, tmp_path / "deeper", num_hidden_layers=4)
    (deeper / "model.safetensors").write_bytes((bert / "model.safetensors").read_bytes())
    cut = rewritten(bert, tmp_path / "cut")
    (cut / "model.safetensors").write_bytes((bert / "model.safetensors").read_bytes()[:-9])
    long = Arrays((NamedArray("input_ids", (17,), IDS),))
    cases = [
        (
            bert,
            Arrays((NamedArray("input_ids", (LENGTH,), 30), ARRAYS.parts[1])),
            "found 30 ids in the data, allowed: at most 29",
        ),
        (bert, long, "found texts of 17 tokens, allowed: at most 16"),
        (bert, None, "found samples of numbers, allowed for hugging_face: token ids"),
        (bert, Arrays((NamedArray("pixels", (3,), 4),)), "found samples {'pixels': .3,.}, allowed for hugging_face"),
        (other, ARRAYS, "transformers cannot build bert from"),
        (deeper, ARRAYS, "does not fit bert: not in the file: encoder.layer.3.* and 15 more"),
        (cut, ARRAYS, "transformers cannot build bert from"),
    ]
    for folder, vocabulary, words in cases:
        with pytest.raises(ConfigError, match=words) as refused:
            built(folder, vocabulary=vocabulary)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("kind", ["roberta", "camembert"])
def test_rows_of_padding_are_no_positions(tmp_path: Path, kind: str) -> None:
    """RoBERTa's positions begin at the padding's id + 1 = 2, so that 16 rows are enough for 14 tokens: 2 to 15."""
    folder = write_folder(tmp_path / kind, kind, pad_token_id=1)
    longest, longer = (Arrays((NamedArray("input_ids", (length,), IDS),)) for length in (14, 15))
    build_model(config_for(folder), (14,), 3, longest)(torch.full((2, 14), 3))
    with pytest.raises(ConfigError, match=r"^model.path: found texts of 15 tokens, allowed: at most 14 \(dataset.leng"):
        build_model(config_for(folder), (15,), 3, longer)
    prompts = {"kind": "l2p", "pool": 2, "top": 1, "length": 2}
    with pytest.raises(ConfigError, match=r"^model.prompts.top: found 2 tokens of prompts and 14 of .*: 14 in all$"):
        build_model(config_for(folder, prompts=prompts), (14,), 3, longest)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"head": "regressor"}, "model.head: found 'regressor', allowed: classifier, causal_lm or none"),
        ({"pool": "cls"}, "model.pool: found 'cls', allowed: mean, first, last or null"),
        ({"dropout": 1}, "model.dropout: found 1, allowed: a number >= 0 and < 1 or null"),
        ({"dtype": "int8"}, "model.dtype: found 'int8', allowed: float32, float64, bfloat16 or float16"),
        ({"attention": "flash"}, "model.attention: found 'flash', allowed: sdpa or eager"),
    ],
)
def test_keys_have_ranges(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config_for(Path("minilm-l6"), **keys)
    assert str(refused.value) == words


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's, of attention that is slow for several clients
@pytest.mark.parametrize(("kind", "length", "vocabulary"), [("qwen2", 2 * LENGTH, ARRAYS), ("bert", LENGTH, IDS)])
def test_clients_are_not_trained_together(
    folders: dict[str, Path], kind: str, length: int, vocabulary: Arrays | int
) -> None:
    """The batches of several clients have other lengths, even if the same batch for all of them would do."""
    config = config_for(folders[kind], training={"vectorise": 8}, dropout=0.0)
    with pytest.raises(
        ConfigError, match=r"training.vectorise: the model hugging_face cannot compute for several"
    ) as why:
        check_vectorised(config, check_model(config, (length,), 3, vocabulary))
    assert "\n" not in str(why.value)


def test_passes_are_no_cuda_graphs(folders: dict[str, Path]) -> None:
    config = load(config_for(folders["bert"]), {"resources.gpus_per_actor": 1, "resources.cuda_graphs": True})
    with pytest.raises(
        ConfigError, match=r"resources.cuda_graphs: found true for hugging_face, as its passes depend on"
    ):
        check_model(config, (2 * LENGTH,), 3, ARRAYS)
