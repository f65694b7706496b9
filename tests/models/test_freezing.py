"""Frozen parts of a model: what is in the vectors, what stays as it is, and weights that are mapped from a file."""

import sys

import psutil
import pytest
import torch
from torch import nn

from raysim.config import load
from raysim.models.building import build_model
from raysim.models.flat import FlatModel
from raysim.models.freezing import freeze, freeze_statistics, share_frozen
from raysim.models.layers import find_head
from raysim.system.errors import ConfigError


def body(shape, classes):
    """Two layers with BatchNorm, and a head: 2*3+3, 3+3, 3*2+2 parameters."""
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, classes))


def built(seed=0, **keys):
    config = load(
        {
            "name": "frozen",
            "seed": seed,
            "dataset": {"name": "digits"},
            "scenario": {"kind": "domain_incremental", "tasks": 1},
            "clients": {"count": 1},
            "model": {"name": "test_freezing:body", **keys},
            "training": {"rounds_per_task": 1},
        }
    )
    return build_model(config, (2,), 2)


def test_frozen_parameters_and_their_statistics_are_in_no_vector():
    """Of 9 + 6 + 8 parameters the head's 8 are trained; BatchNorm's 3 + 3 statistics and its count are constant."""
    model = FlatModel(built(freeze=["0.*", "1.*"]))
    assert [len(vector) for vector in model.vectors] == [8, 0, 0]
    assert not model.normalises
    assert [len(vector) for vector in FlatModel(built(freeze=["0.*"])).vectors] == [14, 6, 1]


def test_frozen_statistics_do_not_drift():
    module = built(freeze=["0.*", "1.*"])
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    module.train()
    module(torch.randn(5, 2) + 7)
    assert not module[1].training
    assert module[0].training
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    whole = built()
    whole.train()
    whole(torch.randn(5, 2) + 7)
    assert not torch.equal(whole[1].running_mean, torch.zeros(3))


def test_a_norm_without_statistics_is_left_as_it_is():
    """It uses the batch's in both modes, so there is nothing to keep."""
    module = nn.Sequential(nn.BatchNorm1d(2, track_running_stats=False).requires_grad_(False), nn.Linear(2, 1))
    x = torch.randn(5, 2) + 7
    before = module[0](x)
    freeze_statistics(module)
    assert torch.equal(module[0](x), before)


def test_weights_of_another_precision_are_not_shared():
    """Zero is zero in both precisions, but float16 tensors do not multiply float32 samples."""
    module = nn.Linear(2, 1).requires_grad_(False)
    nn.init.zeros_(module.weight)
    share_frozen(module, {"weight": torch.zeros(1, 2, dtype=torch.float16)})
    assert module.weight.dtype == torch.float32


def test_a_model_that_freezes_itself_keeps_its_statistics_too():
    module = nn.Sequential(nn.BatchNorm2d(2).requires_grad_(False), nn.Conv2d(2, 1, 1))
    statistics = module[0].running_mean
    freeze_statistics(module)
    module.train()
    assert module[0].running_mean is statistics
    assert len(FlatModel(module).buffers) == 0


def test_a_pattern_that_matches_nothing_is_one_line():
    with pytest.raises(ConfigError, match=r"^model.freeze: found 'O.\*', which matches no parameter, allowed: a "):
        freeze(body((2,), 2), ["O.*"])


def saved(tmp_path, prefix=""):
    module = body((2,), 2)
    file = tmp_path / "w.pt"
    torch.save({name.removeprefix(prefix): tensor for name, tensor in module.state_dict().items()}, file)
    return module, str(file)


def test_frozen_weights_stay_in_the_file_and_trained_ones_are_copies(tmp_path):
    source, file = saved(tmp_path)
    module = built(freeze=["0.*", "1.*"], weights=file)
    assert torch.equal(module[0].weight, source[0].weight)
    assert torch.equal(module[3].weight, source[3].weight)
    if sys.platform == "linux":
        assert file in {mapped.path for mapped in psutil.Process().memory_maps()}
        module[0].weight.data = torch.zeros(3, 2)
        module[1].weight.data, module[1].bias.data, module[0].bias.data = torch.ones(3), torch.ones(3), torch.ones(3)
        assert file not in {mapped.path for mapped in psutil.Process().memory_maps()}  # so trained ones are copies
    FlatModel(module).parameters.fill_(9.0)
    assert torch.equal(torch.load(file, weights_only=True)["3.weight"], source[3].weight)


def test_a_file_may_have_a_part_of_the_names_with_a_prefix(tmp_path):
    """A file of the layer alone, for `0.`; the others keep the seed's weights."""
    layer = nn.Linear(2, 3)
    torch.save(layer.state_dict(), tmp_path / "layer.pt")
    module, plain = built(prefix="0.", weights=str(tmp_path / "layer.pt")), built()
    assert torch.equal(module[0].weight, layer.weight)
    assert torch.equal(module[3].weight, plain[3].weight)
    with pytest.raises(ConfigError, match=r"^model.prefix: found 'O.', allowed: the start of names such as 0.weight"):
        built(prefix="O.", weights=str(tmp_path / "layer.pt"))


def test_trained_parameters_may_be_absent_where_others_are_frozen(tmp_path):
    source, file = saved(tmp_path)
    state = torch.load(file, weights_only=True)
    del state["3.weight"], state["3.bias"]
    torch.save(state, file)
    module = built(freeze=["0.*", "1.*"], weights=file)
    assert torch.equal(module[0].weight, source[0].weight)
    assert torch.equal(module[3].weight, built()[3].weight)
    state.pop("0.weight")
    torch.save(state, file)
    with pytest.raises(ConfigError, match=r"does not fit the model: not in the file: 0.weight$"):
        built(freeze=["0.*", "1.*"], weights=file)


LORA = {"where": ["0"], "rank": 2}


def test_adapters_are_trained_with_the_head_and_the_rest_stays_in_the_file(tmp_path):
    """A 2x2 and B 3x2 of layer 0, and the head's 8: 18 numbers. BatchNorm is frozen, too. The output is the file's."""
    source, file = saved(tmp_path)
    module = built(adapters=LORA, weights=file)
    model = FlatModel(module)
    assert [len(vector) for vector in model.vectors] == [4 + 6 + 8, 0, 0]
    assert [*model.layout] == ["0.lora_a.weight", "0.lora_b.weight", "3.weight", "3.bias"]
    x = torch.randn(4, 2)
    assert torch.equal(module.eval()(x), source.eval()(x))
    if sys.platform == "linux":
        assert file in {mapped.path for mapped in psutil.Process().memory_maps()}
    assert not torch.equal(module[0].lora_a.weight, built(adapters=LORA, weights=file, seed=1)[0].lora_a.weight)
    plain = built(adapters=LORA)
    assert torch.equal(plain[0].base.weight, built()[0].weight)  # A is drawn from a separate stream


def test_a_head_may_keep_its_weights_and_is_then_not_sent(tmp_path):
    """A 2x2 and B 3x2: 10 numbers. A star leaves the head out. Without a trained head `find_head` has none."""
    source, file = saved(tmp_path)
    module = built(adapters={"where": ["*"], "rank": 2, "head": False}, weights=file)
    assert [*FlatModel(module).layout] == ["0.lora_a.weight", "0.lora_b.weight"]
    assert torch.equal(module[3].weight, source[3].weight)
    assert find_head(module, torch.zeros(2, 2)) == ()
    assert torch.equal(module[0].lora_a.weight, built(adapters=LORA, weights=file)[0].lora_a.weight)


def test_dropout_of_what_a_receives():
    """With p = 1/2 each of A's inputs is 0 or doubled. In evaluation, and at the base, they stay."""
    layer = built(adapters={**LORA, "dropout": 0.5})[0]
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(1.0)
    x = torch.ones(400, 2)
    assert layer.eval()(x).unique().tolist() == [1 + 1 + 1 + 2 * 2]  # bias, two inputs, and B A x of rank 2
    assert layer.train()(x).unique().tolist() == [3.0, 3 + 2 * 2.0, 3 + 2 * 4.0]


def test_parts_of_adapters_may_be_frozen(tmp_path):
    """FFA-LoRA trains B and the head."""
    module = built(adapters=LORA, freeze=["*.lora_a.*"], weights=saved(tmp_path)[1])
    assert [*FlatModel(module).layout] == ["0.lora_b.weight", "3.weight", "3.bias"]


@pytest.mark.parametrize(
    ("adapters", "words"),
    [
        ({"where": ["qkv"]}, "model.adapters.where: unknown layer 'qkv'"),
        ({"where": []}, "model.adapters.where"),
        ({"where": ["0"], "kind": "prefix"}, "model.adapters.kind"),
        ({"where": ["0"], "dropout": 1.0}, "model.adapters.dropout: found 1.0, allowed: a number >= 0 and < 1"),
        ({"where": ["0"], "rank": 0, "head": False}, "model.adapters.head: found false with rank 0, which leaves"),
    ],
)
def test_adapters_that_fit_nothing_are_one_line(adapters, words):
    with pytest.raises(ConfigError, match=f"^{words}"):
        built(adapters=adapters)
