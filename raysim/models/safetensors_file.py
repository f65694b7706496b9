"""Files in the format safetensors, as Hugging Face publishes weights, read without its package.

A file is the length of a header in 8 bytes, the header in JSON, and the tensors' bytes. The header has the type, the
shape and the place of each tensor.
"""

import json
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

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
        header = json.loads(file.read(length))
    if not isinstance(header, dict):
        raise ValueError("its header is no JSON object")
    whole = torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8)[8 + length :]
    return {name: _tensor(whole, name, entry) for name, entry in header.items() if name != "__metadata__"}


def _tensor(whole: Tensor, name: str, entry: Any) -> Tensor:
    try:
        kind, shape, (begin, end) = TYPES[entry["dtype"]], [int(n) for n in entry["shape"]], entry["data_offsets"]
        fits = 0 <= begin <= end <= len(whole) and end - begin == prod(shape) * kind.itemsize
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the entry of {name} is no tensor of a known type") from error
    if not fits:
        raise ValueError(f"the bytes of {name} do not fit its shape")
    part = whole[begin:end]
    if part.storage_offset() % kind.itemsize:  # torch only views aligned bytes as another type
        part = part.clone()
    return part.view(kind).view(shape)
