"""Data that are allowed, but are likely a mistake: `raysim check` and a run say so."""

from dataclasses import replace

import numpy as np
import pytest

import raysim
from raysim.federation.doubts import describe_doubts
from raysim.federation.federation import build_federation

BRIGHT = np.linspace(0, 255, 24 * 4, dtype=np.float32).reshape(24, 2, 2)
LABELS = np.arange(24) % 4


@pytest.fixture
def config_of(tiny, tmp_path):
    """A function that makes a config with an npz file of these arrays."""

    def make(x, y, **changes):
        np.savez(tmp_path / "mine.npz", x_train=x, y_train=y, x_test=x[:8], y_test=y[:8])
        dataset = {"name": "npz", "path": str(tmp_path / "mine.npz")} | changes
        return tiny(dataset=dataset, scenario={"kind": "class_incremental", "tasks": 2})

    return make


@pytest.mark.parametrize(
    ("x", "y", "changes", "words"),
    [
        (BRIGHT, LABELS, {}, ["found images of floats up to 255, which are used as they are; save uint8"]),
        (BRIGHT.astype(np.uint8), LABELS, {}, []),
        (BRIGHT / 255, LABELS, {}, []),
        (BRIGHT, LABELS, {"normalize": "standard"}, []),
        (BRIGHT.reshape(24, 4), LABELS, {}, []),  # numbers of a table may have any size
        (BRIGHT / 255, LABELS + 1, {}, ["found no sample with label 0 of 5 classes; labels begin at 0, not at 1"]),
        (
            BRIGHT / 255,
            np.minimum(LABELS, 2) * 2,
            {},
            ["found 2 of 5 classes without training samples, [1, 3]; no model learns them; add samples, or number"],
        ),
    ],
)
def test_images_without_a_scale_and_labels_from_1_are_said(config_of, x, y, changes, words):
    said = describe_doubts(build_federation(config_of(x, y, **changes)))
    assert len(said) == len(words)
    assert all(word in line for line, word in zip(said, words, strict=True))


def test_channels_that_come_last_are_said(tiny):
    """A custom dataset's arrays are taken as they are. Eight maps of 3 x 3 are features."""
    words = "found 8 channels of 8 x 3 pixels, as channels come first; if these are 8 x 8 pixels, save [N, 3, 8, 8]"
    for shape, expected in (([8, 8, 3], [f"dataset: {words}"]), ([8, 3, 3], []), ([3, 8, 8], [])):
        dataset = {"name": "synthetic", "classes": 4, "shape": shape, "train": 40, "test": 8}
        assert describe_doubts(build_federation(tiny(dataset=dataset))) == expected


def test_tests_of_classes_that_are_not_trained_on_are_said(config_of, tmp_path):
    """Of the 24 samples, 6 have each of 4 labels. Training lacks label 3, so 6 test samples have it."""
    config = config_of(BRIGHT / 255, LABELS)
    kept = LABELS != 3
    x, y = BRIGHT[kept] / 255, LABELS[kept]
    np.savez(tmp_path / "mine.npz", x_train=x, y_train=y, x_test=BRIGHT / 255, y_test=LABELS)
    (said,) = describe_doubts(build_federation(config))
    assert said.startswith("dataset: found 1 of 4 classes without training samples, [3], but with 6 test samples; no")
    np.savez(tmp_path / "mine.npz", x_train=BRIGHT / 255, y_train=LABELS, x_test=x, y_test=y)
    assert describe_doubts(build_federation(config)) == []  # a class may have no test samples


@pytest.mark.parametrize(
    ("classes", "kind", "words"),
    [
        (6, "class_incremental", []),
        (4, "class_incremental", ["scenario.tasks: found 2 of 3 tasks with one class, so their task-IL accuracy is"]),
        (1, "domain_incremental", []),  # has no task-IL accuracy
    ],
)
@pytest.mark.parametrize("missing", [(), ("mine",)])  # also without the files
def test_tasks_of_one_class_are_said(tiny, classes, kind, words, missing):
    """In three tasks, four classes are 2 + 1 + 1."""
    config = tiny(dataset={"name": "synthetic", "classes": classes}, scenario={"kind": kind, "tasks": 3})
    federation = build_federation(config)
    said = describe_doubts(replace(federation, dataset=replace(federation.dataset, missing=missing)))
    assert [line[: len(word)] for line, word in zip(said, words, strict=True)] == words


def test_check_and_a_run_say_them(config_of, tmp_path):
    config = config_of(BRIGHT / 255, LABELS + 1)
    assert raysim.check(config)["warning"].startswith("dataset: found no sample with label 0")
    with pytest.warns(UserWarning, match="^dataset: found no sample with label 0 of 5 classes") as warned:
        raysim.run(config, out=tmp_path / "run", local=True)
    assert {one.filename for one in warned} == {__file__}  # where raysim was called
