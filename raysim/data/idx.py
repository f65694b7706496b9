"""The idx file format of MNIST and its relatives, plain or gzipped.

Source: the format's description at http://yann.lecun.com/exdb/mnist/ (two zero bytes, a type code, the number of
dimensions, each dimension as a big-endian uint32, the values).
"""

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from raysim.system.errors import ConfigError

UINT8 = 0x08


def find_idx(folder: Path, name: str) -> Path | None:
    """Return the file `name` in `folder`, or else `name.gz`, or None where neither exists."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def read_idx(path: Path) -> npt.NDArray[np.uint8]:
    """Return the array (uint8, read-only) in the idx file at `path`; a file that ends in .gz is unzipped.

    Raises:
        ConfigError: the file cannot be read, is no idx file of uint8, or its length is not what its header says.
    """
    again = "delete it and download it again"
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"{path}: cannot be read ({error}); {again}") from error
    if len(content) < 4 or content[:3] != bytes([0, 0, UINT8]):
        raise ConfigError(f"{path}: not an idx file of uint8 values (it starts with {content[:4].hex()}); {again}")
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise ConfigError(f"{path}: the file ends inside its header; {again}")
    shape = struct.unpack(f">{content[3]}I", content[4:start])
    if len(content) - start != math.prod(shape):
        raise ConfigError(
            f"{path}: holds {len(content) - start} values where its header says {math.prod(shape)}; {again}"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
