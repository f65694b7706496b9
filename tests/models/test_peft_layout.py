"""Adapters in peft's layout: written files load in peft, peft's files load here, and what does not fit is one line."""

import json
import re

import pytest
import torch
from small_transformers import MODELS, build, outputs
from test_adapters_like_peft import config_of
from torch import nn

from raysim.config.component_blocks import Adapters
from raysim.models.adapters import add_adapters, find_adapters, merge_adapters
from raysim.models.peft_layout import find_pretrained, find_targets, load_adapters, save_adapters_of
from raysim.models.safetensors_file import read_safetensors, write_safetensors
from raysim.system.errors import ConfigError
from raysim.system.hub_files import find_weights, holds_adapters

peft = pytest.importorskip("peft")
safetensors = pytest.importorskip("safetensors.torch")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # peft asks transformers for an old name

BLOCK = Adapters(rank=2, where=("*",), scale=1.5)


class Wrapped(nn.Module):
    """A model of transformers and a head outside of it."""

    def __init__(self, body):
        super().__init__()
        self.body, self.head = body, nn.Linear(16, 3)

    def forward(self, ids):
        return self.head(outputs(self.body, ids).mean(1))


def adapted(name, **choice):
    """A model with adapters that are not zero. The head is `head` in the wrapper of an encoder."""
    module = Wrapped(build(name)) if name == "bert" else build(name)
    head = ("head.weight", "head.bias") if name == "bert" else ()
    add_adapters(module, 2, MODELS[name][1], 1.5, head=head, **choice)
    draw = torch.Generator().manual_seed(4)
    for parameter in (p for n, p in module.named_parameters() if "lora" in n or n.startswith("head.")):
        parameter.data.normal_(generator=draw)
    return module.eval()


def body_of(module):
    return getattr(module, "body", module)


@pytest.mark.parametrize("name", MODELS)
def test_what_is_written_loads_in_peft(name, tmp_path):
    """The same A and B at the same layers: outputs have the same bits, also merged ones."""
    ours = adapted(name)
    save_adapters_of(ours, tmp_path, "models/base")
    loaded = peft.PeftModel.from_pretrained(build(name), tmp_path)
    assert torch.equal(outputs(loaded.eval()), outputs(body_of(ours)))
    config = loaded.peft_config["default"]
    assert (config.r, config.lora_alpha, config.base_model_name_or_path) == (2, 3, "models/base")
    assert config.target_modules == {*MODELS[name][1]} - {"mlp.c_proj", "output.dense"} or name in ("bert", "gpt2")
    assert (tmp_path / "head.safetensors").exists() is (name == "bert")
    merge_adapters(ours)
    assert [*find_adapters(ours)] == []
    torch.testing.assert_close(outputs(body_of(ours)), outputs(loaded.merge_and_unload()), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_what_peft_writes_loads_here(name, tmp_path):
    theirs = peft.get_peft_model(build(name), config_of(name, r=2, lora_alpha=3, target_modules=MODELS[name][1]))
    for n, p in theirs.named_parameters():
        if "lora_" in n:
            p.data.normal_(generator=torch.Generator().manual_seed(len(n)))
    theirs.save_pretrained(tmp_path, save_embedding_layers=False)  # otherwise peft before 0.21 asks a hub
    ours = adapted(name)
    before = outputs(body_of(ours))
    file = find_weights(str(tmp_path))
    assert holds_adapters(file)
    notes = load_adapters(ours, file, BLOCK)
    assert notes == [f"weights: adapters of {MODELS[name][2]} layers in peft's layout"]
    assert torch.equal(outputs(body_of(ours)), outputs(theirs.eval()))
    assert not torch.equal(outputs(body_of(ours)), before)


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_the_way_there_and_back_keeps_all_bits(name, tmp_path):
    """A classifier's head is in a file beside the adapters, which peft does not read."""
    ours, other = adapted(name), adapted(name)
    save_adapters_of(ours, tmp_path)
    for p in (p for p in other.parameters() if p.requires_grad):
        p.data.zero_()
    load_adapters(other, find_weights(str(tmp_path)), BLOCK)
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), other.parameters(), strict=True))


def test_a_head_that_is_not_trained_is_in_no_file(tmp_path):
    """The file of an earlier head, in the same folder, would be read as that of these adapters."""
    save_adapters_of(adapted("bert"), tmp_path)
    assert (tmp_path / "head.safetensors").is_file()
    save_adapters_of(adapted("bert", train_head=False), tmp_path)
    assert not (tmp_path / "head.safetensors").exists()


def test_the_base_that_adapters_were_trained_on_is_noted(tmp_path):
    """Adapters of equal shapes load into any base, so the user has to see which one was meant."""
    ours = adapted("llama")
    save_adapters_of(ours, tmp_path, "OWNER/its-base")
    found = load_adapters(ours, find_weights(str(tmp_path)), BLOCK)
    assert found == ["weights: adapters of 4 layers in peft's layout, trained on OWNER/its-base"]


def test_another_type_of_numbers_is_noted(tmp_path):
    ours = adapted("llama")
    save_adapters_of(ours, tmp_path)
    file = find_weights(str(tmp_path))
    assert load_adapters(ours, file, BLOCK) == ["weights: adapters of 4 layers in peft's layout"]
    write_safetensors(file, {name: tensor.bfloat16() for name, tensor in read_safetensors(file).items()})
    assert load_adapters(ours, file, BLOCK)[1:] == ["weights: bfloat16 in the file, float32 in the model"]


@pytest.mark.filterwarnings("ignore:Model has .tie_word_embeddings")  # peft 0.18, although it is not tied
def test_a_trained_output_layer_is_a_module_to_save(tmp_path):
    """Untied, peft has it beside the adapters. A tied one has two names, of which peft saves one: refused."""
    ours = build("llama")
    add_adapters(ours, 2, ["q_proj"], 1.5, head=("lm_head.weight",))
    ours.lm_head.weight.data.add_(1.0)
    save_adapters_of(ours, tmp_path)
    assert json.loads((tmp_path / "adapter_config.json").read_text())["modules_to_save"] == ["lm_head"]
    loaded = peft.PeftModel.from_pretrained(build("llama"), tmp_path)
    assert torch.equal(outputs(loaded.eval()), outputs(ours.eval()))
    again = build("llama")
    add_adapters(again, 2, ["q_proj"], 1.5, head=("lm_head.weight",))
    load_adapters(again, find_weights(str(tmp_path)), BLOCK)
    assert torch.equal(outputs(again.eval()), outputs(ours))
    tied = build("gpt2")
    add_adapters(tied, 2, ["c_attn"], head=("transformer.wte.weight",))
    with pytest.raises(ValueError, match=r"^lm_head.weight is trained and shares its weight with transformer.wte"):
        save_adapters_of(tied, tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"peft_type": "LOHA"}, "adapter_config.json has peft_type 'LOHA', allowed: LORA"),
        ({"r": "2"}, "adapter_config.json has r '2' and lora_alpha 3, allowed: numbers"),
        ({"r": 3, "lora_alpha": 4.5}, "model.adapters.rank: found 2, allowed with FOLDER: its r, 3"),
        ({"lora_alpha": 2}, "model.adapters.scale: found 1.5, allowed with FOLDER: its lora_alpha over r, 1"),
        ({"use_rslora": True}, "model.adapters.scale: found 1.5, allowed with FOLDER: its lora_alpha over r, 2.12132"),
        ({"use_dora": True}, "adapter_config.json has use_dora, allowed: LoRA without magnitudes"),
        ({"alpha_pattern": {"q_proj": 2}}, "has an alpha_pattern, allowed: one lora_alpha for all layers"),
        ({"init_lora_weights": "pissa_niter_4"}, "has init_lora_weights pissa_niter_4, which changes the frozen"),
    ],
)
def test_a_config_that_does_not_fit_is_one_line(changes, words, tmp_path):
    ours = adapted("llama")
    save_adapters_of(ours, tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps(config | changes))
    with pytest.raises(ConfigError, match=re.escape(words.replace("FOLDER", str(tmp_path)))) as caught:
        load_adapters(ours, find_weights(str(tmp_path)), BLOCK)
    assert "\n" not in str(caught.value)


def test_files_that_do_not_fit_are_one_line(tmp_path):
    ours = adapted("llama")
    save_adapters_of(ours, tmp_path)
    file = find_weights(str(tmp_path))
    tensors, first = read_safetensors(file), "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}

    def refused(changed, words):
        write_safetensors(file, changed)
        with pytest.raises(ConfigError, match=re.escape(words)) as caught:
            load_adapters(ours, file, BLOCK)
        assert "\n" not in str(caught.value)

    layer = "model.layers.0.self_attn.q_proj.lora_a.weight"
    refused({n: t for n, t in tensors.items() if n != first}, f"does not fit the model: not in the file: {layer}")
    refused(tensors | {first: torch.zeros(3, 16)}, f"does not fit the model: of another shape: {layer}")
    extra = {first.replace("q_proj", "k_proj"): tensors[first], first.replace("q_proj", "o_proj"): tensors[first]}
    refused(
        tensors | extra, "of layers without adapters in the model: model.layers.0.self_attn.k_proj.lora_a.weight and 1"
    )
    refused(
        {"lora_A.weight": tensors[first]}, "has the tensor lora_A.weight, allowed: names that begin with base_model."
    )
    write_safetensors(file, tensors)
    with pytest.raises(ConfigError, match=r"has adapters, allowed with model.adapters=\{rank: 2, scale: 1.5, where"):
        load_adapters(ours, file, None)
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(ConfigError, match=r"adapter_model.safetensors cannot be read: .*cut off"):
        load_adapters(ours, file, BLOCK)
    file.unlink()
    with pytest.raises(ConfigError, match=r"there is no file .*adapter_model.safetensors"):
        load_adapters(ours, file, BLOCK)


@pytest.mark.parametrize(
    ("chosen", "names", "expected"),
    [
        ({"0.query", "1.query"}, {"0.query", "1.query", "0.key"}, ["query"]),
        ({"0.query"}, {"0.query", "1.query"}, ["0.query"]),
        ({"0.query"}, {"0.query", "a.0.query"}, r"0\.query"),  # a list would fit a.0.query, too
        ({"1"}, {"1", "2", "0"}, ["1"]),
    ],
)
def test_targets_by_the_rules_of_peft(chosen, names, expected):
    found = find_targets(chosen, names)
    assert found == expected
    config = peft.LoraConfig(target_modules=found)
    from peft.tuners.tuners_utils import check_target_module_exists

    assert {name for name in names if check_target_module_exists(config, name)} == chosen


def test_files_of_both_writers_are_read_by_both(tmp_path):
    """Widest types first, so that each tensor begins at a multiple of its size."""
    tensors = {
        "b": torch.tensor([1.5, -2.0]).to(torch.bfloat16),
        "a": torch.arange(6, dtype=torch.int64).reshape(2, 3).T,  # not contiguous
        "c": torch.tensor(True),
        "d": torch.zeros(0, 3),
        "e": torch.rand(3),
    }
    write_safetensors(tmp_path / "ours", tensors)
    safetensors.save_file({n: t.contiguous() for n, t in tensors.items()}, tmp_path / "theirs")
    content = (tmp_path / "ours").read_bytes()
    size = int.from_bytes(content[:8], "little")
    for name, entry in json.loads(content[8 : 8 + size]).items():
        assert name == "__metadata__" or (8 + size + entry["data_offsets"][0]) % tensors[name].element_size() == 0
    for found in (
        read_safetensors(tmp_path / "ours"),
        safetensors.load_file(tmp_path / "ours"),
        read_safetensors(tmp_path / "theirs"),
    ):
        assert found.keys() == tensors.keys()
        assert all(torch.equal(found[name], tensors[name]) for name in tensors)
        assert all(found[name].dtype == tensors[name].dtype for name in tensors)


def test_the_part_that_is_of_transformers():
    assert find_pretrained(Wrapped(build("bert"))) == "body."
    assert find_pretrained(build("llama")) == ""
    assert find_pretrained(nn.Linear(2, 2)) is None
