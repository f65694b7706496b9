"""The dataset hugging_face without its package: a stand-in says what the package would."""

import sys
import weakref
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
    splits = {
        "train": rows(["dog", "cat", "dog"]),
        "test": rows(["cat", "dog"]),
        "other": rows(["cow"]),
        "yes": rows([True, False]),
    }

    def load_dataset(path, split, **options):
        if split not in splits:
            raise ValueError(f'Unknown split "{split}". Should be one of {[*splits]}.')
        return splits[split]

    package = SimpleNamespace(load_dataset=load_dataset, DownloadConfig=lambda **options: None)
    monkeypatch.setitem(sys.modules, "datasets", package)


@pytest.mark.usefixtures("package")
def test_truth_values_are_labels_and_not_beside_texts(tmp_path):
    keys = {"path": "pets", "image": "picture", "label": "kind", "size": 4, "train": "yes"}
    found = hugging_face(tmp_path, False, test="yes", **keys)
    assert (found.train.y.tolist(), found.classes) == ([1, 0], 2)
    with pytest.raises(ConfigError, match=r"dataset\.label: found texts in one split and numbers in the other"):
        hugging_face(tmp_path, False, test="test", **keys)


def test_one_image_is_decoded_at_a_time(tmp_path, monkeypatch):
    """Columns of the package from version 4 on decode an image when it is asked for."""
    made, most = [], []

    class Lazy(list):
        def __iter__(self):
            for _ in range(len(self)):
                picture = Image.new("RGB", (8, 8))
                made.append(weakref.ref(picture))
                most.append(sum(one() is not None for one in made))
                yield picture
                del picture

    split = Rows(picture=Lazy([None] * 20), kind=[0, 1] * 10)
    package = SimpleNamespace(load_dataset=lambda *_, **__: split, DownloadConfig=lambda **_: None)
    monkeypatch.setitem(sys.modules, "datasets", package)
    assert len(hugging_face(tmp_path, False, path="pets", image="picture", label="kind", size=4).train.x) == 20
    assert max(most) <= 2  # the next one is made before the last is forgotten


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
