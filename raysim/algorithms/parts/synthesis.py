"""Images from a trained network alone: what TARGET and LANDER share.

A generator learns to make images that the network, the teacher, takes for samples of its classes. Their statistics at
the teacher's BatchNorm layers should be those that the layers kept in training (DeepInversion: Yin et al., CVPR 2020).
A student network learns from the images, and the generator then looks for images on which both differ (adversarial
distillation). The authors of TARGET and LANDER build on Fast-Meta-DFKD (Fang et al., AAAI 2022).
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional, init

from raysim.api import BatchStatistics, Client, FlatModel, Server, to_device
from raysim.data.transforms import DRAWN, PADDING, apply_augmentation
from raysim.models.inputs import as_input

EARLIER = 0.9  # the weight of earlier calls in the running mean of statistics
SHOWN = 64  # images of a batch in a picture
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class ImageDecoder(nn.Module):
    """Turns vectors [n, inputs] into images [n, channels, height, height] of values from 0 to 1.

    First a linear layer to `width` channels of base x base, and BatchNorm. Then `ups` blocks: doubled (nearest),
    convolution 3 x 3, BatchNorm, LeakyReLU of slope .2. At last a convolution 3 x 3 and a sigmoid. The last block has
    width / 2 channels.
    """

    def __init__(self, inputs: int, channels: int, base: int, ups: int, width: int = 128) -> None:
        super().__init__()
        self.grid = (width, base, base)
        self.linear = nn.Linear(inputs, width * base * base)
        layers: list[nn.Module] = [nn.BatchNorm2d(width)]
        last = max(width // 2, 1)
        for block in range(ups):
            into, out = width, last if block == ups - 1 else width
            layers += [nn.Upsample(scale_factor=2), nn.Conv2d(into, out, 3, padding=1, bias=False)]
            layers += [nn.BatchNorm2d(out), nn.LeakyReLU(0.2)]
        self.blocks = nn.Sequential(*layers, nn.Conv2d(last, channels, 3, padding=1), nn.Sigmoid())

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the images of vectors [n, inputs]."""
        images: Tensor = self.blocks(self.linear(vectors).view(-1, *self.grid))
        return images


class StatisticsMatch:
    """The distance of images' BatchNorm statistics to those of training, with a running mean over calls."""

    def __init__(self) -> None:
        self._earlier: list[tuple[Tensor, Tensor]] | None = None  # by layer: mean and variance
        self._latest: list[tuple[Tensor, Tensor]] = []

    def loss(self, layers: Sequence[BatchStatistics]) -> Tensor:
        """Return the sum over layers of ||running mean - mu|| + ||running variance - v||.

        In the first call, (mu, v) are the batch's statistics. Later they are the running mean over the calls so far and
        this batch. The batch then has the weight 1 - EARLIER, in the gradient as well.
        """
        now = [(layer.mean, layer.variance) for layer in layers]
        if self._earlier is not None:
            old, new = EARLIER, 1 - EARLIER
            now = [
                (old * m + new * mu, old * v + new * var) for (m, v), (mu, var) in zip(self._earlier, now, strict=True)
            ]
        self._latest = [(mean.detach(), variance.detach()) for mean, variance in now]
        distances = [
            torch.linalg.vector_norm(layer.running_mean - mean) + torch.linalg.vector_norm(layer.running_variance - var)
            for layer, (mean, var) in zip(layers, now, strict=True)
        ]
        return torch.stack(distances).sum()

    def end_call(self) -> None:
        """End a call: the statistics of its last batch enter the running mean."""
        self._earlier = self._latest


def adversarial_loss(teacher: Tensor, student: Tensor) -> Tensor:
    """Return -KL(teacher || student) of the rows of logits [n, classes] in which both predict the same class.

    It is the sum over these rows divided by n, so rows in which they differ count as 0.
    """
    known, learnt = functional.log_softmax(teacher, 1), functional.log_softmax(student, 1)
    divergence = (known.exp() * (known - learnt)).sum(1)
    agree = teacher.argmax(1) == student.argmax(1)
    return -(divergence * agree).mean()


class Best:
    """The images of the least loss so far. It stays on the device, as reading a loss would wait for a GPU."""

    def __init__(self) -> None:
        self.loss: Tensor | None = None
        self.images = torch.zeros(0)

    def offer(self, loss: Tensor, images: Tensor) -> None:
        """Keep these images if their loss is less than all before; the earlier of equals."""
        loss, images = loss.detach(), images.detach()
        if self.loss is None:
            self.loss, self.images = loss, images.clone()
            return
        better = loss < self.loss
        self.loss, self.images = torch.where(better, loss, self.loss), torch.where(better, images, self.images)


def as_bytes(images: Tensor) -> Tensor:
    """Return images of values from 0 to 1 as uint8 on the CPU: 255 times the value, truncated."""
    return (images.detach().clamp(0, 1) * 255).to(torch.uint8).cpu()


class Shown:
    """Turns a server's images into what a network is shown: augmented as the dataset is, and normalized.

    Only crop and flip are applied. Custom augmentations need not be differentiable.
    """

    def __init__(self, server: Server) -> None:
        self._augment, self._dtype = server.augment, server.parameters.dtype
        self._moments: Sequence[Tensor] | None = None
        if (statistics := server.normalization) is not None:
            self._moments = [
                torch.tensor(each, device=server.device, dtype=self._dtype)
                for each in (statistics.mean, statistics.std)
            ]

    def __call__(self, images: Tensor, moments: Sequence[Tensor] | None = None) -> Tensor:
        """Return images [n, channels, h, w] of values from 0 to 1 as a network's input. Draws from torch's generator.

        `moments` are the mean and the deviation by channel, if not the dataset's.
        """
        images, moments = crop_and_flip(images.to(self._dtype), self._augment), moments or self._moments
        if moments is None:
            return images
        mean, std = (each.view(-1, 1, 1) for each in moments)
        return (images - mean) / std


def show_batch(server: Server, images: Tensor, labels: Tensor) -> None:
    """Record a picture of the first images (uint8) of a batch, sorted by their classes, which are the captions."""
    order = labels[:SHOWN].argsort(stable=True).cpu()
    server.record_image("generated", images[order], [str(label) for label in labels.cpu()[order].tolist()])


def crop_and_flip(images: Tensor, augment: Sequence[str]) -> Tensor:
    """Return images [n, channels, h, w], each cropped after padding by 4 and flipped, as far as `augment` has these."""
    drawn = torch.zeros(len(images), DRAWN, dtype=torch.int64)
    if "crop" in augment:
        drawn[:, :2] = torch.randint(-PADDING, PADDING + 1, (len(images), 2))
    if "flip" in augment:
        drawn[:, 2] = torch.randint(0, 2, (len(images),))
    return apply_augmentation(images, to_device(drawn, images.device)) if {"crop", "flip"} & {*augment} else images


def redraw(module: nn.Module) -> None:
    """Draw a student's weights: Xavier normal, biases N(0, 1), BatchNorm's weights N(1, .02) and biases 0.

    BatchNorm's statistics stay those of the teacher that was copied.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            init.xavier_normal_(layer.weight)
            if layer.bias is not None:
                init.normal_(layer.bias)
        elif isinstance(layer, BATCH_NORMS) and layer.affine:
            init.normal_(layer.weight, 1, 0.02)
            init.zeros_(layer.bias)


def shuffled_batches(count: int, size: int, permutation: Callable[[int], Tensor]) -> Iterator[Tensor]:
    """Yield batches of the indices below `count`, without end: one shuffled pass after another, of `size` or the rest.

    A rest of one index is left out, as BatchNorm cannot train on it. `count` and `size` are at least 2.
    """
    while True:
        yield from (part for part in permutation(count).split(size) if len(part) > 1)


def first_by_name(calls: int, batch: int, most: int) -> Tensor:
    """Return the indices (int64) of the images that clients receive, of `calls` batches that follow one another.

    The authors store image i of call k as the file k-i.png. They sort the files' names as text and take the first:
    after the calls 0 and 1 come 10, 100 and 101. So the images are not those of the earliest calls.
    """
    names = sorted(range(calls * batch), key=lambda image: (str(image // batch), str(image % batch)))
    return torch.tensor(names[:most])


def synthetic_batches(client: Client, purpose: str, images: Tensor, size: int | None) -> Iterator[Tensor]:
    """Yield batches of generated images without end, as the client's network is shown samples: augmented, normalized.

    `images` are uint8 [n, channels, h, w]. `size` None is the batch size of training. A batch has at least two images,
    for BatchNorm.
    """
    draws = client.generator(purpose)
    size = max(2, size or client.shared.training.batch_size)
    for part in shuffled_batches(len(images), size, lambda n: torch.from_numpy(draws.permutation(n))):
        drawn = torch.from_numpy(client.data.draw(draws, len(part))) if client.data.augment else None
        x = client.data.shown(images[to_device(part, images.device)], to_device(drawn, images.device))
        yield as_input(x, client.model.dtype)


def lacks_statistics(model: FlatModel) -> str | None:
    """Return why images cannot be matched to a model's BatchNorm statistics, and what would work. None if they can."""
    if model.normalises:
        return None
    return (
        "matches images to BatchNorm's statistics, but the model has no BatchNorm, allowed: a model with it, such as "
        "small_resnet or mlp with batch_norm=true; or its hyperparameter bn=0, which generates images without them"
    )
