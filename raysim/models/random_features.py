"""A fixed random layer before a network's head: relu(R f) of features f, with R of independent N(0, 1) numbers.

Ridge regression on more features separates classes better, as in RanPAC (McDonnell et al., NeurIPS 2023).
The layer is frozen, so it is in no vector and is not sent: every process draws the same one from the run's seed.
"""

from collections.abc import Container

from torch import Tensor, nn

from raysim.models.layers import find_head
from raysim.system import seeding
from raysim.system.errors import ConfigError


def add_random_features(module: nn.Module, x: Tensor, width: int, seed: int, model: str) -> None:
    """Put a random layer of `width` units and a new head in place of the network's head.

    Args:
        module: the network, which is changed.
        x: two samples.
        width: the number of random features.
        seed: the run's seed.
        model: the model's name, for the error.

    Raises:
        ConfigError: the network has no head, or a head for each task.
    """
    names = {name.rpartition(".")[0] for name in find_head(module, x)}
    if len(names) != 1:
        found = "no head" if not names else "a head for each domain"
        raise ConfigError(f"model.random_features: found {found} in {model}, allowed: a model with one head; or null")
    (name,) = names
    head = module.get_submodule(name)
    assert isinstance(head, nn.Linear)
    with seeding.torch_restored():
        seeding.seed_torch(seed, "initial weights", "random features")
        layer = nn.Linear(head.in_features, width, bias=False).to(head.weight)
        layer.weight.data.normal_()
        new_head = nn.Linear(width, head.out_features, bias=head.bias is not None).to(head.weight)
    layer.weight.requires_grad_(False)
    owner, _, leaf = name.rpartition(".")
    setattr(module.get_submodule(owner), leaf, nn.Sequential(layer, nn.ReLU(), new_head))
    module.train()


def has_random_features(module: nn.Module, x: Tensor, names: Container[str]) -> bool:
    """Return whether names of a file are those of a network with a random layer before its head.

    Args:
        module: the network without this layer.
        x: two samples.
        names: the names of the file's tensors.
    """
    heads = {name.rpartition(".")[0] for name in find_head(module, x)}
    module.train()
    return any(f"{head}.0.weight" in names and f"{head}.2.weight" in names for head in heads)
