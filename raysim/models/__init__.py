"""Models, one file each, building them with a run's initial weights on every host, and flat vectors of parameters.
A model is a function, named in MODELS or as `package.module:function`, that returns a torch module."""

MODELS = {
    "mnist_cnn": "raysim.models.mnist_cnn:mnist_cnn",
    "mcmahan_cnn": "raysim.models.mcmahan_cnn:mcmahan_cnn",
    "mlp": "raysim.models.mlp:mlp",
    "resnet18": "raysim.models.resnet18:resnet18",
    "bag_of_embeddings": "raysim.models.bag_of_embeddings:bag_of_embeddings",
    "transformer": "raysim.models.transformer:transformer",
    "torchvision": "raysim.models.torchvision_network:torchvision_network",
}
"""Name in YAML -> `module:function`, imported when a config asks for it.

A model, one of these or a user's own, is a function

    f(shape: tuple[int, ...], classes: int, *, keys...) -> nn.Module

whose keyword-only parameters are its YAML keys and whose docstring's first line is what `raysim list models` prints.
Where samples are ids, a key `vocabulary` that is null is given their number.
"""
