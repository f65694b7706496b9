"""A vector for each class: hashed from its name, or read from a file."""

from hashlib import blake2b

import numpy as np
import pytest

from raysim.algorithms.parts.label_embeddings import (
    embed_names,
    hashed_embedding,
    name_classes,
    read_embeddings,
)
from raysim.system.errors import ConfigError


def test_a_name_is_the_sum_of_its_pieces():
    """A letter between spaces has three pieces of 2 to 4 letters; each adds a sign at the place of its hash."""
    vector = np.zeros(16)
    for piece in (" a", "a ", " a "):
        number = int.from_bytes(blake2b(piece.encode(), digest_size=8).digest(), "little")
        vector[(number // 2) % 16] += 2 * (number % 2) - 1
    np.testing.assert_allclose(hashed_embedding("A ", 16), vector / np.linalg.norm(vector), rtol=1e-6)


def test_names_with_common_pieces_are_near():
    oak, maple, pine, tank = (hashed_embedding(name, 512) for name in ("oak_tree", "maple_tree", "pine_tree", "tank"))
    for vector in (oak, maple, pine, tank):
        assert np.linalg.norm(vector) == pytest.approx(1, rel=1e-6)
    assert min(oak @ maple, maple @ pine) > 0.4
    assert abs(oak @ tank) < 0.2


def test_vectors_are_the_same_everywhere():
    """The name 3 has three pieces, here at three of 8 places, so sqrt(8 / 3) at each for a mean square of 1.

    Another release has the same vectors.
    """
    found = embed_names(["3", "oak_tree"], 8, 2.0).numpy()
    np.testing.assert_allclose(np.square(found).mean(1), [4, 4], rtol=1e-6)
    np.testing.assert_allclose(found[0], np.array([1, 1, 0, 0, -1, 0, 0, 0]) * 2 * np.sqrt(8 / 3), rtol=1e-6)


def test_classes_without_names_have_numbers():
    assert name_classes(None, 2) == ["0", "1"]
    assert name_classes(("cat", "dog"), 2) == ["cat", "dog"]


def test_rows_of_a_file_are_found_by_name(tmp_path):
    path = str(tmp_path / "vectors.npz")
    np.savez(path, embeddings=np.arange(6.0).reshape(3, 2), names=["dog", "cat", "cow"])
    assert read_embeddings(path, 2, ["cat", "dog"]).tolist() == [[2, 3], [0, 1]]
    assert read_embeddings(path, 2).shape == (3, 2)  # names are not known yet


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"embeddings": np.ones((3, 2))}, "holds 3 vectors, allowed: 2, one for each class"),
        ({"vectors": np.ones((2, 2))}, "holds the arrays vectors, allowed: an .npz file with the array embeddings"),
        ({"embeddings": np.ones(2)}, r"holds float64 \[2\], allowed: "),
        ({"embeddings": np.ones((2, 2)), "names": ["cat", "cow"]}, "has no vector for the class dog, allowed: "),
        ({"embeddings": np.ones((2, 2)), "names": ["cat", "cow", "dog"]}, "2 vectors and 3 names, allowed: one name "),
        ({"embeddings": np.array([[1, np.nan], [0, 0]])}, "not finite, allowed: finite ones"),
        ({"embeddings": np.array([["a"], ["b"]], object)}, "cannot be read"),
    ],
)
def test_other_files_are_refused(tmp_path, arrays, words):
    path = str(tmp_path / "vectors.npz")
    np.savez(path, **arrays)
    with pytest.raises(ConfigError, match=words) as refused:
        read_embeddings(path, 2, ["cat", "dog"])
    assert "\n" not in str(refused.value)
