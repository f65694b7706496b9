"""Models, one file each, their construction with the run's initial weights, and flat vectors of parameters.
A model is a function that returns a torch module. It is named in MODELS or as `package.module:function`."""

MODELS = {
    "mnist_cnn": "raysim.models.mnist_cnn:mnist_cnn",
    "mcmahan_cnn": "raysim.models.mcmahan_cnn:mcmahan_cnn",
    "mlp": "raysim.models.mlp:mlp",
    "table_mlp": "raysim.models.table_mlp:table_mlp",
    "resnet18": "raysim.models.resnet18:resnet18",
    "small_resnet": "raysim.models.small_resnet:small_resnet",
    "critic": "raysim.models.critic:critic",
    "bag_of_embeddings": "raysim.models.bag_of_embeddings:bag_of_embeddings",
    "tiny_yolo": "raysim.models.tiny_yolo:tiny_yolo",
    "transformer": "raysim.models.transformer:transformer",
    "vit": "raysim.models.vit:vit",
    "torchvision": "raysim.models.torchvision_network:torchvision_network",
    "hugging_face": "raysim.models.hugging_face.model:hugging_face",
    "timm": "raysim.models.timm_network:timm_network",
}
"""Name in YAML -> `module:function`, imported when a config asks for it.

A model, built in or custom, is a function

    f(shape: tuple[int, ...], classes: int, *, keys...) -> nn.Module

Its keyword-only parameters are its YAML keys. `raysim list models` prints the first line of its docstring. If samples
are ids, a key `vocabulary` that is null is set to their number. If they are rows of a table with categories, a key
`categories` that is null is set to the number of ids of each.
"""
