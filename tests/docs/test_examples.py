"""The examples run, and the guide to writing a method shows a real one."""

import importlib
import io
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pages import ROOT, blocks
from PIL import Image
from small import small
from small_configs import TINY

import raysim
from raysim.config import load
from raysim.federation.federation import build_federation

CONFIG = TINY | {"model": {"name": "mlp", "hidden": [5], "dropout": 0.4, "batch_norm": True}}


@pytest.fixture
def example(workplace: Path):
    def load_example(name: str) -> ModuleType:
        return importlib.import_module(f"examples.{name}")

    return load_example


def test_running_from_python_compares_methods(example) -> None:
    script = example("run_from_python")
    results = script.compare(small(load(script.CONFIG)))
    assert list(results) == list(script.METHODS)
    assert [run.seed for run in results["ER"]] == list(script.SEEDS)
    lines = script.table(results).splitlines()
    assert len(lines) == 1 + len(script.METHODS)
    shown = re.search(r"([\d.]+)%", lines[1])
    accuracies = [run.evaluation["class_il"]["average_accuracy"] for run in results["FedAvg"]]
    assert shown is not None
    assert float(shown[1]) == pytest.approx(50 * sum(accuracies), abs=0.051)  # the mean of two, in %


def test_plotting_a_run_draws_a_picture(example, tmp_path: Path) -> None:
    raysim.run(CONFIG, {"evaluation.every_rounds": 1}, out=tmp_path / "run", local=True)
    picture = example("plot").plot(tmp_path / "run", tmp_path / "run.png")
    with Image.open(picture) as image:
        assert image.size == (1300, 400)


def test_a_torch_dataset_is_the_data_of_a_run(example, tmp_path: Path) -> None:
    """Class c < 4 has a bar across: two rows that are lighter by 1, of 8; the noise's mean is 0."""
    bars = example("torch_dataset")
    dataset = bars.bars(tmp_path, False, noise=0.0)
    assert (dataset.train.x.dtype, dataset.shape, len(dataset.test)) == (np.float32, (1, 8, 8), 80)
    assert np.argwhere(dataset.train.x[1, 0].all(1)).ravel().tolist() == [2, 3]  # label 1: rows 2 and 3
    assert np.argwhere(dataset.train.x[7, 0].all(0)).ravel().tolist() == [6, 7]  # label 7: columns 6 and 7
    result = raysim.run("examples/torch_dataset.yaml", {"logging.tensorboard": False}, out=tmp_path / "run", local=True)
    assert result.evaluation["task_il"]["average_accuracy"] > 0.8
    assert example("torch_dataset").as_split([(Image.new("RGB", (3, 2)), 4)]).x.shape == (1, 3, 2, 3)


class Images:
    """The package's type of a column of images, which are not decoded."""

    def __init__(self, decode: bool) -> None:
        assert not decode


class Rows:
    """A split as `datasets.load_dataset` returns it, as far as the example knows."""

    info = None

    def __init__(self, **columns: list[Any]) -> None:
        self.columns = columns
        kinds = {"image": Images(decode=False), "character": SimpleNamespace(names=["0", "1"])}
        self.features = {name: kinds.get(name) for name in columns}

    def __len__(self) -> int:
        return len(self.columns["image"])

    def __getitem__(self, key: str | int) -> Any:
        if isinstance(key, str):
            return self.columns[key]
        return {name: values[key] for name, values in self.columns.items()}

    def select_columns(self, names: list[str]) -> "Rows":
        return Rows(**{name: self.columns[name] for name in names})

    def cast_column(self, name: str, feature: Images) -> "Rows":
        return self


def encoded(shade: int) -> dict[str, Any]:
    """A gray image of a shade, with a lighter corner, as the package has it in a file."""
    image, stream = Image.new("L", (28, 28), shade), io.BytesIO()
    image.putpixel((27, 27), 255)
    image.save(stream, format="PNG")
    return {"bytes": stream.getvalue(), "path": None}


def test_a_hugging_face_data_set_is_the_data_of_a_run(example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for the package, which is an extra."""
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(raysim.ConfigError, match=r"the package datasets .*; pip install 'raysim-cfl\[hugging_face\]'$"):
        build_federation(load("examples/hugging_face.yaml", {"dataset.root": str(tmp_path)}))
    asked = []

    def load_dataset(path: str, *, split: str, cache_dir: str, download_config: Any) -> Rows:
        asked.append((path, split, cache_dir, download_config.local_files_only))
        shades = range(0, 240, 10) if "train" in split else range(5, 245, 30)
        images = [encoded(shade) for shade in shades]
        labels = [int(shade >= 120) for shade in shades]
        return Rows(image=images, character=labels, writer_id=[f"f{shade % 3}" for shade in shades])

    package = SimpleNamespace(
        __version__="4.0.0", load_dataset=load_dataset, DownloadConfig=SimpleNamespace, Image=Images
    )
    monkeypatch.setitem(sys.modules, "datasets", package)
    values = load("examples/hugging_face.yaml", ["clients.count=3", "scenario.tasks=2", "participation.fraction=1.0"])
    federation = build_federation(load(values, {"dataset.root": str(tmp_path), "dataset.download": False}))
    cache = str(tmp_path / "hugging_face")
    assert asked == [("flwrlabs/femnist", part, cache, True) for part in ("train[:90%]", "train[90%:]")]
    assert federation.dataset.names == ("0", "1")
    assert federation.dataset.train.x[:, :, 0, 0].ravel().tolist() == list(range(0, 240, 10))
    assert federation.shape == (1, 28, 28)
    owners = [sorted(row % 3 for part in stream.rows for row in part.tolist()) for stream in federation.streams]
    assert owners == [[0] * 8, [1] * 8, [2] * 8]  # shade 10 k has the id f(k % 3)


SHOWN = ("ewc", "er", "parts/replay", "lwf", "ditto", "top_k", "mfcl", "fedprox", "fed_a_gem")


def test_the_guide_shows_the_methods_as_they_are() -> None:
    methods = [ROOT / "raysim" / "algorithms" / f"{name}.py" for name in SHOWN]
    sources = [path.read_text(encoding="utf-8") for path in (*methods, ROOT / "examples" / "mammoth" / "method.py")]
    shown = [block for block in blocks(ROOT / "docs" / "writing_a_method.md", "python") if "import raysim" not in block]
    assert [sum(block in source for block in shown) for source in sources] == [6, 1, 1, 3, 1, 2, 2, 1, 1, 1]
    assert len(shown) == 20  # and the page's first method, which test_writing_a_method.py runs


def test_predicted_boxes_are_drawn_after_each_task(workplace: Path, tmp_path: Path) -> None:
    """Three tasks: three times three pictures. The run has the same bits with and without them."""
    overrides = [*small(load("driving")), "training.optimizer.lr=0.01"]
    config = tmp_path / "small.yaml"
    plain = raysim.run("driving", overrides, out=tmp_path / "plain", local=True)
    config.write_text((tmp_path / "plain" / "config.yaml").read_text())
    name, keys = "examples.predicted_boxes:PredictedBoxes", {"config": str(config), "frames": 2, "score": 0.001}
    drawn = raysim.run(config, {"methods": {name: keys}}, out=tmp_path / "drawn", local=True)
    assert drawn.model_sha256 == plain.model_sha256
    pictures = sorted(str(path.relative_to(tmp_path / "drawn")) for path in (tmp_path / "drawn").rglob("*.png"))
    assert [path for path in pictures if "task_" in path] == [
        f"images/round_{round:05}/task_{task}.png" for round in (1, 2, 3) for task in (1, 2, 3)
    ]


def test_a_small_transformer_is_pretrained_once(example, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Classes 5 to 9 train it, and classes 0 to 4 are a dataset for the run that starts from it.

    scikit-learn lists 182, 181, 179, 174 and 180 images of these classes; every fifth is for testing: 37 + 37 + 36 + 35
    + 36 = 181.
    """
    script = example("pretrain_small_vit")
    assert script.numbers_in("0,3,5-7") == [0, 3, 5, 6, 7]
    keys = {"width": 8, "depth": 1, "steps": 12, "batch": 8, "root": str(tmp_path)}
    weights, others = script.pretrain(**keys)
    assert "accuracy on the 181 test images of 5-9" in capsys.readouterr().out
    first = weights.read_bytes()
    assert script.pretrain(**keys) == (weights, others)
    assert capsys.readouterr().out == ""
    weights.unlink()
    script.pretrain(**keys)
    assert weights.read_bytes() == first
    config = CONFIG | {
        "dataset": {"name": "npz", "path": str(others)},
        "scenario": {"kind": "class_incremental", "tasks": 2},
        "model": {"name": "vit", "width": 8, "depth": 1, "patch": 2, "input_size": None, "weights": str(weights)},
    }
    data = build_federation(load(config))
    assert (data.classes, data.shape) == (5, (1, 8, 8))
    raysim.run(config, out=tmp_path / "run", local=True)
