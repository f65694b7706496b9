"""The examples that make datasets: topics, a frozen transformer's features, a table of sensors, and images in grey."""

import csv
import importlib
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from pages import ROOT

import raysim
from raysim.config import load
from raysim.data.loading import load_dataset
from raysim.data.text import text_jsonl
from raysim.federation.federation import build_federation


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT))

    def load_example(name: str) -> ModuleType:
        return importlib.import_module(f"examples.{name}")

    return load_example


def test_a_table_of_sensors_is_what_the_config_reads(example, tmp_path: Path) -> None:
    """A fault depends on high temperatures, later on the vibration, in the end on low temperatures, never on load."""
    assert example("sensor_table").write(tmp_path / "sensors.csv") == 2400
    federation = build_federation(load(ROOT / "configs" / "table.yaml", {"dataset.root": str(tmp_path)}))
    train = federation.dataset.train
    assert train.columns["day"].dtype.kind == "M"
    found = [np.corrcoef(train.x[task.train, :3].T, train.y[task.train])[3, :3] for task in federation.tasks]
    temperature, load_, vibration = np.transpose(found)
    assert temperature[0] > 0.5 > -0.5 > temperature[-1]
    assert vibration[2] > 0.5
    assert max(abs(vibration[0]), abs(vibration[-1])) < 0.35
    assert np.abs(load_).max() < 0.2


def test_dbpedia_becomes_lines_that_the_config_reads(example, tmp_path: Path) -> None:
    """A file in the layout of the published one, `number,text`, with a comma and a tab in a text."""
    script = example("dbpedia14")
    with (tmp_path / "train.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows((n % 14, f"Thing {n} ,\tof kind {n % 14} .") for n in range(140))
    assert script.fetch(tmp_path / "dbpedia14.jsonl", (tmp_path / "train.csv").as_uri()) == 140
    lines = [json.loads(line) for line in (tmp_path / "dbpedia14.jsonl").read_text().splitlines()]
    assert lines[2] == {"text": "Thing 2 ,\tof kind 2 .", "label": "Artist"}
    config = load(ROOT / "configs" / "text.yaml")
    dataset = load_dataset(text_jsonl, str(tmp_path), False, config.dataset.keys())
    assert dataset.names == tuple(sorted(script.TOPICS))
    assert (len(dataset.train), len(dataset.test)) == (112, 28)
    number = dataset.words.index("thing") + 2
    assert (dataset.train.x[:, 0] == number).all()


class Tokenizer:
    """A word's token is its length; padding is 0."""

    @classmethod
    def from_pretrained(cls, name: str) -> "Tokenizer":
        assert name == "a-model"
        return cls()

    def __call__(self, texts, padding, truncation, max_length, return_tensors):
        assert (padding, truncation, return_tensors) == (True, True, "pt")
        rows = [[len(word) for word in text.split()][:max_length] for text in texts]
        longest = max(map(len, rows))
        ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
        return {"input_ids": ids, "attention_mask": (ids > 0).long()}


class Network(torch.nn.Module):
    """A token's output is (its length, 1)."""

    @classmethod
    def from_pretrained(cls, name: str) -> "Network":
        assert name == "a-model"
        return cls()

    def forward(self, input_ids, attention_mask):
        assert not self.training
        return SimpleNamespace(last_hidden_state=torch.stack([input_ids, torch.ones_like(input_ids)], -1).float())


@pytest.mark.parametrize(("pooling", "features"), [("first", [1, 3, 2, 1]), ("mean", [1.5, 3, 3, 1.5])])
def test_a_frozen_models_features_are_read_as_npz(example, tmp_path: Path, monkeypatch, pooling, features) -> None:
    """Stand-ins for transformers' classes. Lengths of the first two words: 1 2 (mean 1.5), 3, 2 4 (mean 3), 1 2."""
    stand_in = SimpleNamespace(AutoModel=Network, AutoTokenizer=Tokenizer)
    monkeypatch.setitem(sys.modules, "transformers", stand_in)
    texts = [("a bb ccc", "x", "train"), ("ddd", "y", "train"), ("ee ffff", "x", "train"), ("g hh iiii", "y", "test")]
    lines = [json.dumps(dict(zip(("text", "label", "split"), row, strict=True))) for row in texts]
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    out = tmp_path / "f.npz"
    example("frozen_features").encode("a-model", tmp_path / "t.jsonl", out, pooling=pooling, length=2, batch=2)
    arrays = np.load(out)
    assert arrays["x_train"].tolist() == [[value, 1] for value in features[:3]]
    assert arrays["x_test"].tolist() == [[features[3], 1]]
    assert (arrays["y_train"].tolist(), arrays["y_test"].tolist()) == ([0, 1, 0], [1])


def test_the_features_are_trained_on_by_the_papers_config(example, tmp_path: Path) -> None:
    """Features of 8 numbers in place of DistilBERT's 768, of ten topics; one round of each task."""
    draws = np.random.default_rng(0)
    arrays = {f"x_{part}": draws.normal(size=(n, 8)) for part, n in (("train", 300), ("test", 20))}
    labels = {f"y_{part}": np.arange(n) % 10 for part, n in (("train", 300), ("test", 20))}
    np.savez(tmp_path / "yahooqa.npz", **arrays, **labels)
    keys = {"dataset.root": str(tmp_path), "training.rounds_per_task": 1, "training.local_epochs": 1}
    keys |= {"logging.tensorboard": False, "partition.min_samples": 0}
    run = raysim.run(ROOT / "configs" / "papers" / "fed_a_gem_yahooqa.yaml", keys, out=tmp_path / "run", local=True)
    assert run.status == "done"


def test_images_are_written_in_grey_in_another_size(example, tmp_path: Path) -> None:
    """The luma .299 R + .587 G + .114 B of red, green and blue is 76, 150 and 29. Their mean with black is 63.75."""
    red, green, blue, black = np.eye(4, 3, dtype=np.uint8) * 255
    image = np.array([[red, green], [blue, black]])
    colors = np.stack([image, np.full_like(image, 9), image[::-1], np.full_like(image, 200)])
    arrays = {"x_train": colors, "y_train": [7, 6, 8, 9], "x_test": colors[:2], "y_test": [8, 7]}
    np.savez(tmp_path / "colors.npz", **arrays)
    write_grey = example("grey_images").write_grey

    write_grey(tmp_path / "colors.npz", tmp_path / "all.npz", 1)
    found = np.load(tmp_path / "all.npz")
    assert {name: (found[name].dtype.name, found[name].tolist()) for name in found.files} == {
        "x_train": ("uint8", [[[64]], [[9]], [[64]], [[200]]]),
        "y_train": ("int64", [7, 6, 8, 9]),
        "x_test": ("uint8", [[[64]], [[9]]]),
        "y_test": ("int64", [8, 7]),
    }

    write_grey(tmp_path / "colors.npz", tmp_path / "some.npz", 2, range(7, 9))
    found = np.load(tmp_path / "some.npz")
    assert found["x_train"].tolist() == [[[76, 150], [29, 0]], [[29, 0], [76, 150]]]
    assert (found["y_train"].tolist(), found["y_test"].tolist()) == ([0, 1], [1, 0])

    with pytest.raises(SystemExit, match="found no test images of the classes 6-6, allowed: classes that it has"):
        write_grey(tmp_path / "colors.npz", tmp_path / "none.npz", 2, range(6, 7))
    assert not (tmp_path / "none.npz").exists()


def test_an_image_in_grey_is_resized_by_area(example) -> None:
    """Means of 2 x 2 pixels: (0 + 4 + 8 + 12) / 4 = 6, (100 + 100 + 100 + 104) / 4 = 101, 0 and 255."""
    image = np.array([[0, 4, 100, 100], [8, 12, 100, 104], [0, 0, 255, 255], [0, 0, 255, 255]], dtype=np.uint8)
    assert example("grey_images").resize(image, 2).tolist() == [[6, 101], [0, 255]]
