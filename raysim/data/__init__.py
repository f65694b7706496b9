"""Datasets, the tasks built from them, the partition among clients, and the batches read from them.
A dataset is a function that returns a Dataset. It is named in DATASETS or as `package.module:function`."""

DATASETS: dict[str, str] = {
    "digits": "raysim.data.builtin:digits",
    "mnist": "raysim.data.mnist:mnist",
    "fashion_mnist": "raysim.data.mnist:fashion_mnist",
    "kmnist": "raysim.data.mnist:kmnist",
    "emnist": "raysim.data.mnist:emnist",
    "usps": "raysim.data.vision:usps",
    "svhn": "raysim.data.vision:svhn",
    "cifar10": "raysim.data.vision:cifar10",
    "cifar100": "raysim.data.vision:cifar100",
    "tiny_imagenet": "raysim.data.image_lists:tiny_imagenet",
    **{
        name: f"raysim.data.image_sets.sets:{name}"
        for name in (
            *("imagenet_r", "imagenet_a", "cub200", "cars", "domainnet"),
            *("office_home", "office31", "core50", "eurosat", "resisc45"),
        )
    },
    "image_folder": "raysim.data.custom_files:image_folder",
    "image_list": "raysim.data.image_lists:image_list",
    "coco": "raysim.data.detection.coco:coco",
    "yolo": "raysim.data.detection.yolo:yolo",
    "carla": "raysim.data.detection.carla:carla",
    "hugging_face": "raysim.data.hugging_face:hugging_face",
    "text_jsonl": "raysim.data.text:text_jsonl",
    "instructions": "raysim.data.instructions:instructions",
    "leaf": "raysim.data.leaf:leaf",
    "femnist": "raysim.data.leaf_sets:femnist",
    "shakespeare": "raysim.data.leaf_sets:shakespeare",
    "csv": "raysim.data.tables:csv",
    "parquet": "raysim.data.tables:parquet",
    "npz": "raysim.data.custom_files:npz",
    "synthetic": "raysim.data.builtin:synthetic",
    "digit_attributes": "raysim.data.builtin:digit_attributes",
    "driving": "raysim.data.detection.driving:driving",
    "friedman": "raysim.data.builtin:friedman",
}
"""Name in YAML -> `module:function`, imported when a config asks for it.

A dataset, built in or custom, is a function

    f(root: Path, download: bool, *, keys...) -> Dataset

Its keyword-only parameters are its YAML keys, and their annotations are the types and ranges. `raysim list datasets`
prints the first line of its docstring. If its files are missing, it raises MissingData with their published size.
"""

DOWNLOADS: dict[str, tuple[str, int]] = {
    "mnist": ("MNIST/raw/", 12),
    "fashion_mnist": ("FashionMNIST/raw/", 31),
    "kmnist": ("KMNIST/raw/", 21),
    "emnist": ("EMNIST/raw/", 562),
    "usps": ("usps.bz2, usps.t.bz2", 8),
    "svhn": ("train_32x32.mat, test_32x32.mat", 246),
    "cifar10": ("cifar-10-batches-py/", 171),
    "cifar100": ("cifar-100-python/", 169),
}
"""The datasets that raysim downloads: their files below the root, and the MB that are downloaded, rounded."""
