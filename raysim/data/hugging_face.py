"""Datasets of the Hugging Face hub as a run's data. Images and labels are read once, when a run starts."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, doc

from raysim.config.error_text import shorten, show
from raysim.data.dataset import Dataset, MissingData, Split, channels_first
from raysim.data.decoding import resize
from raysim.system.importing import import_extra


def hugging_face(
    root: Path,
    download: bool,
    *,
    path: Annotated[str, doc("its name on the hub, or a folder of files that load_dataset reads")],
    train: Annotated[str, doc("the split to train on, as load_dataset takes it: train[:90%] is a part")] = "train",
    test: Annotated[str, doc("the split to test on")] = "test",
    image: Annotated[str, doc("the column of the images")] = "image",
    label: Annotated[str, doc("the column of the labels")] = "label",
    client: Annotated[str | None, doc("the column of client ids, for partition=natural")] = None,
    size: Annotated[int, Ge(1), doc("height and width that the images are made")] = 32,
    grey: Annotated[bool, doc("whether the images become grey; else RGB")] = False,
) -> Dataset:
    """Images of a Hugging Face dataset, resized to `size` x `size` (the extra hugging_face)."""
    datasets = import_extra("datasets", "hugging_face")

    where, cache = datasets.DownloadConfig(local_files_only=not download), root / "hugging_face"

    def read(wanted: str, client: str | None) -> tuple[Split, Any]:
        try:
            rows = datasets.load_dataset(path, split=wanted, cache_dir=str(cache), download_config=where)
        except OSError as error:  # also without a network
            problem = f"found {show(path)}, which is not in {cache} and cannot be read ({shorten(str(error))})"
            advice = "copy that folder from a machine with a network, or set dataset.path to a folder of the files"
            raise MissingData(f"dataset.path: {problem}; {advice}") from error
        x = np.stack([np.asarray(resize(shown, size, grey)) for shown in rows[image]])
        ids = None if client is None else np.array(rows[client])
        return Split(channels_first(x), np.array(rows[label], dtype=np.int64), ids), rows.features[label]

    training, labels = read(train, client)
    testing, _ = read(test, None)
    names = tuple(labels.names) if hasattr(labels, "names") else None
    classes = len(names) if names else 1 + int(max(training.y.max(), testing.y.max()))
    return Dataset(training, testing, classes, names)
