"""A vector for each class: from a file, a text encoder, or the letters of the class's name."""

import math
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from raysim.models.hugging_face.text_encoder import encode_texts, encoder_files
from raysim.system.errors import ConfigError, describe_error
from raysim.system.files import open_regular
from raysim.system.home import expand
from raysim.system.importing import import_extra

GRAMS = (2, 3, 4)  # the lengths of the pieces of a name


def hashed_embedding(text: str, dimension: int) -> npt.NDArray[np.float32]:
    """Return a vector [dimension] of length 1 for a name: names with common pieces are near each other.

    Every piece of 2 to 4 letters of the name, in lower case between spaces, adds 1 or -1 to one entry. Its BLAKE2b
    hash says which (feature hashing: Weinberger et al., ICML 2009). The vector depends on nothing else.
    """
    padded, vector = f" {text.strip().lower()} ", np.zeros(dimension)
    for length in GRAMS:
        for begin in range(len(padded) - length + 1):
            piece = padded[begin : begin + length].encode()
            number = int.from_bytes(blake2b(piece, digest_size=8).digest(), "little")
            vector[(number >> 1) % dimension] += 1 if number & 1 else -1
    if not vector.any():  # all pieces cancel
        vector[0] = 1.0
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def name_classes(names: Sequence[str] | None, classes: int) -> list[str]:
    """Return the classes' names: the dataset's, or their numbers, without a word that would make all of them alike."""
    return [*map(str, range(classes))] if names is None else [*names]


def embed_names(names: Sequence[str], dimension: int, scale: float) -> Tensor:
    """Return the classes' vectors [C, dimension] from their names alone. `scale` is their entries' root mean square."""
    length = np.float32(scale * dimension**0.5)
    return torch.from_numpy(np.stack([hashed_embedding(name, dimension) for name in names]) * length)


def encode_names(names: Sequence[str], encoder: str, scale: float) -> Tensor:
    """Return the vectors [C, d] of the classes' names by a text encoder, with underscores read as spaces.

    Each vector gets the length at which the root mean square of its entries is `scale`.

    Raises:
        ConfigError: there is no such encoder, or the package transformers is not installed.
    """
    vectors = encode_texts("encoder", encoder, [name.replace("_", " ") for name in names])
    length = scale * math.sqrt(vectors.shape[1])
    return length * functional.normalize(vectors)


def read_embeddings(path: str, classes: int, names: Sequence[str] | None = None) -> Tensor:
    """Return the classes' vectors [C, d], float32, of an .npz file.

    The file has the array `embeddings` [C, d], with rows in the order of the classes. If it also has `names` [C], its
    rows are those of the classes with these names; `names` are the dataset's. None does not look at names.

    Raises:
        ConfigError: there is no such file or array, or it does not have a finite row for each class.
    """
    key, allowed = f"embeddings: {path}", "an .npz file with the array embeddings [classes, d] and, if wanted, names"
    path_of_file = expand("embeddings", path)
    try:
        with (
            open_regular(path_of_file) as file,
            np.load(file, allow_pickle=False) as arrays,
        ):
            found = {name: arrays[name] for name in arrays.files}
    except Exception as error:
        raise ConfigError(f"{key} cannot be read ({describe_error(error)}), allowed: {allowed}") from error
    rows = found.get("embeddings")
    if rows is None or rows.ndim != 2 or rows.dtype.kind not in "fiu":
        what = f"the arrays {', '.join(found) or '(none)'}" if rows is None else f"{rows.dtype} {[*rows.shape]}"
        raise ConfigError(f"{key} holds {what}, allowed: {allowed}")
    known = [str(name) for name in found.get("names", ())]
    if known and len(known) != len(rows):
        raise ConfigError(f"{key} holds {len(rows)} vectors and {len(known)} names, allowed: one name for each vector")
    if known and names is not None:
        if unknown := [name for name in names if name not in known]:
            raise ConfigError(f"{key} has no vector for the class {unknown[0]}, allowed: a name for each class")
        rows = rows[[known.index(name) for name in names]]
    if len(rows) != classes and (names is not None or not known):
        raise ConfigError(f"{key} holds {len(rows)} vectors, allowed: {classes}, one for each class")
    if not np.isfinite(rows).all():
        raise ConfigError(f"{key} holds vectors that are not finite, allowed: finite ones")
    return torch.from_numpy(rows.astype(np.float32))


def make_vectors(
    names: Sequence[str], embeddings: str | None, encoder: str | None, dimension: int, scale: float
) -> Tensor:
    """Return the vectors [C, d] of classes with these names: those of a file, of a text encoder, or hashed ones.

    Raises:
        ConfigError: see `read_embeddings` and `encode_names`.
    """
    if embeddings is not None:
        return read_embeddings(embeddings, len(names), names)
    if encoder is not None:
        return encode_names(names, encoder, scale)
    return embed_names(names, dimension, scale)


def unfit_vectors(classes: int, embeddings: str | None, encoder: str | None, names: Sequence[str] | None) -> str | None:
    """Return why there are no vectors for this number of classes, and what would work. None if there are.

    `names` are those of the config, if any.
    """
    if embeddings is not None and encoder is not None:
        return "found both embeddings and encoder, allowed: one of the two"
    if names is not None and len(names) != classes:
        return f"names: found {len(names)}, allowed: {classes}, one for each class"
    try:
        if embeddings is not None:
            read_embeddings(embeddings, classes)
        elif encoder is not None:
            encoder_files("encoder", encoder)
            import_extra("transformers", "transformers")
    except ConfigError as error:
        return str(error)
    return None
