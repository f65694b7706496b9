"""A bag of embeddings: a text is the mean of its tokens' vectors, in any order."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated

from annotated_types import Ge, MaxLen, doc
from torch import Tensor, nn

from raysim.models.inputs import PADDING_ID, expect_ids


class BagOfEmbeddings(nn.Module):
    """embedding - mean over the tokens - (linear - ReLU)* - linear."""

    def __init__(self, vocabulary: int, classes: int, width: int, hidden: Sequence[int]) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        layers = [part for sizes in pairwise([width, *hidden]) for part in (nn.Linear(*sizes), nn.ReLU())]
        self.hidden = nn.Sequential(*layers)
        self.head = nn.Linear([width, *hidden][-1], classes)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the logits [B, classes] of texts [B, L]."""
        logits: Tensor = self.head(self.hidden(mean_of_tokens(self.tokens(ids), ids)))
        return logits


def mean_of_tokens(x: Tensor, ids: Tensor) -> Tensor:
    """Return the mean [B, W] of the vectors [B, L, W], without padding ids [B, L]; zeros if all are padding."""
    is_token = (ids != PADDING_ID).unsqueeze(-1)
    return (x * is_token).sum(1) / is_token.sum(1).clamp(min=1)


def bag_of_embeddings(
    shape: tuple[int, ...],
    classes: int,
    *,
    width: Annotated[int, Ge(1), doc("numbers of a token's vector")] = 64,
    hidden: Annotated[
        Sequence[Annotated[int, Ge(1)]], MaxLen(1000), doc("the widths of hidden layers between the mean and the head")
    ] = (),
    vocabulary: Annotated[
        Annotated[int, Ge(1)] | None, doc("rows of the table of vectors; null is as many as the data have ids")
    ] = None,
) -> nn.Module:
    """The mean of the tokens' vectors and a linear layer, for texts; keys width, hidden (Joulin et al., EACL 2017)."""
    _, ids = expect_ids("bag_of_embeddings", shape, vocabulary)
    return BagOfEmbeddings(ids, classes, width, hidden)
