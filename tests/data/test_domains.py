"""Domains: datasets as tasks, made alike, by themselves and from the config."""

import numpy as np
import pytest
import torch
from PIL import Image

from raysim.config import ConfigError, build_json_schema, dump, load
from raysim.config.yaml_text import parse_value
from raysim.data import scenario as module
from raysim.data.builtin import digits
from raysim.data.dataset import Dataset, Split
from raysim.data.loading import check_dataset
from raysim.data.scenario import domains, resize
from raysim.federation.federation import build_federation


def images(shape, train, test, classes=3, seed=0):
    draws = np.random.default_rng(seed)
    splits = [
        Split(draws.integers(0, 256, (n, *shape), dtype=np.uint8), np.arange(n, dtype=np.int64) % classes)
        for n in (train, test)
    ]
    return Dataset(*splits, classes=classes)


# resizing


@pytest.mark.parametrize("size", [(28, 28), (16, 16), (7, 31), (12, 20), (30, 8), (12, 8)])
@pytest.mark.parametrize("rows", [2**20, 100])
def test_resizing_is_pils_for_every_image(colours, size, rows, monkeypatch):
    """Grey and RGB of 12 x 8, up and down, one side or both; however many are resized at once."""
    monkeypatch.setattr(module, "ROWS", rows)
    x = colours.train.x
    height, width = size
    for image, found in zip(x, resize(x, size), strict=True):
        pil = Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0)))
        expected = np.asarray(pil.resize((width, height), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
        if size == (7, 31):  # PIL may start with the columns here
            assert np.abs(found.astype(int) - expected).max() <= 1
        else:
            assert np.array_equal(found, expected)
    for image, found in zip(x[:, :1], resize(x[:, :1], size), strict=True):
        expected = Image.fromarray(image[0]).resize((width, height), Image.Resampling.BILINEAR)
        assert np.abs(found[0].astype(int) - np.asarray(expected)).max() <= (size == (7, 31))


def test_floats_are_resized_as_floats():
    x = np.random.default_rng(0).standard_normal((4, 2, 5, 6)).astype(np.float32)
    found = resize(x, (9, 4))
    assert found.dtype == np.float32
    for n in range(4):
        for c in range(2):
            expected = Image.fromarray(x[n, c]).resize((4, 9), Image.Resampling.BILINEAR)
            assert np.allclose(found[n, c], np.asarray(expected), atol=1e-6)


# joining


def test_every_task_owns_its_rows():
    sets = [images((1, 6, 6), 5, 3, seed=1), images((1, 6, 6), 7, 2, seed=2), images((1, 6, 6), 4, 6, seed=3)]
    whole, tasks = domains([(f"set {n}", found) for n, found in enumerate(sets)], 0)
    check_dataset(whole, "domains")
    assert [task.name for task in tasks] == ["set 0", "set 1", "set 2"]
    assert [len(task.train) for task in tasks] == [5, 7, 4]
    assert np.concatenate([task.train for task in tasks]).tolist() == list(range(16))
    assert np.concatenate([task.test for task in tasks]).tolist() == list(range(11))
    for task, found in zip(tasks, sets, strict=True):
        assert task.train.dtype == task.test.dtype == np.int32
        assert task.classes == (0, 1, 2)
        assert task.pixels is None
        assert np.array_equal(whole.train.x[task.train], found.train.x)  # alike already: not touched
        assert np.array_equal(whole.train.y[task.train], found.train.y)
        assert np.array_equal(whole.test.x[task.test], found.test.x)
        assert np.array_equal(whole.test.y[task.test], found.test.y)


@pytest.mark.parametrize("reference", [0, 1, 2])
def test_all_take_the_references_size_and_rgb_wins(reference):
    """Grey 6 x 6, RGB 8 x 10, grey 4 x 5: all RGB, of the size of the one that is referred to."""
    sets = [images((1, 6, 6), 5, 3), images((3, 8, 10), 4, 2), images((1, 4, 5), 3, 3)]
    whole, tasks = domains([("a", sets[0]), ("b", sets[1]), ("c", sets[2])], reference)
    size = sets[reference].shape[1:]
    assert whole.shape == (3, *size)
    assert whole.train.x.dtype == np.uint8
    for task, found in zip(tasks, sets, strict=True):
        shown = whole.test.x[task.test]
        expected = resize(found.test.x, size)
        for channel in range(3):
            assert np.array_equal(shown[:, channel], expected[:, channel % found.shape[0]])


def test_grey_stays_grey():
    whole, _ = domains([("a", images((1, 6, 6), 5, 3)), ("b", images((1, 9, 9), 5, 3))], 0)
    assert whole.shape == (1, 6, 6)


def test_features_may_be_domains_if_they_are_alike(features):
    whole, tasks = domains([("a", features), ("b", features)], 0)
    assert whole.train.x.shape == (32, 6)
    assert tasks[1].train.tolist() == list(range(16, 32))


def test_what_cannot_be_made_alike_is_one_line(features, colours):
    grey, other = images((1, 6, 6), 5, 3), images((1, 6, 6), 5, 3, classes=2)
    floats = Dataset(*(Split(s.x.astype(np.float32), s.y) for s in (grey.train, grey.test)), classes=3)
    two = images((2, 6, 6), 5, 3)
    for found, words in (
        (other, "b has 2 classes, a has 3; all must have the same ones"),
        (floats, "b has samples of float32, a of uint8; save all as uint8"),
        (two, "b has 2 channels, a has 1; only grey (1) and RGB (3) can be made alike"),
    ):
        with pytest.raises(ConfigError) as caught:
            domains([("a", grey), ("b", found)], 0)
        assert str(caught.value) == f"scenario.shift.domains: {words}"
    wide = Dataset(*(Split(s.x.reshape(len(s), 36), s.y) for s in (grey.train, grey.test)), classes=3)
    with pytest.raises(ConfigError, match=r"b has samples of shape \(36,\), a of \(1, 6, 6\); only images"):
        domains([("a", grey), ("b", wide)], 0)


# from the config


@pytest.fixture
def root(tmp_path):
    """A folder with two.npz (16 x 16 grey, 10 classes, 40 + 20) and three.npz (32 x 32 RGB, 10 classes, 30 + 10)."""
    for name, shape, counts in (("two", (16, 16), (40, 20)), ("three", (32, 32, 3), (30, 10))):
        draws = np.random.default_rng(len(name))
        arrays = {f"x_{part}": draws.integers(0, 256, (n, *shape), dtype=np.uint8)
                  for part, n in zip(("train", "test"), counts, strict=True)}  # fmt: skip
        labels = {f"y_{part}": np.arange(n) % 10 for part, n in zip(("train", "test"), counts, strict=True)}
        np.savez(tmp_path / f"{name}.npz", **arrays, **labels)
    return tmp_path


@pytest.fixture
def config(tiny, root):
    def make(**given):
        shift = {"domains": ["digits", {"name": "npz", "path": "two.npz"}, {"name": "npz", "path": "three.npz"}]}
        scenario = {"kind": "domain_incremental", "tasks": 3, "shift": shift}
        return tiny(**{"dataset": {"name": "digits", "root": str(root)}, "scenario": scenario, **given})

    return make


def test_a_run_over_three_domains(config, simulate):
    """digits gives the size, 8 x 8; three.npz makes all RGB; each task's samples are dealt to the clients anew."""
    federation = build_federation(config())
    assert federation.shape == (3, 8, 8)
    assert federation.classes == 10
    assert federation.protocols == ("domain_il",)
    assert [task.name for task in federation.tasks] == ["digits", "npz two.npz", "npz three.npz"]
    assert [len(task.train) for task in federation.tasks] == [1433, 40, 30]
    for number, task in enumerate(federation.tasks):
        held = np.concatenate([stream.rows[number] for stream in federation.streams])
        assert np.sort(held).tolist() == task.train.tolist()
        sizes = [stream.size(number) for stream in federation.streams]
        assert max(sizes) - min(sizes) <= 1
    shown = federation.source("train", torch.device("cpu")).fetch(torch.arange(5), 0)
    grey = torch.from_numpy(digits(None, False).train.x[:5]).float() / 255
    assert torch.equal(shown, grey.expand(-1, 3, -1, -1))
    run = simulate(config(training__rounds_per_task=1))
    accuracy = [done.evaluation["domain_il"] for done in run.rounds]
    assert len(accuracy) == 3
    assert all(len(row) == 3 for row in accuracy)


def test_dealt_once_per_run_where_that_is_asked_for(config):
    federation = build_federation(config(partition__per="run"))
    rows = [np.concatenate(stream.rows) for stream in federation.streams]
    assert np.sort(np.concatenate(rows)).tolist() == list(range(1503))
    assert max(map(len, rows)) - min(map(len, rows)) <= 1


def test_the_data_set_is_the_reference_whatever_its_place(config, root):
    for path, shape in (("two.npz", (3, 16, 16)), ("three.npz", (3, 32, 32))):
        found = build_federation(config(dataset={"name": "npz", "path": path, "root": str(root)}))
        assert found.shape == shape
        assert [len(task.train) for task in found.tasks] == [1433, 40, 30]


def test_the_data_sets_other_keys_hold_for_all(config, root):
    found = build_federation(config(dataset__normalize="standard", dataset__augment=["flip"]))
    assert found.augment == ("flip",)
    assert len(found.normalization.mean) == 3
    pixels = found.dataset.train.x[:, 0] / 255
    assert found.normalization.mean[0] == pytest.approx(pixels.mean())  # of all domains together


def test_the_partition_is_per_task_unless_told(config):
    assert config().partition_per == "task"
    assert config(partition__per="run").partition_per == "run"
    assert config(scenario={"kind": "domain_incremental", "tasks": 3}).partition_per == "run"


def test_it_reads_back_as_it_was_written(config):
    found = config()
    written = dump(found)
    assert load(parse_value(written)) == found
    assert parse_value(written)["scenario"]["shift"] == {
        "domains": [{"name": "digits"}, {"name": "npz", "path": "two.npz"}, {"name": "npz", "path": "three.npz"}]
    }
    assert load(found) == found
    assert load(found, {"scenario.shift": {"domains": ["digits", "digits", "digits"]}}) != found


def test_defaults_count_when_the_data_set_is_looked_for(tiny):
    """emnist alone and emnist with the default split written out are the same dataset."""
    scenario = {"kind": "domain_incremental", "tasks": 1, "shift": {"domains": [{"name": "emnist"}]}}
    tiny(dataset={"name": "emnist", "split": "balanced"}, scenario=scenario)
    with pytest.raises(ConfigError, match=r"found 'emnist digits', allowed: one of .*, \['emnist balanced'\]"):
        tiny(dataset={"name": "emnist", "split": "digits"}, scenario=scenario)


LIST = "a list of at least 1 dataset: names, or blocks with a name and its own keys"
WRONG = [
    ({"tasks": 4}, "scenario.tasks: found 4, allowed: 3, one for each of scenario.shift.domains"),
    (
        {"domains": ["digist", "digits", "digits"]},
        "scenario.shift.domains.0: unknown dataset 'digist'; did you mean 'digits'? `raysim list datasets` lists all",
    ),
    (
        {"domains": ["digits", "npz", "digits"]},
        "scenario.shift.domains.1.path: this key is required and missing, allowed: a string",
    ),
    (
        {"domains": ["digits", {"name": "npz", "paht": "x"}, "digits"]},
        (
            "scenario.shift.domains.1.paht: unknown key 'paht' of 'npz'; did you mean 'path'? allowed: name, path "
            "(and 1 more)"
        ),
    ),
    (
        {"domains": ["digits", {"name": "mnist", "root": "x"}, "digits"]},
        "scenario.shift.domains.1.root: unknown key 'root' of 'mnist'; did you mean 'dataset.root'?",
    ),
    (
        {"domains": ["digits", {"path": "x"}, "digits"]},
        (
            "scenario.shift.domains.1.name: this key is required and missing, allowed: a name that raysim knows, or "
            "your own as package.module:name"
        ),
    ),
    ({"domains": ["digits", 3, "digits"]}, f"scenario.shift.domains: found ['digits', 3, 'digits'], allowed: {LIST}"),
    ({"domains": []}, f"scenario.shift.domains: found [], allowed: {LIST}"),
    ({"domains": "digits"}, f"scenario.shift.domains: found 'digits', allowed: {LIST}"),
    ({"shift": {}}, f"scenario.shift.domains: this key is required and missing, allowed: {LIST}"),
    (
        {"shift": {"domain": ["digits"]}},
        "scenario.shift.domain: unknown key 'domain'; did you mean 'domains'? allowed: domains (and 1 more)",
    ),
    (
        {"shift": "domains"},
        (
            "scenario.shift: found 'domains', allowed: rotation, permutation or a block with the keys domains; did you "
            "mean 'scenario.shift={domains: ...}'?"
        ),
    ),
    (
        {"shift": "rotaton"},
        (
            "scenario.shift: found 'rotaton', allowed: rotation, permutation or a block with the keys domains; did you "
            "mean 'rotation'?"
        ),
    ),
    (
        {"domains": ["mnist", "usps", "svhn"]},
        "dataset.name: found 'digits', allowed: one of scenario.shift.domains, ['mnist', 'usps', 'svhn']",
    ),
]


def test_a_domain_with_another_size_names_the_key(tiny):
    """The dataset is the first domain with one key changed."""
    one = {"name": "image_folder", "path": "pets", "size": 16}
    scenario = {"kind": "domain_incremental", "tasks": 2, "shift": {"domains": [one, {**one, "path": "more"}]}}
    values = load(tiny()).model_dump() | {"dataset": {**one, "size": 24}, "scenario": scenario}
    words = "dataset.size: found 24, allowed: 16, as in scenario.shift.domains.0; or change both"
    with pytest.raises(ConfigError, match=words):
        load(values)


@pytest.mark.parametrize(("change", "words"), WRONG)
def test_what_is_wrong_is_one_line(tiny, change, words):
    found = {"tasks": 3, "domains": ["digits", "digits", "digits"], **change}
    shift = found.get("shift", {"domains": found["domains"]})
    scenario = {"kind": "domain_incremental", "tasks": found["tasks"], "shift": shift}
    values = load(tiny()).model_dump() | {"dataset": {"name": "digits"}, "scenario": scenario}
    with pytest.raises(ConfigError) as caught:
        load(values)
    assert str(caught.value).startswith(words)
    assert str(caught.value) == words


def test_a_file_that_is_not_there_says_which_domain(config, root):
    (root / "three.npz").unlink()
    with pytest.raises(ConfigError, match=r"^scenario.shift.domains.2: .*there is no file .*three.npz"):
        build_federation(config())


@pytest.mark.parametrize(
    ("items", "suits"),
    [
        (["mnist", "usps"], True),
        (["mnist", {"name": "npz", "path": "x"}], True),
        (["mnist", {"name": "emnist", "split": "digits"}], True),
        (["mnist", "tests.mine:digits"], None),  # the loader imports it
        (["mnist", "npz"], False),
        (["mnist", {"name": "npz"}], False),
        (["mnist", {"name": "npz", "path": "x", "scale": 2}], False),
        (["mnist", {"name": "mnist", "root": "x"}], False),
        (["mnist", "mnits"], False),
        (["mnist", 3], False),
        ([], False),
        ("mnist", False),
    ],
)
def test_the_json_schema_and_the_loader_agree(tiny, items, suits):
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(build_json_schema())
    scenario = {"kind": "domain_incremental", "tasks": 2, "shift": {"domains": items}}
    values = parse_value(dump(load(tiny()))) | {"dataset": {"name": "mnist"}, "scenario": scenario}
    assert validator.is_valid(values) == (suits is not False)
    if suits:
        load(values)
    elif suits is False:
        with pytest.raises(ConfigError):
            load(values)
