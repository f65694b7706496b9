"""Files of weights as people have them: wrapped, of other types, damaged. What a file changed is said."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from raysim.models.building import check_model
from raysim.models.flat import FlatModel
from raysim.models.weight_wrappers import strip_prefixes
from raysim.system.errors import ConfigError

MLP = {"name": "mlp", "hidden": [3]}
STATE = {
    "1.weight": torch.arange(18.0).reshape(3, 6),
    "1.bias": torch.ones(3),
    "3.weight": torch.arange(12.0).reshape(4, 3),
    "3.bias": torch.zeros(4),
}
Checked = Callable[..., FlatModel]


@pytest.fixture
def checked(tiny: Any, tmp_path: Path) -> Checked:
    """A function: an mlp of 6 inputs and 4 classes that starts from this content of a file."""

    def check(content: object, classes: int = 4, **model: Any) -> FlatModel:
        path = tmp_path / "w.pt"
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            torch.save(content, path)
        return check_model(tiny(model=MLP | {"weights": str(path)} | model), (6,), classes)

    return check


@pytest.fixture
def refused(checked: Checked) -> Callable[..., str]:
    """A function: the error of `checked`, from the file's name on."""

    def check(content: object, **model: Any) -> str:
        with pytest.raises(ConfigError) as error:
            checked(content, **model)
        return str(error.value).partition("w.pt ")[2]

    return check


def named(prefix: str) -> dict[str, Tensor]:
    return {f"{prefix}{name}": tensor for name, tensor in STATE.items()}


@pytest.mark.parametrize(
    ("content", "notes"),
    [
        (STATE, []),
        ({"state_dict": STATE, "epoch": 3}, ["those of the key 'state_dict' of the file"]),
        (
            {"model": STATE, "optimizer": {"state": {}}, "ema": 0.9},
            ["those of the key 'model' of the file"],
        ),
        ({"model_state_dict": STATE, "loss": 0.5}, ["those of the key 'model_state_dict' of the file"]),
        (named("module."), ["left out 'module.' in the file's names"]),
        (named("_orig_mod."), ["left out '_orig_mod.' in the file's names"]),
        (
            named("module._orig_mod."),
            ["left out '_orig_mod.' in the file's names", "left out 'module.' in the file's names"],
        ),
        (
            {name.replace("1.", "1._orig_mod."): tensor for name, tensor in STATE.items()},
            ["left out '_orig_mod.' in the file's names"],
        ),
        (
            {"state_dict": named("model."), "epoch": 3},
            ["those of the key 'state_dict' of the file", "left out 'model.' in the file's names"],
        ),
        ({name: tensor.double() for name, tensor in STATE.items()}, ["float64 in the file, float32 in the model"]),
        (
            {name: tensor.bfloat16() for name, tensor in STATE.items()},
            ["bfloat16 in the file, float32 in the model"],
        ),
    ],
)
def test_what_is_unambiguous_is_read_and_said(checked: Checked, content: object, notes: list[str]) -> None:
    """The numbers are whole and small, so every floating type has them."""
    model = checked(content)
    assert {name: tensor.tolist() for name, tensor in model.module.state_dict().items()} == {
        name: tensor.tolist() for name, tensor in STATE.items()
    }
    assert model.notes == tuple(f"weights: {note}" for note in notes)


def test_two_states_in_a_file_are_ambiguous(refused: Callable[..., str]) -> None:
    assert refused({"model": STATE, "state_dict": STATE}).startswith("holds a dict with the keys model, state_dict; ")


def test_a_prefix_of_the_models_own_names_stays() -> None:
    """A name without the prefix, or a model with it, makes it a part of the names."""
    x = torch.ones(1)
    for state, names in (
        ({"module.a": x, "b": x}, ["a", "b"]),
        ({"module.a": x}, ["module.a"]),
        ({"module.": x}, ["a"]),
        ({"a._orig_mod.b": x, "a.b": x}, ["a.b"]),
    ):
        assert strip_prefixes(state, names) == (state, [])


@pytest.mark.parametrize(
    "dtype", [torch.int8, torch.int32, torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn]
)
def test_codes_of_numbers_are_refused(refused: Callable[..., str], dtype: torch.dtype) -> None:
    said = refused(STATE | {"1.bias": STATE["1.bias"].to(dtype)})
    kind = str(dtype).removeprefix("torch.")
    assert said == f"does not fit the model: of another type: 1.bias {kind} for float32"


def test_counts_are_of_their_own_type(tiny: Any, tmp_path: Path) -> None:
    """BatchNorm's count of batches is int64."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 4))
    state = model.state_dict()
    for dtype, fits in ((torch.int64, True), (torch.float32, False)):
        torch.save(state | {"2.num_batches_tracked": torch.tensor(3, dtype=dtype)}, tmp_path / "w.pt")
        config = tiny(model=MLP | {"batch_norm": True, "weights": str(tmp_path / "w.pt")})
        if fits:
            assert check_model(config, (6,), 4).integers.tolist() == [3]
        else:
            with pytest.raises(ConfigError, match=r"of another type: 2\.num_batches_tracked float32 for int64"):
                check_model(config, (6,), 4)


def test_tensors_that_are_not_dense_are_refused(refused: Callable[..., str]) -> None:
    said = refused(STATE | {"1.bias": STATE["1.bias"].to_sparse()})
    assert said.startswith("holds sparse or quantized tensors: 1.bias; allowed: a state_dict")


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00", "is a pointer of Git LFS and not the weights"),
        (b"\n<!doctype html><html>", "is a web page and not the weights"),
        (b"PK\x03\x04" + bytes(40), "is cut off"),
    ],
)
def test_files_without_weights_are_named(refused: Callable[..., str], content: bytes, what: str) -> None:
    assert refused(content).startswith(what)


def test_an_address_is_no_path(checked: Checked) -> None:
    with pytest.raises(ConfigError, match=r"^model.weights: found the address https://x.org/w.pt; download it and"):
        checked(STATE, weights="https://x.org/w.pt")


def test_what_keeps_its_initial_values_is_said(checked: Checked) -> None:
    """A head of another size, and trained weights that are not in the file where others are frozen."""
    assert checked(STATE, classes=9).notes == (
        "weights: initial values where the file has none that fit: 3.weight, 3.bias",
    )
    body = {name: tensor for name, tensor in STATE.items() if name.startswith("1.")}
    assert checked(body, freeze=["1.*"]).notes == (
        "weights: initial values where the file has none that fit: 3.weight, 3.bias",
    )


def test_what_a_vision_transformer_changes_is_said(tiny: Any, tmp_path: Path) -> None:
    """A grid of 4 x 4 patches and a class token has 17 position codes, one of 2 x 2 has 5."""
    small = {"name": "vit", "width": 8, "depth": 1, "heads": 2, "patch": 2, "input_size": None}
    file = check_model(tiny(model=small), (3, 8, 8), 4).module.state_dict()
    torch.save(file | {"pooler.dense.weight": torch.ones(2)}, tmp_path / "w.pt")
    model = check_model(tiny(model=small | {"weights": str(tmp_path / "w.pt")}), (1, 4, 4), 4)
    assert model.notes == (
        "weights: left out of the file: pooler.dense.weight",
        "weights: position codes [1, 17, 8] of the file became [1, 5, 8]",
        "weights: the weights of patches were summed over the channels, for gray images",
    )


@pytest.mark.parametrize(
    ("model", "numbers"),
    [
        ({"name": "mlp", "hidden": [10**12]}, "11,000,000,000,004 numbers, which takes"),
        (
            {"name": "vit", "width": 10**6, "heads": 1, "depth": 1, "input_size": None, "patch": 2},
            "numbers, which takes",
        ),
    ],
)
def test_a_model_is_measured_before_it_takes_memory(tiny: Any, model: dict[str, Any], numbers: str) -> None:
    """An mlp of 6 inputs, n hidden units and 4 classes has (6 + 1) n + (n + 1) 4 = 11 n + 4 numbers."""
    shape = (6,) if model["name"] == "mlp" else (1, 4, 4)
    with pytest.raises(ConfigError, match=f"^model: found {model['name']} of .*{numbers}"):
        check_model(tiny(model=model), shape, 4)


def test_an_adapters_rank_is_bounded_by_the_layers(tiny: Any) -> None:
    """The hidden layer has the sides 6 and 3, so that its weight has at most rank 3."""
    adapted = {"name": "mlp", "hidden": [3], "adapters": {"rank": 3, "where": ["*"]}}
    check_model(tiny(model=adapted), (6,), 4)
    adapted["adapters"] = {"rank": 100_000_000, "where": ["*"]}
    said = (
        "model.adapters.rank: found 100,000,000, allowed: 0 to 3, the smaller side of 1, which no adapted layer exceeds"
    )
    with pytest.raises(ConfigError) as error:
        check_model(tiny(model=adapted), (6,), 4)
    assert str(error.value) == said
