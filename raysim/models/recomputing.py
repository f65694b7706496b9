"""Gradient checkpointing (`model.checkpointing`): the backward pass computes a block's activations again.

Only the inputs of the blocks are kept. Chen et al., 2016, arXiv 1604.06174. The second pass of a block has the same
random numbers and the same buffers as the first, so results have the same bits.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from raysim.models.hugging_face.prompted import PromptedNetwork
from raysim.system.errors import ConfigError

MARK = "recomputed"  # the attribute of such blocks
CONTAINERS = (nn.Sequential, nn.ModuleList)


class Recomputed:
    """The forward pass of a block that is computed again in the backward pass. In evaluation mode it is computed once.

    It is a class, as a copy of a module (copy.deepcopy) must call the copy's own pass.
    """

    def __init__(self, block: nn.Module, run: Callable[..., Any]) -> None:
        self._block, self._run = block, run

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """Return what the block returns."""
        if not (self._block.training and torch.is_grad_enabled()):
            return self._run(*inputs, **options)
        return checkpoint(self._run, *inputs, use_reentrant=False, context_fn=self._contexts, **options)

    def _contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """Return the contexts of the first and of the second pass."""
        buffers = [
            (module, name, buffer.clone())
            for module in self._block.modules()
            for name, buffer in module.named_buffers(recurse=False)
        ]
        return nullcontext(), _with_buffers(buffers)


@contextmanager
def _with_buffers(buffers: list[tuple[nn.Module, str, Tensor]]) -> Iterator[None]:
    """Use copies of the buffers in this context, so that BatchNorm counts a batch once."""
    current = [(module, name, module.get_buffer(name)) for module, name, _ in buffers]
    try:
        for module, name, buffer in buffers:
            setattr(module, name, buffer.clone())
        yield
    finally:
        for module, name, buffer in current:
            setattr(module, name, buffer)


def recompute_blocks(module: nn.Module, model: str) -> None:
    """Make a module's blocks (see `find_blocks`) compute their activations again in the backward pass.

    Raises:
        ConfigError: the module has no blocks, or takes prompts in, which are gone in the backward pass.
    """
    if isinstance(module, PromptedNetwork):
        allowed = "allowed: false with model.prompts of hugging_face"
        raise ConfigError(f"model.checkpointing: found true, {allowed}")
    blocks = [*find_blocks(module)]
    if not blocks:
        allowed = "allowed: a model of blocks, such as transformer, vit or resnet18; or false"
        raise ConfigError(f"model.checkpointing: found true for {model}, which has no blocks, {allowed}")
    # the first call imports torch's compiler: here, so that forked processes share it and the estimate counts it
    checkpoint(torch.relu, torch.zeros(1), use_reentrant=False)
    for block in blocks:
        vars(block).update({"forward": Recomputed(block, block.forward), MARK: True})


def recomputed_blocks(module: nn.Module) -> list[nn.Module]:
    """Return the blocks that compute their activations again in the backward pass."""
    return [block for block in module.modules() if vars(block).get(MARK)]


def find_blocks(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the blocks: the outermost modules with inner layers in an nn.Sequential or nn.ModuleList.

    An nn.Sequential is no block itself.
    """
    for child in module.children():
        is_listed = isinstance(module, CONTAINERS) and type(child) not in CONTAINERS
        if is_listed and any(True for _ in child.children()):
            yield child
        else:
            yield from find_blocks(child)
