"""Files in the format safetensors, as Hugging Face publishes weights, read and written without its package.

A file is the length of a header in 8 bytes, the header in JSON, and the tensors' bytes. The header has the type, the
shape and the place of each tensor. The places follow one another without a gap, from the first byte to the last.
"""

import json
from collections.abc import Mapping
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, TypeGuard

import torch
from torch import Tensor

from raysim.system.files import write_whole

TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
LONGEST_HEADER = 100_000_000  # bytes, the format's own limit
MOST_SIDES = 64  # of a tensor's shape
ALIGNMENT = 8  # bytes to a multiple of which the header is filled, so that no tensor needs a copy
Entry = tuple[str, torch.dtype, list[int], int, int]
"""A tensor's name, type, shape, and the first and the last place of its bytes."""


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file by name. They are mapped from the file, so the processes of a node have them once.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is damaged, or has a type that torch's tensors here do not have.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, LONGEST_HEADER):
            raise ValueError("its header is longer than the file")
        entries = _read_header(file.read(length))
    _check_places(entries, size - 8 - length)
    whole = torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8)[8 + length :]
    return {name: _view(whole[begin:end], kind, shape) for name, kind, shape, begin, end in entries}


def _read_header(text: bytes) -> list[Entry]:
    """Return the entries of a header. Raises ValueError."""
    try:
        header = json.loads(text)
    except RecursionError as error:
        raise ValueError("its header is nested too deeply") from error
    if not isinstance(header, dict):
        raise ValueError("its header is no JSON object")
    return [_read_entry(name, entry) for name, entry in header.items() if name != "__metadata__"]


def _read_entry(name: str, entry: Any) -> Entry:
    """Return the entry of a tensor. Raises ValueError."""
    if not isinstance(entry, dict) or not isinstance(kind := entry.get("dtype"), str) or kind not in TYPES:
        raise ValueError(f"the entry of {name} is no tensor of a known type ({', '.join(TYPES)})")
    shape, places = entry.get("shape"), entry.get("data_offsets")
    if not _are_sizes(shape) or not _are_sizes(places) or len(places) != 2:
        raise ValueError(f"the entry of {name} has no shape and two places of whole numbers")
    begin, end = places
    if end - begin != prod(shape) * TYPES[kind].itemsize:
        raise ValueError(f"the bytes of {name} do not fit its shape")
    return name, TYPES[kind], shape, begin, end


def _are_sizes(values: object) -> TypeGuard[list[int]]:
    """Return whether values are a short list of whole numbers from 0. true and false are none."""
    if not isinstance(values, list) or len(values) > MOST_SIDES:
        return False
    return all(type(value) is int and 0 <= value < 2**63 for value in values)


def _check_places(entries: list[Entry], nbytes: int) -> None:
    """Refuse tensors that share bytes, or that leave bytes out. Raises ValueError."""
    places = sorted((begin, end, name) for name, _, _, begin, end in entries)
    for (_, end, name), (begin, _, other) in pairwise([(0, 0, "the header"), *places]):
        if begin != end:
            raise ValueError(f"{other} begins at byte {begin:,}, allowed: {end:,}, where {name} ends")
    last = places[-1][1] if places else 0
    if last != nbytes:
        raise ValueError(f"its tensors end at byte {last:,}, but the file has {nbytes:,}: it is cut off or damaged")


def _view(part: Tensor, kind: torch.dtype, shape: list[int]) -> Tensor:
    if part.storage_offset() % kind.itemsize:  # torch only views aligned bytes as another type
        part = part.clone()
    return part.view(kind).view(shape)


def write_safetensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors by name. Widest types come first, so that each tensor is aligned in the file.

    Raises:
        OSError: the file could not be written.
    """
    names, header, place = {kind: name for name, kind in TYPES.items()}, dict[str, Any](), 0
    ordered = sorted(tensors.items(), key=lambda entry: (-entry[1].element_size(), entry[0]))
    for name, tensor in ordered:
        begin, place = place, place + tensor.nbytes
        header[name] = {"dtype": names[tensor.dtype], "shape": [*tensor.shape], "data_offsets": [begin, place]}
    text = json.dumps({"__metadata__": {"format": "pt"}} | header).encode()  # transformers asks for this format
    text += b" " * (-len(text) % ALIGNMENT)
    parts = [one.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() for _, one in ordered]
    write_whole(path, b"".join([len(text).to_bytes(8, "little"), text, *parts]))
