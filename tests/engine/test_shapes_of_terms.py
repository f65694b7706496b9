"""Terms of different shapes: torch would stretch a tensor of shape [1] to [3], and the sum would be wrong."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from raysim.api import ClientHalf, Method, Term
from raysim.system.errors import WrongResult


@dataclass(frozen=True, kw_only=True)
class Shapes(Method):
    """Client 0 sends `one` numbers, the others three."""

    one: int = 1
    replies: ClassVar = {"a": "mean"}

    class Client(ClientHalf):
        def finish(self, client, delta):
            return delta, {"a": Term(torch.zeros(3 if client.id else self.method.one))}


@pytest.mark.parametrize("places", [None, [[0], [1], [2]], [[0], [1, 2]]])
@pytest.mark.parametrize("one", [1, 2])
def test_terms_of_different_shapes_are_refused(tiny, simulate, places, one):
    words = r"Shapes\.a: found a term of shape \[[123]\], allowed: \[[123]\], which other clients sent"
    with pytest.raises(WrongResult, match=words):
        simulate(tiny(methods={f"{__name__}:Shapes": {"one": one}}), places=places)


def test_terms_of_the_same_shape_are_not(tiny, simulate):
    simulate(tiny(methods={f"{__name__}:Shapes": {"one": 3}}))
