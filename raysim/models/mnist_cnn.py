"""The 21,840-parameter CNN for 28 x 28 images that Fed-A-GEM's code trains (PyTorch's old MNIST example)."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class MnistCnn(nn.Module):
    """conv5x5(10) - pool - ReLU - conv5x5(20) - dropout - pool - ReLU - fc(50) - ReLU - dropout - fc(classes)."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 10, 5)
        self.conv2 = nn.Conv2d(10, 20, 5)
        self.dropout2d = nn.Dropout2d()
        self.fc1 = nn.Linear(320, 50)
        self.dropout = nn.Dropout()
        self.fc2 = nn.Linear(50, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits [B, classes] of images [B, channels, 28, 28]."""
        x = functional.relu(functional.max_pool2d(self.conv1(x), 2))
        x = functional.relu(functional.max_pool2d(self.dropout2d(self.conv2(x)), 2))
        x = self.dropout(functional.relu(self.fc1(torch.flatten(x, 1))))
        logits: Tensor = self.fc2(x)
        return logits


def mnist_cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """The 21,840-parameter CNN with dropout for 28 x 28 images (Fed-A-GEM's code; Dai et al., 2024)."""
    return MnistCnn(shape[0], classes)
