"""The models, one file each, and how one is built alike on every host.

`MODELS` names them. A model is a function

    f(shape: tuple[int, ...], classes: int, *, keys...) -> nn.Module

whose keyword-only parameters are its YAML keys and whose docstring's first line is what `raysim list models` prints.
A user's own has the same signature and is named in YAML as `package.module:function`.
"""

MODELS = {
    "mnist_cnn": "raysim.models.mnist_cnn:mnist_cnn",
    "mcmahan_cnn": "raysim.models.mcmahan_cnn:mcmahan_cnn",
    "mlp": "raysim.models.mlp:mlp",
    "resnet18": "raysim.models.resnet18:resnet18",
}
"""Name in YAML -> `module:function`; references, so that naming a model imports nothing."""
