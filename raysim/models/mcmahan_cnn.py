"""The CNN of the FedAvg paper: McMahan et al., AISTATS 2017, arXiv 1602.05629, section 3."""

from torch import nn

from raysim.models.inputs import require_images


def mcmahan_cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """The FedAvg paper's CNN: 5x5 convolutions of 32 and 64, fc 512; 1,663,370 parameters on MNIST (McMahan, 2017)."""
    require_images("mcmahan_cnn", shape, least=4)
    channels, height, width = shape
    return nn.Sequential(
        nn.Conv2d(channels, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * (height // 4) * (width // 4), 512),
        nn.ReLU(),
        nn.Linear(512, classes),
    )
