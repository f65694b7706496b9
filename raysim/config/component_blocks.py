"""The blocks `dataset`, `model`, `methods` and `callbacks`. Their other keys come from the components' signatures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, SkipValidation

from raysim.config.block import Allowed, Block, Count, Positive, WholeNumber
from raysim.config.component import BareComponent, ByName, NamedComponent
from raysim.config.document import Mistake


class Augment(BareComponent):
    """A random change of the training samples."""

    what = "augmentation"


class ChannelStatistics(Block):
    """A mean and a standard deviation for each channel of the images, of pixel values from 0 to 1."""

    mean: Annotated[tuple[float, ...], Field(strict=False, min_length=1)]
    """The numbers to subtract, one per channel, for pixel values from 0 to 1."""
    std: Annotated[tuple[Positive, ...], Field(strict=False, min_length=1)]
    """The numbers > 0 to divide by, one per channel."""

    def contradictions(self) -> Iterator[Mistake]:
        """Yield the mistake of different numbers of channels."""
        if len(self.mean) != len(self.std):
            words = f"found {len(self.std)} values, allowed: as many as in mean ({len(self.mean)})"
            yield Mistake(("std",), words)


class Domain(NamedComponent):
    """An additional dataset: its name and its keys. The other keys are those of `dataset`."""

    what = "dataset"

    def same_as(self, dataset: DatasetConfig) -> bool:
        """Return whether a dataset has this name and these keys."""
        return (self.name, self.keys()) == (dataset.name, dataset.keys())


class DatasetConfig(NamedComponent):
    """The clients' data."""

    what = "dataset"
    root: str | None = None
    """The folder of the files, which must exist; null is $RAYSIM_DATA or ~/.cache/raysim."""
    download: bool = True
    """Whether files that are missing are downloaded."""
    train_samples: Count | None = None
    """The number of training samples to use, drawn with the seed; null is all. Tests use all samples."""
    normalize: Annotated[
        Literal["none", "standard"] | ChannelStatistics,
        Allowed("none, standard or {mean: [...], std: [...]}"),
    ] = "none"
    """none leaves pixels from 0 to 1; standard uses the mean and standard deviation of the dataset."""
    input_scale: Positive = 1.0
    """What normalized inputs are multiplied with. Other values than 1 show what depends on the scale of inputs."""
    augment: Annotated[
        tuple[Augment, ...], Field(strict=False), Allowed("a list of crop, flip or your own as package.module:name")
    ] = ()
    """Random changes of the training images: crop (after padding by 4), flip (sideways), then custom ones in order."""
    unlabelled: Domain | None = None
    """A second dataset, of samples of the same shape, for methods that learn without labels (cfed): its name and its
    keys. Its training samples, not augmented, are divided among the clients at random in equal parts."""
    label_rate: Annotated[float, Field(gt=0, lt=1)] | None = None
    """The fraction of a client's samples of each task and class that have a label (rounded, at least one), drawn with
    the seed; null is all. Only methods that learn without labels (cfed) see the others, in the windows in which they
    arrive."""

    def contradictions(self) -> Iterator[Mistake]:
        """Yield the mistake of two sets of samples without labels."""
        if self.unlabelled is not None and self.label_rate is not None:
            words = f"found {self.label_rate}, allowed: null with dataset.unlabelled, another set without labels"
            yield Mistake(("label_rate",), words)


class Domains(Block):
    """Every task is another dataset; all have the same classes."""

    domains: Annotated[
        tuple[Domain, ...],
        Field(strict=False, min_length=1),
        Allowed("a list of at least 1 dataset: names, or blocks with a name and its own keys"),
    ]
    """The datasets in the order of the tasks: names, or blocks with a name and its keys. `dataset` is one of them. The
    others' images are resized to its size (bilinear), and to RGB if some are RGB. Its root, download, train_samples (of
    each), normalize and augment hold for all."""


class Adapters(Block):
    """Trained additions to frozen layers. All other weights are frozen, except the head's."""

    kind: Literal["lora"] = "lora"
    """LoRA (Hu et al., ICLR 2022): a layer's weight W0 becomes W0 + scale B A, of which A and B are trained."""
    rank: WholeNumber = 16
    """The rank of B A. With 0 only the head is trained."""
    where: Annotated[
        tuple[str, ...], Field(strict=False, min_length=1), Allowed("a list of layers' names, such as [qkv, proj]")
    ]
    """The layers: names, ends of names after a dot, or patterns such as "blocks.[01].*"."""
    scale: Positive = 1.0
    """The factor of B A: alpha / rank in other libraries."""
    head: bool = True
    """Whether the head is trained, in full. false is for models with a pretrained head, such as language models."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The probability with which a number of A's input is zero in training."""

    def contradictions(self) -> Iterator[Mistake]:
        """Yield the mistake of a model without trained weights."""
        if not self.rank and not self.head:
            yield Mistake(("head",), "found false with rank 0, which leaves nothing to train, allowed: true")


class Model(NamedComponent):
    """The network to train."""

    what = "model"
    weights: str | None = None
    """The file of the initial state_dict, as torch.save writes it, or in the format safetensors (.safetensors).
    hf://OWNER/NAME is model.safetensors of the Hugging Face hub (the extra hugging_face). efficientnet-lite0 is a
    package's file (the extra pretrained). For model torchvision also DEFAULT or a name such as IMAGENET1K_V1."""
    prefix: str = ""
    """The start of the names of the parameters that the file has, such as "vit.", which its own names lack."""
    freeze: Annotated[tuple[str, ...], Field(strict=False), Allowed('a list of patterns such as "layer1.*"')] = ()
    """Patterns for the names of parameters that are not trained and not sent. Their BatchNorm keeps its statistics."""
    adapters: Adapters | None = None
    """Adapters of linear and convolutional layers; null trains all weights. `weights` is a file without
    adapters, or of a run with the same ones, or a folder of the package peft with the same ones."""
    local: Annotated[tuple[str, ...], Field(strict=False), Allowed('a list of patterns such as "*.bn1.*"')] = ()
    """Patterns for the names of parameters and buffers that each client trains, keeps and never sends."""
    random_features: Count | None = None
    """The units of a random ReLU layer that is put before the head and never trained; null is none. For methods in
    closed form, such as analytic and stsa."""
    cache: bool = False
    """Whether what the frozen first layers return is computed once for each sample, kept in a file and trained on."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """The numbers that all passes compute with, in training, tests and methods. bfloat16 rounds what layers multiply
    (autocast) and stores frozen matrices rounded. Trained parameters, gradients and outputs stay in float32. float32 is
    the model's own type."""
    checkpointing: bool = False
    """Whether the backward pass computes the activations of a model's blocks again, which saves memory and takes time.
    Results have the same bits."""


def _spell_out(value: object) -> object:
    """Return the block for null or a name; other values are unchanged."""
    return {} if value is None else {value: None} if isinstance(value, str) else value


_Components = Annotated[dict[str, SkipValidation[dict[str, object]]], BeforeValidator(_spell_out)]

Methods = Annotated[
    _Components,
    ByName("method"),
    Allowed("a block of method names, each with its keys, such as {fedprox: {mu: 0.1}}"),
]

Callbacks = Annotated[
    _Components,
    ByName("callback"),
    Allowed("a block of callbacks' names, each with its keys, such as {early_stopping: {patience: 5}}"),
]
