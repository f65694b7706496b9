"""The dataset hugging_face without its package: a stand-in says what the package would."""

import io
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from tiny_tokenizers import word_level

from raysim.data.dataset import MissingData
from raysim.data.hugging_face import hugging_face
from raysim.system.errors import ConfigError


def test_what_cannot_be_downloaded_is_named(tmp_path, monkeypatch):
    """Without a network, load_dataset raises a ConnectionError, which is an OSError."""

    def load_dataset(path, **options):
        raise ConnectionError(f"Couldn't reach '{path}' on the Hub")

    package = SimpleNamespace(__version__="4.0.0", load_dataset=load_dataset, DownloadConfig=lambda **options: None)
    monkeypatch.setitem(sys.modules, "datasets", package)
    with pytest.raises(MissingData) as error:
        hugging_face(tmp_path, True, path="flwrlabs/femnist")
    assert str(error.value) == (
        f"dataset.path: found 'flwrlabs/femnist', which is not in {tmp_path}/hugging_face and cannot be read (Couldn't "
        "reach 'flwrlabs/femnist' on the Hub); copy that folder from a machine with a network, or set dataset.path to "
        "a folder of the files"
    )


def test_a_package_that_would_execute_scripts_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(__version__="3.6.0"))
    with pytest.raises(ConfigError, match=r"^the package datasets has version 3\.6\.0, allowed: 4 or newer, as older"):
        hugging_face(tmp_path, True, path="flwrlabs/femnist")


class Images:
    """The package's type of a column of images."""

    def __init__(self, decode=True):
        assert not decode


class Rows:
    """A split of the package, whose images are asked for without decoding them."""

    def __init__(self, columns, splits=()):
        self.columns, self.info = columns, SimpleNamespace(splits=splits)
        self.features = {name: SimpleNamespace() for name in columns}
        if "picture" in columns:
            self.features["picture"] = Images(decode=False)

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, key):
        if isinstance(key, str):
            return self.columns[key]
        return {name: values[key] for name, values in self.columns.items()}

    def select_columns(self, names):
        return Rows({name: self.columns[name] for name in names})

    def cast_column(self, name, feature):
        assert isinstance(feature, Images)
        return self


def encoded(pixels=((0, 1), (2, 3)), **options):
    stream = io.BytesIO()
    Image.fromarray(np.array(pixels, np.uint8)).save(stream, format="PNG", **options)
    return {"bytes": stream.getvalue(), "path": None}


def rows(labels):
    return Rows({"picture": [encoded() for _ in labels], "kind": labels, "score": [0.5] * len(labels)})


def replace_package(monkeypatch, splits):
    def load_dataset(path, split, **options):
        if split not in splits:
            raise ValueError(f'Unknown split "{split}". Should be one of {[*splits]}.')
        return splits[split]

    package = SimpleNamespace(
        __version__="4.0.0", load_dataset=load_dataset, DownloadConfig=lambda **options: None, Image=Images
    )
    monkeypatch.setitem(sys.modules, "datasets", package)


@pytest.fixture
def package(monkeypatch):
    """A dataset of two splits with texts as labels."""
    splits = {
        "train": rows(["dog", "cat", "dog"]),
        "test": rows(["cat", "dog"]),
        "other": rows(["cow"]),
        "yes": rows([True, False]),
    }
    replace_package(monkeypatch, splits)


@pytest.mark.usefixtures("package")
def test_truth_values_are_labels_and_not_beside_texts(tmp_path):
    keys = {"path": "pets", "image": "picture", "label": "kind", "size": 4, "train": "yes"}
    found = hugging_face(tmp_path, False, test="yes", **keys)
    assert (found.train.y.tolist(), found.classes) == ([1, 0], 2)
    with pytest.raises(ConfigError, match=r"dataset\.label: found texts in one split and numbers in the other"):
        hugging_face(tmp_path, False, test="test", **keys)


def test_images_are_read_one_by_one_and_not_decoded_by_the_package(tmp_path, monkeypatch):
    """Photos may be much larger than the arrays: a file is read where it is decoded, and is not kept."""
    asked = []

    class Lazy(list):
        def __getitem__(self, row):
            asked.append(row)
            return encoded()

    split = Rows({"picture": Lazy([None] * 20), "kind": [0, 1] * 10})
    replace_package(monkeypatch, {"train": split, "test": split})
    assert len(hugging_face(tmp_path, False, path="pets", image="picture", label="kind", size=4).train.x) == 20
    assert sorted(asked) == sorted([*range(20)] * 2)


def test_images_are_upright_and_opaque(tmp_path, monkeypatch):
    """Orientation 6 turns clockwise: the left column becomes the first row. The value 2 is transparent: white."""
    turn = Image.Exif()
    turn[274] = 6
    plain = tmp_path / "plain.png"
    plain.write_bytes(encoded(((5, 6), (7, 8)))["bytes"])
    pictures = [encoded(((0, 1), (2, 3)), exif=turn, transparency=2), {"bytes": None, "path": str(plain)}]
    replace_package(monkeypatch, {part: Rows({"picture": pictures, "kind": [0, 1]}) for part in ("train", "test")})
    found = hugging_face(tmp_path, False, path="pets", image="picture", label="kind", size=2, grey=True)
    assert found.train.x.reshape(2, 4).tolist() == [[255, 0, 3, 1], [5, 6, 7, 8]]
    assert "turned 2 images upright, as their EXIF data says" in found.notes


def test_names_that_are_sorted_as_texts_are_in_the_order_of_their_values(tmp_path, monkeypatch):
    """load_dataset numbers the folders 1, 10, 2 in this order. Of names in another order, the numbers are meant."""
    splits = {part: rows([0, 1, 2]) for part in ("train", "test")}
    replace_package(monkeypatch, splits)

    def read(*names):
        for split in splits.values():
            split.features["kind"] = SimpleNamespace(names=names)
        found = hugging_face(tmp_path, False, path="pets", image="picture", label="kind", size=4)
        return found.names, found.train.y.tolist()

    assert read("1", "10", "2") == (("1", "2", "10"), [0, 2, 1])
    assert read("2", "1", "10") == (("2", "1", "10"), [0, 1, 2])
    assert read("a", "b", "c") == (("a", "b", "c"), [0, 1, 2])


@pytest.mark.parametrize(("content", "words"), [
    ({"bytes": b"GIF89a", "path": "x/a.gif"}, r"row 1 of test \(x/a.gif\) cannot be read as an image \("),
    ({"bytes": None, "path": None}, r"found nothing in row 1 of test, column 'picture', allowed: an image"),
    (None, r"found nothing in row 1 of test, column 'picture', allowed: an image"),
])  # fmt: skip
def test_an_image_that_cannot_be_read_is_named(tmp_path, monkeypatch, content, words):
    damaged = Rows({"picture": [encoded(), content], "kind": [0, 1]})
    replace_package(monkeypatch, {"train": rows([0, 1]), "test": damaged})
    with pytest.raises(ConfigError, match=words):
        hugging_face(tmp_path, False, path="pets", image="picture", label="kind", size=4)


def test_the_split_that_is_tested_on_and_those_left_out_are_named(tmp_path, monkeypatch):
    """Without a split test, validation is for testing. A part of a split, as of train[:50%], is a use of it."""
    parts = {name: rows([0, 1]) for name in ("train", "train[:50%]", "validation", "test", "extra")}
    replace_package(monkeypatch, parts)
    keys = {"path": "pets", "image": "picture", "label": "kind", "size": 4}

    def notes(*splits, **more):
        for part in parts.values():
            part.info.splits = splits
        return hugging_face(tmp_path, False, **keys, **more).notes

    assert notes("train", "test") == ()
    assert notes("train", "validation") == ("tested on the split validation",)
    assert notes("train", "validation", "test", "extra") == ("left out the splits validation, extra",)
    assert notes("train", "test", "extra", train="train[:50%]", test="extra") == ("left out the split test",)


def test_numbers_as_texts_are_in_the_order_of_their_values(tmp_path, monkeypatch):
    replace_package(monkeypatch, {part: rows(["10", "2", "1"]) for part in ("train", "test")})
    found = hugging_face(tmp_path, False, path="pets", image="picture", label="kind", size=4)
    assert (found.names, found.train.y.tolist()) == (("1", "2", "10"), [2, 1, 0])
    assert found.notes == ("classes 0 to 2: 1, 2, 10",)


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
        ({"image": "kind"}, "dataset.image: found 'kind', a column of namespace(), allowed: a column of images"),
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


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_texts_are_read_from_files(tmp_path, kind):
    """As text_jsonl reads them. Of the training texts, the is 2, cat and dog 3 and 4, and a test text has no more.

    The tokenizer's ids of the first text are [CLS] 2, [UNK] 1, cat 4 and [SEP] 3.
    """
    datasets = pytest.importorskip("datasets")
    for part, rows in (("train", [("the cat", "b", 1), ("the dog", "a", 2)]), ("test", [("a cat", "a", 3)])):
        of = datasets.Dataset.from_list([dict(zip(("said", "topic", "day"), row, strict=True)) for row in rows])
        (tmp_path / "texts").mkdir(exist_ok=True)
        {"jsonl": of.to_json, "csv": of.to_csv, "parquet": of.to_parquet}[kind](tmp_path / "texts" / f"{part}.{kind}")
    keys = {"path": str(tmp_path / "texts"), "text": "said", "label": "topic", "length": 4, "columns": ("day",)}
    found = hugging_face(tmp_path, False, **keys)
    assert (found.words, found.names) == (("the", "cat", "dog"), ("a", "b"))
    assert (found.train.x.tolist(), found.test.x.tolist()) == ([[2, 3, 0, 0], [2, 4, 0, 0]], [[1, 3, 0, 0]])
    assert (found.train.y.tolist(), found.test.y.tolist()) == ([1, 0], [0])
    assert (found.train.columns["day"].tolist(), found.test.columns["day"].tolist()) == ([1, 2], [3])
    tokenizer = word_level(tmp_path / "words", ["cat", "dog"])
    tokens = hugging_face(tmp_path, False, **keys, tokenizer=tokenizer, target="next_token")
    assert tokens.train.y.tolist() == [[1, 4, 3, -100], [1, 5, 3, -100]]
    assert tokens.train.columns["topic"].tolist() == ["b", "a"]


def test_next_tokens_need_no_labels(tmp_path):
    """The hub's tests without labels have -1, which is no place in the classes. Null reads none: wikitext has none."""
    pytest.importorskip("datasets")
    for part, label in (("train", 0), ("test", -1)):
        (tmp_path / "texts").mkdir(exist_ok=True)
        (tmp_path / "texts" / f"{part}.jsonl").write_text(json.dumps({"said": "cat dog", "topic": label}))
    keys = {"path": str(tmp_path / "texts"), "text": "said", "length": 4, "target": "next_token"}
    keys["tokenizer"] = word_level(tmp_path / "words", ["cat", "dog"])
    with pytest.raises(ConfigError, match=r"dataset\.label: found the label -1, allowed: 0 to 0; or null"):
        hugging_face(tmp_path, False, **keys, label="topic")
    found = hugging_face(tmp_path, False, **keys, label=None)
    assert (found.train.y.tolist(), found.test.y.tolist()) == ([[4, 5, 3, -100]], [[4, 5, 3, -100]])
    assert not found.train.columns
    with pytest.raises(ConfigError, match=r"dataset\.label: found null, allowed: a column; or dataset\.text with"):
        hugging_face(tmp_path, False, path="talk", label=None)


def test_texts_that_are_none_and_keys_of_images_are_named(tmp_path, monkeypatch):
    split = Rows({"said": ["a", None], "kind": [0, 1]})
    replace_package(monkeypatch, {"train": split, "test": split})
    keys = {"path": "talk", "text": "said", "label": "kind"}
    with pytest.raises(
        ConfigError, match=r"dataset\.text: found null in row 1 of train, column 'said', allowed: a text"
    ):
        hugging_face(tmp_path, False, **keys)
    with pytest.raises(
        ConfigError, match=r"dataset\.text: found 'sad', allowed: one of \['said', 'kind'\]; did you mean"
    ):
        hugging_face(tmp_path, False, **{**keys, "text": "sad"})
    for key, value in (("size", 4), ("grey", True), ("image", "picture")):
        with pytest.raises(ConfigError, match=rf"dataset\.{key}: found .*, allowed: .* with dataset\.text"):
            hugging_face(tmp_path, False, **keys, **{key: value})
    for key, value in (("length", 4), ("tokenizer", "minilm-l6"), ("target", "next_token")):
        with pytest.raises(ConfigError, match=rf"dataset\.{key}: found .*, allowed: .* without dataset\.text"):
            hugging_face(tmp_path, False, path="talk", **{key: value})
