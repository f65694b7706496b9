"""A model in two parts: what computes features, and the last one or two linear layers, which read them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional

from raysim.api import FlatModel
from raysim.models.inputs import two_samples
from raysim.models.layers import name_layers, recorded_inputs


class FeatureLayer:
    """The first layer that reads features x_a [n, d].

    Args:
        model: the model, which has a head.
        tail: how many linear layers follow the features; the last one is the head.

    Attributes:
        name: the name of the layer's weight.
        own: the place of the layer's trained parameters in the model's.

    Raises:
        ValueError: the model has no such layer, or no vector of at least two features for each sample.
    """

    def __init__(self, model: FlatModel, tail: int) -> None:
        self.model = model
        names = {name: layer for layer, name in name_layers(model.module).items()}
        place = [*names].index(model.head[0]) - (tail - 1)
        self.name = [*names][max(place, 0)]
        self.layer = names[self.name]
        if place < 0 or not isinstance(self.layer, nn.Linear) or self.width < 2:
            raise ValueError("no linear layer reads two features or more")
        owner = self.name.rpartition(".")[0]
        begin = model.begin_of(owner)[0]
        self._trained = [p for p in self.layer.parameters() if p.requires_grad]
        self.own = slice(begin, begin + sum(p.numel() for p in self._trained))

    @property
    def width(self) -> int:
        """The number of features, d."""
        return self.model.widths[self.name]

    def features(self, x: Tensor) -> Tensor:
        """Return x_a [n, d] of a pass in evaluation mode, without a gradient."""
        return self.model.inputs(x, self.model.parameters, self.model.buffers, [self.name])[self.name]

    def with_features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits [n, classes] of a pass in the current mode, and x_a [n, d], with an autograd graph."""
        with recorded_inputs({self.layer: self.name}) as recorded:
            logits: Tensor = self.model.module(x)
        return logits, recorded[self.name][-1]

    def under(self, x: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return the same under other parameters [P] and float buffers [B]: in evaluation mode, without a gradient."""
        head = self.model.head
        found = self.model.inputs(x, weights[0], weights[1], [self.name, head[0]])
        named = self.model.frozen | self.model.named(weights[0])
        return functional.linear(found[head[0]], *(named[name] for name in head)), found[self.name]

    def logits_of(self, features: Tensor, x: Tensor, weights: Sequence[Tensor] | None = None) -> Tensor:
        """Return the logits [n, classes] of features [n, d] in evaluation mode.

        Args:
            features: what the layer reads, in place of its own input.
            x: samples [m, ...]; a first one is needed for the pass, but has no effect.
            weights: other parameters and float buffers, without a gradient; None is the model's, with a gradient.
        """
        module = self.model.module
        with replaced_input(self.layer, features):
            if weights is not None:
                return self.model.logits(x[:1], weights[0], weights[1])
            training = module.training
            module.eval()
            logits: Tensor = module(x[:1])
            module.train(training)
        return logits

    def gradient_of(self, loss: Tensor) -> Tensor:
        """Return the gradient of a loss in the layer's trained parameters, as a vector of the length of `own`."""
        parts = torch.autograd.grad(loss, self._trained)
        return torch.cat([part.reshape(-1) for part in parts])


def lacks_features(model: FlatModel, tail: int) -> bool:
    """Return whether a model has no vector of two features or more for each sample that alone determines the logits."""
    try:
        layer = FeatureLayer(model, tail)
    except ValueError:
        return True
    has_ids = any(isinstance(part, nn.Embedding) for part in model.module.modules())
    samples = two_samples(model.module, model.shape, 2 if has_ids else None)
    features = layer.features(samples)
    if len(features) != len(samples):
        return True
    found, other = (layer.logits_of(features, x) for x in (samples, torch.ones_like(samples)))
    return not torch.equal(found, other)  # a way around the layer, such as a frozen layer below an adapter


@contextmanager
def replaced_input(layer: nn.Module, x: Tensor) -> Iterator[None]:
    """Give a layer this input in place of its own, whatever the network is called with."""
    hook = layer.register_forward_pre_hook(lambda module, inputs: (x,))
    try:
        yield
    finally:
        hook.remove()
