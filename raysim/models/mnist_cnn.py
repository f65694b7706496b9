"""The 21,840-parameter CNN for 28 x 28 images that Fed-A-GEM's code trains (PyTorch's old MNIST example)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from raysim.models.inputs import require_images
from raysim.models.stages import Stage, StagedNetwork


class MnistCnn(StagedNetwork):
    """conv5x5(10) - pool - ReLU - conv5x5(20) - dropout - pool - ReLU - fc(50) - ReLU - dropout - fc(classes)."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 10, 5)
        self.conv2 = nn.Conv2d(10, 20, 5)
        self.dropout2d = nn.Dropout2d()
        self.fc1 = nn.Linear(320, 50)
        self.dropout = nn.Dropout()
        self.fc2 = nn.Linear(50, classes)

    def stages(self) -> Sequence[Stage]:
        """Return the stages, which begin before each layer and before the dropouts, and the last one with a dropout."""
        return [
            Stage(lambda x: functional.relu(functional.max_pool2d(self.conv1(x), 2)), (self.conv1,)),
            Stage(self.conv2, (self.conv2,)),
            Stage(self._flatten, (self.dropout2d,)),
            Stage(lambda x: functional.relu(self.fc1(x)), (self.fc1,)),
            Stage(lambda x: self.fc2(self.dropout(x)), (self.dropout, self.fc2)),
        ]

    def _flatten(self, x: Tensor) -> Tensor:
        """Return the inputs [B, 320] of the first linear layer."""
        return torch.flatten(functional.relu(functional.max_pool2d(self.dropout2d(x), 2)), 1)


def mnist_cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """The 21,840-parameter CNN with dropout for 28 x 28 images (Fed-A-GEM's code; Dai et al., 2024)."""
    require_images("mnist_cnn", shape, only=28)
    return MnistCnn(shape[0], classes)
