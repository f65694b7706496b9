"""Files in the format safetensors, written here byte by byte: header length, header, numbers."""

import copy
import json
import random
import struct

import numpy as np
import pytest
import torch

from raysim.models.building import build_model
from raysim.models.safetensors_file import read_safetensors
from raysim.system.errors import ConfigError

NUMBERS = struct.pack("<6f", 1, 2, 3, 4, 5, 6) + struct.pack("<2q", -7, 8) + b"\x01\x00\x01"
ENTRIES = {
    "__metadata__": {"format": "pt"},
    "w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "n": {"dtype": "I64", "shape": [2], "data_offsets": [24, 40]},
    "b": {"dtype": "BOOL", "shape": [3], "data_offsets": [40, 43]},
    "empty": {"dtype": "F32", "shape": [0, 4], "data_offsets": [43, 43]},
}


@pytest.fixture
def written(tmp_path):
    """A function: a file with this header and these bytes. `pad` spaces end the header."""

    def write(entries=ENTRIES, numbers=NUMBERS, pad=0):
        text = json.dumps(entries).encode() + b" " * pad
        path = tmp_path / "model.safetensors"
        path.write_bytes(struct.pack("<Q", len(text)) + text + numbers)
        return path

    return write


@pytest.mark.parametrize("pad", range(8))
def test_the_tensors_of_a_file(written, pad):
    """The header's length decides whether numbers are aligned in the file."""
    tensors = read_safetensors(written(pad=pad))
    assert {name: value.tolist() for name, value in tensors.items()} == {
        "w": [[1, 2, 3], [4, 5, 6]], "n": [-7, 8], "b": [True, False, True], "empty": []
    }  # fmt: skip
    assert [value.dtype for value in tensors.values()] == [torch.float32, torch.int64, torch.bool, torch.float32]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data_offsets": [0, 20]}, "the bytes of w do not fit its shape"),
        ({"data_offsets": [24, 48]}, "n begins at byte 24, allowed: 0, where the header ends"),
        ({"data_offsets": [0, 16], "shape": [2, 2]}, "n begins at byte 24, allowed: 16, where w ends"),
        ({"data_offsets": [-24, 0]}, "the entry of w has no shape and two places of whole numbers"),
        ({"data_offsets": [0.0, 24.0]}, "the entry of w has no shape and two places of whole numbers"),
        ({"data_offsets": [0, 24, 24]}, "the entry of w has no shape and two places of whole numbers"),
        ({"shape": ["2", "3"]}, "the entry of w has no shape and two places of whole numbers"),
        ({"shape": [True, 6]}, "the entry of w has no shape and two places of whole numbers"),
        ({"shape": [2**62] * 65}, "the entry of w has no shape and two places of whole numbers"),
        ({"shape": [2**62, 2**62]}, "the bytes of w do not fit its shape"),
        ({"dtype": ["F32"]}, "the entry of w is no tensor of a known type"),
        ({"dtype": "F8_E4M3"}, "the entry of w is no tensor of a known type"),
        ({"shape": None}, "the entry of w has no shape and two places of whole numbers"),
    ],
)
def test_damaged_entries(written, change, message):
    with pytest.raises(ValueError, match=message):
        read_safetensors(written(ENTRIES | {"w": ENTRIES["w"] | change}))


def test_tensors_have_all_bytes(written):
    """The numbers end at byte 43."""
    for numbers, found in ((NUMBERS + b"\0", 44), (NUMBERS[:-1], 42)):
        with pytest.raises(ValueError, match=f"its tensors end at byte 43, but the file has {found}"):
            read_safetensors(written(numbers=numbers))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"[" * 200_000, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b"[1]", "is no JSON object"),
        (b'{"w": 1}', "the entry of w is no tensor"),
        (b'{"w": []}', "the entry of w is no tensor"),
        (b"\xff\xfe", "."),
        (b"", "."),
        (b'{"w": {"dtype": "F32", "shape": [' + b"9" * 5000 + b'], "data_offsets": [0, 0]}}', "."),
    ],
)
def test_damaged_headers(tmp_path, text, message):
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    with pytest.raises(ValueError, match=message):
        read_safetensors(path)


def test_a_models_weights(written, tiny):
    """A linear model for 3 features and 2 classes starts from the file. A damaged file is a ConfigError."""
    weight, bias = np.arange(6, dtype="<f4"), np.ones(2, "<f4")
    entries = {
        "1.weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "1.bias": {"dtype": "F32", "shape": [2], "data_offsets": [24, 32]},
    }
    path = written(entries, weight.tobytes() + bias.tobytes())
    config = tiny(model={"name": "mlp", "hidden": [], "weights": str(path)})
    module = build_model(config, (3,), 2)
    assert [p.tolist() for p in module.parameters()] == [[[0, 1, 2], [3, 4, 5]], [1, 1]]
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(
        ConfigError, match=r"^model.weights: .*model.safetensors cannot be read: .*longer than the file"
    ):
        build_model(config, (3,), 2)


@pytest.mark.parametrize("cases", [200, pytest.param(2_000, marks=pytest.mark.soak)])
def test_random_headers_are_read_or_refused(tmp_path, cases):
    """Values of a good header are replaced, dropped or repeated. No tensor has bytes beyond the file's."""
    draws = random.Random(0)
    odd = [None, True, -1, 0, 1.5, 2**70, "F32", "x", [], [[]], [1, 2], {}, {"dtype": "F32"}, float("nan"), "\ud800"]
    path, read = tmp_path / "model.safetensors", 0
    for _ in range(cases):
        entries = json.loads(json.dumps(ENTRIES))
        for _ in range(draws.randint(0, 3)):
            name = draws.choice([*entries])
            place = entries[name] if isinstance(entries[name], dict) and draws.random() < 0.8 else entries
            key = draws.choice([*place, "dtype"])
            if draws.random() < 0.2:
                place.pop(key, None)
            elif isinstance(place.get(key), list) and place[key] and draws.random() < 0.6:
                place[key][draws.randrange(len(place[key]))] = copy.deepcopy(draws.choice([*odd, 3, 16, 24, 40, 43]))
            else:
                place[key] = copy.deepcopy(draws.choice(odd))
            if not entries:
                break
        text = json.dumps(entries).encode()
        text = text[: draws.randint(0, len(text))] if draws.random() < 0.1 else text
        path.write_bytes(struct.pack("<Q", len(text)) + text + NUMBERS)
        try:
            tensors = read_safetensors(path)
        except ValueError:
            continue
        read += 1
        assert sum(tensor.nbytes for tensor in tensors.values()) == len(NUMBERS)
    assert 0.05 * cases < read < 0.6 * cases
