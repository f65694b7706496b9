"""A finished run's adapters and model in the layouts of peft and transformers, and back as initial weights."""

import json

import pytest
import torch
from small_transformers import build, outputs
from torch import nn

import raysim
from raysim.config import load
from raysim.engine.input_files import pin_weights
from raysim.models.hugging_face.saved_head import load_head
from raysim.models.mlp import mlp
from raysim.models.safetensors_file import read_safetensors, write_safetensors
from raysim.system.errors import ConfigError

transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # peft asks transformers for an old name

LORA = {"rank": 2, "where": ["1"], "scale": 0.5}
DIGITS = {
    "name": "saved",
    "dataset": {"name": "digits"},
    "scenario": {"kind": "domain_incremental", "tasks": 2},
    "clients": {"count": 2},
    "model": {"name": "mlp", "hidden": [4], "adapters": LORA},
    "training": {"rounds_per_task": 1},
    "logging": {"tensorboard": False},
}


def run(out, config=DIGITS, **keys):
    return raysim.run(config, keys, out=out, local=True)


def read_state(directory):
    return torch.load(directory / "model.pt", weights_only=True)


def test_adapters_of_a_run_load_in_peft_and_begin_another_run(tmp_path):
    """The head is part of this model, so peft has it in `modules_to_save`. Round 0 of the next run is the last one."""
    result = run(tmp_path / "first")
    folder = raysim.save_adapters(tmp_path / "first", tmp_path / "new" / "adapters")
    state, config = read_state(tmp_path / "first"), json.loads((folder / "adapter_config.json").read_text())
    assert [config[key] for key in ("r", "lora_alpha", "target_modules", "modules_to_save")] == [2, 1, ["1"], ["3"]]
    plain = mlp((1, 8, 8), 10, hidden=[4])
    plain.load_state_dict({name.replace("base.", ""): tensor for name, tensor in state.items() if "lora" not in name})
    loaded = peft.PeftModel.from_pretrained(plain, folder).eval()
    found = dict(loaded.named_parameters())
    for part, other in (("a", "A"), ("b", "B")):
        name = f"base_model.model.1.lora_{other}.default.weight"
        assert torch.equal(found[name], state[f"1.lora_{part}.weight"])
    assert torch.equal(found["base_model.model.3.modules_to_save.default.weight"], state["3.weight"])

    again = run(tmp_path / "again", **{"model.weights": str(folder), "training.optimizer.lr": 1e-30})
    for name, tensor in read_state(tmp_path / "again").items():
        torch.testing.assert_close(tensor, state[name], atol=1e-6, rtol=0)
    assert again.accuracy() == result.accuracy()


def test_merged_tasks_are_in_no_adapter(tmp_path):
    """Fed-LoRA sets tasks' products aside, so that only merged weights have all of them."""
    result = run(tmp_path / "run", methods={"lora": {}})
    with pytest.raises(ConfigError, match=r"found 1.base.weight changed by the run.* use raysim.save_pretrained$"):
        raysim.save_adapters(tmp_path / "run", tmp_path / "a")
    file = raysim.save_pretrained(tmp_path / "run", tmp_path / "b") / "model.safetensors"
    state = read_state(tmp_path / "run")
    merged = state["1.base.weight"] + 0.5 * state["1.lora_b.weight"] @ state["1.lora_a.weight"]
    whole = run(tmp_path / "w", **{"model.adapters": None, "model.weights": str(file), "training.optimizer.lr": 1e-30})
    found = read_state(tmp_path / "w")
    torch.testing.assert_close(found["1.weight"], merged, atol=1e-6, rtol=0)
    assert whole.accuracy() == pytest.approx(result.accuracy(), abs=0.01)


@pytest.fixture
def of_transformers(tmp_path):
    """A config of texts for a BERT with random weights in a folder, and the folder."""
    build("bert").save_pretrained(tmp_path / "bert")
    rows = [
        {"text": " ".join(f"w{(7 * row + n) % 11}" for n in range(3 + row % 4)), "label": row % 4, "split": split}
        for split, count in (("train", 24), ("test", 8))
        for row in range(count)
    ]
    (tmp_path / "texts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    texts = {"name": "text_jsonl", "path": str(tmp_path / "texts.jsonl"), "length": 6}
    adapters = {"rank": 2, "where": ["query", "value"], "scale": 1.5}
    model = {"name": "hugging_face", "path": str(tmp_path / "bert"), "dropout": 0.0, "adapters": adapters}
    scenario = {"kind": "class_incremental", "tasks": 2}
    return DIGITS | {"dataset": texts, "model": model, "scenario": scenario}, tmp_path / "bert"


def test_a_run_of_transformers_model_loads_there(of_transformers, tmp_path, capsys):
    """The body is BertModel. The classifier's head is raysim's, and so in a file that peft does not read."""
    config, base = of_transformers
    run(tmp_path / "run", config, **{"training.optimizer.lr": 0.5})
    folder = raysim.save_adapters(tmp_path / "run", tmp_path / "adapters")
    merged = raysim.save_pretrained(tmp_path / "run", tmp_path / "merged")
    assert capsys.readouterr() == ("", "")
    state = read_state(tmp_path / "run")
    assert json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"] == str(base)
    load = transformers.BertModel.from_pretrained
    loaded = peft.PeftModel.from_pretrained(load(base, add_pooling_layer=False), folder).eval()
    for name, parameter in loaded.named_parameters():
        if "lora_" in name:
            name = (
                name.removeprefix("base_model.model.").replace(".default", "").replace("_A", "_a").replace("_B", "_b")
            )
            assert parameter.abs().max() > 0
            assert torch.equal(parameter, state[f"body.{name}"])
    whole = load(merged, add_pooling_layer=False).eval()
    torch.testing.assert_close(outputs(whole), outputs(loaded), atol=1e-6, rtol=1e-5)
    assert not torch.allclose(outputs(whole), outputs(build("bert")), atol=1e-4)
    for place in (folder, merged):
        assert torch.equal(read_safetensors(place / "head.safetensors")["head.weight"], state["head.weight"])


def test_a_folder_of_a_run_brings_its_head(of_transformers, tmp_path):
    """Round 0 of the next run is the last one of the first, with the same head to the bit. Another head is refused."""
    config, _ = of_transformers
    result = run(tmp_path / "run", config, **{"training.optimizer.lr": 0.5})
    merged = raysim.save_pretrained(tmp_path / "run", tmp_path / "merged")
    keys = {"model.path": str(merged), "model.adapters": None}
    again = run(tmp_path / "again", config, **keys, **{"training.optimizer.lr": 1e-30})
    state, found = read_state(tmp_path / "run"), read_state(tmp_path / "again")
    assert all(torch.equal(found[f"head.{leaf}"], state[f"head.{leaf}"]) for leaf in ("weight", "bias"))
    assert again.accuracy() == result.accuracy()
    pinned = pin_weights(load(config, keys))
    assert [file.key for file in pinned] == [
        f"model.path/{name}" for name in ("config.json", "model.safetensors", "head.safetensors")
    ]


def test_a_head_that_does_not_fit_is_refused(tmp_path):
    """So that a head for other classes is not dropped. A model without a head says that it does not use it."""
    file = tmp_path / "head.safetensors"
    write_safetensors(file, nn.Linear(3, 4).state_dict(prefix="head."))
    network = nn.ModuleDict({"body": nn.Linear(1, 1)})
    assert load_head(network, file) == ("weights: not used: head.safetensors, as the model has no head",)
    for head, words in (
        (nn.Linear(3, 2), "found head.bias [4], allowed: head.bias [2]"),
        (nn.Linear(2, 4), "found head.weight [4, 3], allowed: head.weight [4, 2]"),
        (nn.Linear(3, 4, bias=False), "found head.bias [4], allowed: no head.bias"),
        (nn.Bilinear(1, 3, 4), "found head.weight [4, 3], allowed: head.weight [4, 1, 3]"),
    ):
        network["head"] = head
        with pytest.raises(ConfigError) as caught:
            load_head(network, file)
        assert str(caught.value) == (
            f"model.path: {file} does not fit the model's head: {words}; remove the file, or use a copy of the folder "
            "without it, for a new head"
        )
    network["head"] = nn.Linear(3, 4).double()
    assert load_head(network, file)[1:] == ("weights: float32 in head.safetensors, float64 in the model",)
    assert torch.equal(network["head"].weight, read_safetensors(file)["head.weight"].double())
    file.write_bytes(b"no tensors")
    with pytest.raises(ConfigError, match=r"^model.path: .*head.safetensors cannot be read: "):
        load_head(network, file)


def test_adapters_that_peft_trained_begin_a_run(of_transformers, tmp_path):
    """With a learning rate of almost zero, the run ends with them."""
    config, base = of_transformers
    lora = peft.LoraConfig(r=2, lora_alpha=3, target_modules=["query", "value"])
    theirs = peft.get_peft_model(transformers.BertModel.from_pretrained(base, add_pooling_layer=False), lora)
    theirs.base_model.model.encoder.layer[1].attention.self.value.lora_B["default"].weight.data.fill_(0.25)
    theirs.save_pretrained(tmp_path / "theirs")
    run(tmp_path / "run", config, **{"model.weights": str(tmp_path / "theirs"), "training.optimizer.lr": 1e-30})
    state = read_state(tmp_path / "run")
    name = "encoder.layer.1.attention.self.value.lora_"
    assert torch.equal(state[f"body.{name}b.weight"], torch.full((16, 2), 0.25))
    expected = theirs.get_parameter(f"base_model.model.{name}A.default.weight")
    torch.testing.assert_close(state[f"body.{name}a.weight"], expected, atol=1e-7, rtol=0)


def test_what_cannot_be_saved_is_one_line(tmp_path):
    run(tmp_path / "run", **{"model.adapters": None})
    for directory, folder, words in (
        ("run", "a", r"/a: the model has no adapters$"),
        ("none", "a", r"there is no such file; allowed: the directory of a run that is done"),
        ("run", "run/model.pt", r"/run/model.pt: File exists, allowed: a folder that can be written"),
    ):
        with pytest.raises(ConfigError, match=words) as caught:
            raysim.save_adapters(tmp_path / directory, tmp_path / folder)
        assert "\n" not in str(caught.value)
