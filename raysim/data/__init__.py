"""Data sets, how they are shared out among clients, and the tasks that are made of them.

`DATASETS` names every data set that a config can ask for. A data set is a function

    f(root: Path, download: bool, *, keys...) -> Dataset

whose keyword-only parameters are its YAML keys (their annotations are the types and ranges) and whose docstring's
first line is what `raysim list datasets` prints. A user's own has the same signature and is named in YAML as
`package.module:function`.
"""

DATASETS: dict[str, str] = {
    "digits": "raysim.data.digits:digits",
    "mnist": "raysim.data.mnist:mnist",
    "fashion_mnist": "raysim.data.mnist:fashion_mnist",
    "kmnist": "raysim.data.mnist:kmnist",
    "emnist": "raysim.data.mnist:emnist",
    "usps": "raysim.data.vision:usps",
    "svhn": "raysim.data.vision:svhn",
    "cifar10": "raysim.data.vision:cifar10",
    "cifar100": "raysim.data.vision:cifar100",
    "image_folder": "raysim.data.image_folder:image_folder",
    "npz": "raysim.data.npz:npz",
    "synthetic": "raysim.data.synthetic:synthetic",
}
"""Name in YAML -> `module:function`; references, so that naming a data set imports nothing."""
