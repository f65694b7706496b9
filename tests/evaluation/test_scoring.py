"""Counts on a model whose logits are the sample itself: the label is right where the sample's largest entry is."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from raysim.config.lookup import resolve
from raysim.data.dataset import Dataset, Split
from raysim.data.scenario import Task
from raysim.evaluation.scoring import Chunk, accuracies, chunk_size, merge_scores, score, split_into_chunks
from raysim.federation.availability import Availability
from raysim.federation.federation import Federation, build_federation
from raysim.models.activations import measure_activations
from raysim.models.flat import FlatModel
from raysim.system.errors import Diverged

# rows of the test split: sample (= logits of classes 0..3), label
ROWS = [
    ([9, 1, 2, 3], 0),  # class-IL right, task-IL right
    ([1, 2, 9, 3], 1),  # class-IL says 2, task-IL (0 or 1) says 1: right
    ([5, 4, 9, 0], 1),  # class-IL says 2, task-IL says 0: wrong both
    ([1, 2, 3, 9], 3),  # right both
    ([9, 8, 1, 2], 3),  # class-IL says 0, task-IL (2 or 3) says 3: right
    ([9, 8, 3, 2], 3),  # wrong both
    ([0, 0, 5, 5], 2),  # a tie goes to the first: right both
]


def federation_of(tasks, protocols, rows=ROWS):
    x = np.array([row[0] for row in rows], np.float32)
    split = Split(x, np.array([row[1] for row in rows], np.int64))
    return Federation(Dataset(split, split, 4), tasks, [], Availability([], [], [1]), protocols, None, ())


def task(classes, test, pixels=None):
    return Task(
        "",
        classes,
        None if pixels is None else np.array(pixels, np.int32),
        np.zeros(0, np.int32),
        np.array(test, np.int32),
    )


def scored(federation, parts=None, module=None):
    source = federation.source("test", torch.device("cpu"))
    return score(module or nn.Identity(), torch.float32, source, federation, parts or split_into_chunks(federation, 9))


def by_task_of(scores):
    return {protocol: counts.sum(axis=1).tolist() for protocol, counts in scores.items()}


def count(federation, parts=None, module=None):
    return by_task_of(scored(federation, parts, module))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_logits_that_are_not_finite_have_no_accuracy(value):
    """The largest of [nan, nan, nan, nan] would be class 0, which is right for some."""
    rows = [*ROWS[:4], ([value, 0, 0, 0], 0), *ROWS[5:]]
    federation = federation_of([task((0, 1), (0, 1, 2)), task((2, 3), (3, 4, 5, 6))], ("class_il",), rows)
    with pytest.raises(Diverged, match=r"logits that are not finite for test samples of task 2, allowed: finite"):
        scored(federation)


@pytest.fixture
def classes():
    """Task 1: classes 0 1, rows 0 1 2. Task 2: classes 2 3, rows 3 4 5 6."""
    return federation_of([task((0, 1), [0, 1, 2]), task((2, 3), [3, 4, 5, 6])], ("class_il", "task_il"))


def test_class_il_and_task_il_by_hand(classes):
    assert count(classes) == {"class_il": [1, 2], "task_il": [2, 3]}
    assert accuracies(scored(classes), classes) == {"class_il": [1 / 3, 2 / 4], "task_il": [2 / 3, 3 / 4]}


def test_class_il_among_the_seen_classes_by_hand():
    """After task 1 classes 0 and 1 compete: rows 0, 1 are right, 2 says 0; on task 2 (labels 2 3) nothing can be.

    After task 2 all classes compete, as in class-IL: rows 0 | 3 6.
    """
    federation = federation_of([task((0, 1), [0, 1, 2]), task((2, 3), [3, 4, 5, 6])], ("class_il", "class_il_seen"))
    for so_far, right in ((1, [2, 0]), (2, [1, 2]), (None, [1, 2])):
        for size in (1, 3, 100):
            parts = [replace(part, so_far=so_far) for part in split_into_chunks(federation, size)]
            assert count(federation, parts) == {"class_il": [1, 2], "class_il_seen": right}


def test_the_seen_classes_are_those_of_all_tasks_so_far_in_numpy():
    """60 samples, three tasks that share class 4, random logits: the arg max of the logits with -inf for the rest."""
    draws = np.random.default_rng(0)
    x, y = draws.standard_normal((60, 6)).astype(np.float32), draws.integers(0, 6, 60)
    every = [(0, 4), (1, 2, 4), (3, 4, 5)]
    tasks = [task(some, np.flatnonzero(np.isin(y, some))) for some in every]
    rows = [*zip(x, y, strict=True)]
    federation = replace(federation_of(tasks, ("class_il_seen",), rows))
    federation = replace(federation, dataset=replace(federation.dataset, classes=6))
    for so_far in (1, 2, 3):
        masked = x.copy()
        masked[:, [label for label in range(6) if label not in set().union(*every[:so_far])]] = -np.inf
        right = masked.argmax(1) == y
        parts = [replace(part, so_far=so_far) for part in split_into_chunks(federation, 7)]
        assert count(federation, parts) == {"class_il_seen": [int(right[each.test].sum()) for each in tasks]}


def test_the_second_reading_needs_no_second_forward_pass():
    passes = []

    class Counting(nn.Module):
        def forward(self, x):
            passes.append(len(x))
            return x

    federation = federation_of(
        [task((0, 1), [0, 1, 2]), task((2, 3), [3, 4])], ("class_il", "class_il_seen", "task_il")
    )
    scored(federation, module=Counting())
    assert passes == [3, 2]


def test_a_run_reads_class_il_a_second_time_among_the_tasks_so_far(tiny, simulate):
    """Before and during task 1 only its classes compete, as in task-IL, and task 2 cannot be predicted."""
    config = tiny(scenario={"kind": "class_incremental", "tasks": 2}, evaluation={"every_rounds": 1})
    run, apart = simulate(config), simulate(config, None, [(0,), (1,), (2,)])
    assert [done.evaluation for done in apart.rounds] == [done.evaluation for done in run.rounds]
    found = [run.events[0].evaluation, *(done.evaluation for done in run.rounds)]
    for each in found[:3]:
        assert each["class_il_seen"] == [each["task_il"][0], 0]
    assert any(each["class_il_seen"] != each["class_il"] for each in found[:3])
    for each in found[3:]:
        assert each["class_il_seen"] == each["class_il"]


def test_right_answers_are_counted_by_the_class_that_a_sample_has(classes):
    """Class-IL: rows 0 | 3 6 are right, labels 0 | 3 2; task-IL: rows 0 1 | 3 4 6, labels 0 1 | 3 3 2."""
    found = scored(classes)
    assert found["class_il"].tolist() == [[1, 0, 0, 0], [0, 0, 1, 1]]
    assert found["task_il"].tolist() == [[1, 1, 0, 0], [0, 0, 1, 2]]


def test_domain_il_counts_among_all_classes_as_each_task_shows_the_samples():
    """Task 2 shows the features reversed: row 0 (9 1 2 3) becomes 3 2 1 9, answer 3, label 0: wrong.

    Reversed answers: 3, 1 (3 9 2 1), 1 (0 9 4 5), 0, 3 (2 1 8 9), 3 (2 3 8 9), 0 (5 5 0 0); labels 0 1 1 3 3 3 2:
    right are rows 1, 2, 4, 5. Unchanged: rows 0, 3, 6.
    """
    everything = range(7)
    federation = federation_of(
        [task((0, 1, 2, 3), everything), task((0, 1, 2, 3), everything, [3, 2, 1, 0])], ("domain_il",)
    )
    assert count(federation) == {"domain_il": [3, 4]}


def test_knowing_the_task_never_hurts():
    """Task-IL takes wrong competitors away, the right one never: 50 random sets of logits, 5 tasks of 2 classes."""
    draws = np.random.default_rng(0)
    for _ in range(50):
        x, y = draws.standard_normal((40, 10)).astype(np.float32), draws.integers(0, 10, 40)
        tasks = [task((c, c + 1), np.flatnonzero(y // 2 == c // 2)) for c in range(0, 10, 2)]
        federation = Federation(
            Dataset(Split(x, y), Split(x, y), 10),
            tasks,
            [],
            Availability([], [], [1]),
            ("class_il", "task_il"),
            None,
            (),
        )
        found = count(federation)
        assert all(a <= b for a, b in zip(found["class_il"], found["task_il"], strict=True))
        assert sum(found["task_il"]) > sum(found["class_il"])


def test_with_one_task_of_all_classes_they_are_equal():
    federation = federation_of([task((0, 1, 2, 3), range(7))], ("class_il", "task_il"))
    assert count(federation) == {"class_il": [3], "task_il": [3]}


def test_chunks_cover_every_test_set_once(classes):
    assert split_into_chunks(classes, 2) == [Chunk(0, 0, 2), Chunk(0, 2, 3), Chunk(1, 0, 2), Chunk(1, 2, 4)]


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_chunks_do_not_change_counts(classes, size):
    assert count(classes, split_into_chunks(classes, size)) == {"class_il": [1, 2], "task_il": [2, 3]}


@pytest.mark.parametrize(
    ("name", "shape", "knobs", "widest", "size"),
    [
        ("mlp", (784,), {"hidden": [200]}, 4 * 784, 500),
        ("mnist_cnn", (1, 28, 28), {}, 4 * 10 * 24 * 24, 500),
        ("mcmahan_cnn", (1, 28, 28), {}, 4 * 32 * 28 * 28, 334),
        ("resnet18", (3, 32, 32), {}, 4 * 64 * 32 * 32, 128),
        ("resnet18", (3, 256, 256), {}, 4 * 64 * 256 * 256, 2),
    ],
)
def test_a_chunk_is_what_the_widest_layer_has_room_for_in_32_mib(name, shape, knobs, widest, size):
    """A 5 x 5 convolution of MNIST's 28 x 28 leaves 24 x 24 unpadded; 2^25 / 100,352 = 334.4; 2^25 / 2^18 = 128."""
    model = FlatModel(resolve("model", name)(shape, 10, **knobs))
    model.module.train()
    before = {key: value.clone() for key, value in model.module.state_dict().items()}
    found = measure_activations(model, torch.zeros(2, *shape))[1]
    assert (found, chunk_size(found)) == (widest, size)
    assert all(torch.equal(value, before[key]) for key, value in model.module.state_dict().items())


def test_hosts_share_the_chunks_and_the_counts_are_added(classes):
    parts = split_into_chunks(classes, 2)
    counted = [scored(classes, parts[:1]), scored(classes, parts[1:3]), scored(classes, parts[3:])]
    assert by_task_of(counted[0]) == {"class_il": [1, 0], "task_il": [2, 0]}
    whole = scored(classes)
    for together in (merge_scores(counted), merge_scores([counted[2], counted[0], counted[1]])):
        assert {p: counts.tolist() for p, counts in together.items()} == {p: c.tolist() for p, c in whole.items()}
    assert by_task_of(merge_scores(counted[:1])) == by_task_of(counted[0])


def test_dropout_and_batchnorm_are_in_evaluation_mode(classes):
    module = nn.Sequential(nn.BatchNorm1d(4, eps=0.0, affine=False), nn.Dropout(0.9)).train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    assert count(classes, module=module) == {"class_il": [1, 2], "task_il": [2, 3]}
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_protocols_follow_from_the_scenario(tiny):
    assert build_federation(tiny()).protocols == ("domain_il",)
    by_class = {"kind": "class_incremental", "tasks": 2}
    assert build_federation(tiny(scenario=by_class)).protocols == ("class_il", "class_il_seen", "task_il")
    # no client knows which classes the others have seen
    assert build_federation(tiny(scenario={**by_class, "order": "per_client"})).protocols == ("class_il", "task_il")


def test_the_classes_that_training_admits(tiny):
    federation = build_federation(tiny(scenario={"kind": "class_incremental", "tasks": 2}))

    def admitted(federation, logits):
        return [federation.admitted(federation.streams[0], window, logits) for window in (0, 1)]

    assert admitted(federation, "task") == [(0, 1), (2, 3)]
    assert admitted(federation, "seen") == [(0, 1), (0, 1, 2, 3)]
    assert admitted(federation, "all") == [None, None]
    assert admitted(build_federation(tiny()), "task") == [None, None]
