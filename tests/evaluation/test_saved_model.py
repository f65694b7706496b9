"""A finished run's adapters and model in the layouts of peft and transformers, and back as initial weights."""

import json

import pytest
import torch

import raysim
from raysim.models.mlp import mlp
from raysim.system.errors import ConfigError

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


def test_what_cannot_be_saved_is_one_line(tmp_path):
    run(tmp_path / "run", **{"model.adapters": None})
    for directory, folder, words in (
        ("run", "a", r"/a: the model has no adapters$"),
        ("none", "a", r"there is no such file; allowed: the directory of a run that ended"),
        ("run", "run/model.pt", r"/run/model.pt: File exists, allowed: a folder that can be written"),
    ):
        with pytest.raises(ConfigError, match=words) as caught:
            raysim.save_adapters(tmp_path / directory, tmp_path / folder)
        assert "\n" not in str(caught.value)
