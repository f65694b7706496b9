"""The network for tables: numbers and embeddings, one after the other, against NumPy."""

from typing import Any

import numpy as np
import pytest
import torch

from raysim.models.building import build_model, check_model
from raysim.system.errors import ConfigError

MODEL = {"name": "table_mlp", "hidden": [5], "width": 2}


def test_it_is_an_mlp_of_the_numbers_and_the_vectors_of_the_ids(tiny: Any) -> None:
    """Two numbers, and ids of 3 and of 4: x = [n1, n2, E1[id1], E2[id2]], and W2 relu(W1 x + b1) + b2."""
    module = build_model(tiny(model=MODEL), (4,), 3, (3, 4)).double().eval()
    e1, e2, w1, b1, w2, b2 = (parameter.detach().numpy() for parameter in module.parameters())
    assert [part.shape for part in (e1, e2, w1, w2)] == [(3, 2), (4, 2), (5, 6), (3, 5)]
    rows = np.array([[0.5, -1.0, 2, 3], [2.0, 0.1, 0, 0]])
    for row in rows:
        x = np.concatenate([row[:2], e1[int(row[2])], e2[int(row[3])]])
        expected = w2 @ np.maximum(w1 @ x + b1, 0) + b2
        np.testing.assert_allclose(module(torch.tensor(row[None])).detach().numpy()[0], expected, rtol=1e-12)


def test_without_categories_it_is_the_mlp(tiny: Any) -> None:
    one = build_model(tiny(model=MODEL), (4,), 3)
    other = build_model(tiny(model={"name": "mlp", "hidden": [5]}), (4,), 3)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_a_table_of_categories_alone_is_tried(tiny: Any) -> None:
    model = check_model(tiny(model=MODEL), (2,), 3, (3, 4))
    assert len(model.parameters) == 3 * 2 + 4 * 2 + 4 * 5 + 5 + 5 * 3 + 3


@pytest.mark.parametrize(
    ("shape", "ids", "words"),
    [
        (
            (1, 8, 8),
            None,
            r"model.name: found samples of shape \(1, 8, 8\) and 0 categories, allowed for table_mlp: rows",
        ),
        ((1,), (3, 4), r"found samples of shape \(1,\) and 2 categories"),
    ],
)
def test_what_is_no_table_is_refused(tiny: Any, shape: Any, ids: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_model(tiny(model=MODEL), shape, 3, ids)
