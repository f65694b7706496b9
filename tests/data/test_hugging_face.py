"""The dataset hugging_face without its package: a stand-in says what the package would."""

import sys
from types import SimpleNamespace

import pytest
from PIL import Image

from raysim.data.dataset import MissingData
from raysim.data.hugging_face import hugging_face
from raysim.system.errors import ConfigError


def test_what_cannot_be_downloaded_is_named(tmp_path, monkeypatch):
    """Without a network, load_dataset raises a ConnectionError, which is an OSError."""

    def load_dataset(path, **options):
        raise ConnectionError(f"Couldn't reach '{path}' on the Hub")

    package = SimpleNamespace(load_dataset=load_dataset, DownloadConfig=lambda **options: None)
    monkeypatch.setitem(sys.modules, "datasets", package)
    with pytest.raises(MissingData) as error:
        hugging_face(tmp_path, True, path="flwrlabs/femnist")
    assert str(error.value) == (
        f"dataset.path: found 'flwrlabs/femnist', which is not in {tmp_path}/hugging_face and cannot be read (Couldn't "
        "reach 'flwrlabs/femnist' on the Hub); copy that folder from a machine with a network, or set dataset.path to "
        "a folder of the files"
    )


class Rows(dict):
    """Columns by name, as a split of the package has them."""

    features = property(lambda rows: {name: SimpleNamespace() for name in rows})


def rows(labels):
    return Rows(picture=[Image.new("RGB", (8, 8)) for _ in labels], kind=labels, score=[0.5] * len(labels))


@pytest.fixture
def package(monkeypatch):
    """A dataset of two splits with texts as labels."""
    splits = {"train": rows(["dog", "cat", "dog"]), "test": rows(["cat", "dog"]), "other": rows(["cow"])}

    def load_dataset(path, split, **options):
        if split not in splits:
            raise ValueError(f'Unknown split "{split}". Should be one of {[*splits]}.')
        return splits[split]

    package = SimpleNamespace(load_dataset=load_dataset, DownloadConfig=lambda **options: None)
    monkeypatch.setitem(sys.modules, "datasets", package)


@pytest.mark.usefixtures("package")
def test_texts_as_labels_are_numbered_in_sorted_order(tmp_path):
    found = hugging_face(tmp_path, False, path="pets", image="picture", label="kind", size=4)
    assert (found.names, found.classes, found.train.x.shape) == (("cat", "dog"), 2, (3, 3, 4, 4))
    assert (found.train.y.tolist(), found.test.y.tolist()) == ([1, 0, 1], [0, 1])


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (
            {"image": "picure"},
            "dataset.image: found 'picure', allowed: one of ['picture', 'kind', 'score']; did you mean ",
        ),
        ({"image": "kind"}, "dataset.image: found 'kind' with str, allowed: images"),
        ({"label": "score"}, "dataset.label: found 'score' with [0.5], allowed: whole numbers or texts"),
        ({"client": "who"}, "dataset.client: found 'who', allowed: one of "),
        ({"test": "valid"}, "dataset.test: found 'valid' of 'pets': Unknown split"),
        ({"test": "other"}, "dataset.test: found the label 'cow', allowed: labels of dataset.train"),
    ],
)
@pytest.mark.usefixtures("package")
def test_columns_and_splits_that_are_not_there_are_named(tmp_path, keys, words):
    with pytest.raises(ConfigError) as error:
        hugging_face(tmp_path, False, **{"path": "pets", "image": "picture", "label": "kind", **keys})
    assert str(error.value).startswith(words)
