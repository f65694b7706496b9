"""The statistics of BatchNorm layers' inputs, with autograd's graph: what methods without data match images to."""

from typing import NamedTuple

from torch import Tensor, nn

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
INSTANCE_NORMS = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)


class BatchStatistics(NamedTuple):
    """The statistics of one BatchNorm layer's input [n, c, ...] in one pass, and those that the layer keeps.

    >>> BatchStatistics(torch.ones(2), torch.ones(2), torch.zeros(2), torch.ones(2)).mean
    tensor([1., 1.])
    """

    mean: Tensor
    """The batch's mean [c], with the graph."""
    variance: Tensor
    """The batch's variance [c] over all but c, without Bessel's correction, with the graph."""
    running_mean: Tensor
    """The layer's mean [c], before the pass."""
    running_variance: Tensor
    """The layer's variance [c], before the pass."""


def with_batch_statistics(module: nn.Module, x: Tensor) -> tuple[Tensor, list[BatchStatistics]]:
    """Return a network's output for x [n, ...] in its current mode, and the statistics of its BatchNorm layers.

    The layers are in the order in which the pass uses them. Layers that keep no statistics are left out.

    >>> outputs, layers = with_batch_statistics(nn.BatchNorm1d(2), torch.tensor([[0.0, 1.0], [2.0, 1.0]]))
    >>> layers[0].mean, layers[0].variance
    (tensor([1., 1.]), tensor([1., 0.]))
    """
    found: list[BatchStatistics] = []

    def note(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        mean, variance = layer.running_mean, layer.running_var
        if isinstance(mean, Tensor) and isinstance(variance, Tensor):
            by_channel = inputs[0].transpose(0, 1).flatten(1)
            batch = by_channel.mean(1), by_channel.var(1, correction=0)
            found.append(BatchStatistics(*batch, mean.clone(), variance.clone()))

    hooks = [layer.register_forward_pre_hook(note) for layer in module.modules() if isinstance(layer, BATCH_NORMS)]
    try:
        return module(x), found
    finally:
        for hook in hooks:
            hook.remove()
