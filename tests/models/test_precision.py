"""model.precision: passes in bfloat16 around weights, gradients and outputs in float32."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from raysim.config import load
from raysim.federation.features import FeaturePass
from raysim.federation.federation import build_federation
from raysim.models.building import build_model, check_model
from raysim.models.flat import FlatModel
from raysim.models.freezing import frozen_bytes
from raysim.system.errors import ConfigError

pytestmark = pytest.mark.usefixtures("quiet_torch")

VIT = {"name": "vit", "width": 8, "depth": 2, "heads": 2, "patch": 4, "input_size": 8}
LORA = {**VIT, "adapters": {"rank": 2, "where": ["blocks.1.*"]}}
LINEAR = {"name": "test_precision:two_layers"}


def two_layers(shape, classes):
    return nn.Sequential(nn.Linear(shape[0], 4), nn.Linear(4, classes))


def config_of(model, **keys):
    return load(
        {
            "name": "low",
            "dataset": {"name": "digits"},
            "scenario": {"kind": "class_incremental", "tasks": 2},
            "clients": {"count": 1},
            "model": {**model, "precision": "bfloat16"},
            "training": {"rounds_per_task": 1},
            **keys,
        }
    )


def checked(model, shape=(6,), classes=3):
    return check_model(config_of(model), shape, classes)


def test_a_pass_is_that_of_rounded_weights_and_inputs():
    """By hand: each layer rounds its weights and its input to bfloat16, and so is its output. Gradients are float32."""
    model, x, y = checked(LINEAR), torch.randn(5, 6), torch.tensor([0, 1, 2, 0, 1])
    w1, b1, w2, b2 = (p.detach().bfloat16() for p in model.module.parameters())
    expected = functional.linear(functional.linear(x.bfloat16(), w1, b1), w2, b2)
    for logits in (model(x), model.logits(x, model.parameters, model.buffers)):  # in training and evaluation
        assert logits.dtype == torch.float32
        torch.testing.assert_close(logits, expected.float(), rtol=0, atol=0)
    functional.cross_entropy(model(x), y).backward()
    copies = [p.detach().float().requires_grad_() for p in (w1, b1, w2, b2)]
    plain = functional.linear(functional.linear(x, *copies[:2]), *copies[2:])
    functional.cross_entropy(plain, y).backward()
    torch.testing.assert_close(model.gradient, torch.cat([c.grad.flatten() for c in copies]), rtol=0.05, atol=2e-3)
    assert {v.dtype for v in (model.parameters, model.gradient, model.buffers)} == {torch.float32}


def test_the_head_is_found_and_its_inputs_are_float32():
    model, x = checked(LINEAR), torch.randn(5, 6)
    assert model.head == ("1.weight", "1.bias")
    logits, features = model.with_features(x)
    assert (logits.dtype, features.dtype) == (torch.float32, torch.float32)
    assert torch.equal(features, features.bfloat16().float())
    inputs = model.inputs(x, model.parameters, model.buffers, ["1.weight"])["1.weight"]
    assert inputs.dtype == torch.float32


def test_frozen_matrices_take_half_the_memory_and_change_no_bit():
    """Autocast would round them in each pass. Vectors, such as biases and norms, stay as they are."""
    model = checked(LORA, (3, 8, 8))
    stored = {name: value.dtype for name, value in model.frozen.items()}
    assert {stored[name] for name in stored if name.endswith("bias") or "norm" in name} == {torch.float32}
    assert stored["blocks.0.attn.qkv.weight"] == stored["blocks.1.mlp.fc1.base.weight"] == torch.bfloat16
    x = torch.randn(3, 3, 8, 8)
    found = model(x)
    for parameter in model.module.parameters():
        parameter.data = parameter.data.float()
    assert torch.equal(model(x), found)


@pytest.mark.parametrize(("dtype", "mapped"), [(torch.bfloat16, True), (torch.float32, False)])
def test_a_file_in_bfloat16_stays_mapped(tmp_path, dtype, mapped):
    """The processes of a node have the pages of a file once, if its frozen matrices have the type that passes use."""
    plain = build_model(load(config_of(LORA), {"model.precision": "float32", "model.adapters": None}), (3, 8, 8), 3)
    torch.save({name: tensor.to(dtype) for name, tensor in plain.state_dict().items()}, tmp_path / "weights.pt")
    module = build_model(config_of({**LORA, "weights": str(tmp_path / "weights.pt")}), (3, 8, 8), 3)
    in_file, _ = frozen_bytes(module)
    matrices = sum(p.nbytes for p in module.parameters() if not p.requires_grad and p.dtype == torch.bfloat16)
    assert matrices > 1000
    assert (in_file >= matrices) is mapped
    assert torch.equal(module.get_parameter("blocks.0.attn.qkv.weight"), plain.blocks[0].attn.qkv.weight.bfloat16())


def test_a_copy_of_the_network_has_its_own_pass():
    model, x = checked(LINEAR), torch.randn(5, 6)
    other = model.copy()
    other.parameters.mul_(2)
    assert torch.equal(model.network_at(other)(x), model.logits(x, other.parameters, other.buffers))
    assert not torch.equal(model.network_at(other)(x), model(x))


def test_features_are_those_of_a_pass_in_bfloat16_under_another_name(tmp_path):
    model = {**VIT, "adapters": {"rank": 2, "where": ["blocks.1.*"]}, "cache": True}
    found = {}
    for precision in ("float32", "bfloat16"):
        config = config_of({**model, "precision": precision}, dataset={"name": "digits", "root": str(tmp_path)})
        config = load(config, {"model.precision": precision})
        found[precision] = FeaturePass(config, build_federation(load(config, {"model.cache": False}))).carry_out()
    assert len([*(tmp_path / "features").glob("*.npy")]) == 4
    exact, rounded = (np.asarray(found[precision].dataset.train.x) for precision in ("float32", "bfloat16"))
    assert rounded.dtype == np.float32
    assert 1e-5 < np.abs(exact - rounded).max() < 0.1


def test_a_model_of_float64_is_refused():
    with pytest.raises(
        ConfigError, match=r"^model\.precision: found bfloat16, allowed with softmax .*float64: float32$"
    ):
        checked({"name": "probes:softmax"})


def test_results_of_a_run_are_near_those_in_float32(tiny, simulate):
    """Evaluations too are in bfloat16: the last bits of the trained weights differ, and nothing is of another type."""
    found, exact = (simulate(tiny(model__precision=precision)).state for precision in ("bfloat16", "float32"))
    assert {value.dtype for value in found.values()} == {torch.float32}
    differences = [(found[name] - exact[name]).abs().max() for name in exact]
    assert 0 < max(differences) < 0.05


def test_batch_norm_and_convolutions(tiny):
    model = FlatModel(build_model(config_of({"name": "resnet18"}), (3, 8, 8), 3))
    model.module.train()
    model(torch.randn(4, 3, 8, 8)).sum().backward()
    assert model.buffers.dtype == torch.float32
    assert bool(model.gradient.isfinite().all())


@pytest.mark.parametrize(
    "prompts",
    [
        {"kind": "coda", "blocks": [1], "pool": 4, "per_task": 2},
        {"kind": "dual", "general_blocks": [0], "blocks": [1], "pool": 4},
        {"kind": "l2p", "pool": 4, "top": 2},
    ],
    ids=["coda", "dual", "l2p"],
)
def test_prompts_take_part(prompts):
    """The logits are near those in float32, and the prompts have a gradient."""
    model = checked({**VIT, "prompts": prompts}, (1, 8, 8))
    plain = FlatModel(
        build_model(load(config_of(VIT), {"model.prompts": prompts, "model.precision": "float32"}), (1, 8, 8), 3)
    )
    x = torch.rand(4, 1, 8, 8)
    logits = model(x)
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits, plain(x), rtol=0.05, atol=0.05)
    logits.square().sum().backward()
    tables = [gradient for name, gradient in model.named(model.gradient).items() if name.startswith("prompts.")]
    assert any(float(gradient.abs().max()) > 0 for gradient in tables)
