"""LANDER's networks and the loss of its anchors: vectors of classes at both ends. Tran et al., CVPR 2024."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from raysim.algorithms.parts.synthesis import ImageDecoder
from raysim.models.layers import recorded_inputs

ROWS = 10  # of a batch, for each linear layer of the noisy layer


def anchor_loss(att: Tensor, vectors: Tensor, radius: float) -> Tensor:
    """Return max(0, mean (att - vectors)^2 - radius), L_LTE: one hinge on the mean over a batch [n, E]."""
    return (functional.mse_loss(att, vectors) - radius).relu()


def labels_in_turn(classes: int, batch: int) -> Tensor:
    """Return labels [batch]: all classes in order, as often as they fit, then uniform draws."""
    whole = batch // classes
    return torch.cat([torch.arange(classes).repeat(whole), torch.randint(classes, (batch - whole * classes,))])


class LabelGenerator(nn.Module):
    """Turns vectors of classes [n, E] into images: BatchNorm, the noisy layer, then TARGET's generator.

    The noisy layer has a linear layer for every 10 rows of the batch. Its weights are drawn anew for each batch, so
    rows of one class give different images.
    """

    def __init__(self, inputs: int, hidden: int, batch: int, decoder: ImageDecoder) -> None:
        super().__init__()
        groups = -(-batch // ROWS)
        self.norm = nn.BatchNorm1d(inputs)
        self.weight = nn.Parameter(torch.empty(groups, inputs, hidden))
        self.bias = nn.Parameter(torch.empty(groups, 1, hidden))
        self.decoder = decoder
        self.redraw()

    def redraw(self) -> None:
        """Draw the noisy layer: weights N(0, 1), biases 0."""
        nn.init.normal_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the images of vectors [n, E]; n is the batch of the constructor."""
        rows = functional.pad(self.norm(vectors), (0, 0, 0, len(self.weight) * ROWS - len(vectors)))
        noisy = torch.baddbmm(self.bias, rows.view(len(self.weight), ROWS, -1), self.weight)
        images: Tensor = self.decoder(noisy.flatten(0, 1)[: len(vectors)])
        return images


class WithAtt(nn.Module):
    """A network and att on its head's input. The output is the pair of the logits [n, classes] and att [n, E].

    Args:
        network: the network.
        head: the name of the weight of its head.
        att: the layer that reads what enters the head.
    """

    def __init__(self, network: nn.Module, head: str, att: nn.Module) -> None:
        super().__init__()
        self.network, self.att = network, att
        self.layer = {network.get_submodule(head.rpartition(".")[0]): head}

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits and att of a batch."""
        with recorded_inputs(self.layer) as recorded:
            logits = self.network(x)
        (features,) = recorded.popitem()[1]
        return logits, self.att(features)
