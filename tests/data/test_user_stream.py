"""Streams of the user's own: held window by window, read again where asked for, refused where they are not alike."""

import numpy as np
import pytest
import torch

from raysim.data.custom_stream import CustomStream
from raysim.data.dataset import Dataset, Split
from raysim.data.scenario import Task
from raysim.federation.federation import build_federation
from raysim.system.errors import ConfigError, RunError

LIKE = Dataset(*(Split(np.zeros((3, 6), np.float32), np.array([0, 1, 2])) for _ in range(2)), classes=4)
OPENED: list = []


def sample(client, position):
    """x is 100 client + position in every feature, y its remainder by 4."""
    return np.full(6, 100 * client + position, np.float32), position % 4


def endless(client, start):
    OPENED.append((client, start))
    while True:
        yield sample(client, start)
        start += 1


def short(client, start):
    return (sample(client, position) for position in range(start, 25))


def double(client, start):
    while True:
        yield np.zeros(6), 0


def label_of_its_own(client, start):
    while True:
        yield np.zeros(6, np.float32), 4


def forgets_to_yield(client, start):
    sample(client, start)


def number(client, start):
    while True:
        yield np.zeros(6, np.float32), [start / 4, 1]
        start += 1


@pytest.fixture
def opened():
    OPENED.clear()
    return CustomStream(endless, 2, LIKE)


def test_a_window_is_read_once_and_what_is_kept_is_not_read_again(opened):
    opened.hold(torch.arange(10, 14))
    rows = opened.held(torch.tensor([13, 10]))
    assert opened.labels(rows).tolist() == [1, 2]
    assert opened.fetch(rows, 7)[:, 0].tolist() == [213, 210]  # whatever the task
    opened.hold(torch.tensor([14, 15, 11]))
    assert opened.fetch(opened.held(torch.tensor([11, 15])), 0)[:, 5].tolist() == [211, 215]
    assert OPENED == [(2, 10), (2, 14)]


def test_what_is_no_longer_held_is_opened_at_its_position_and_moves_nothing(opened):
    """An epoch's rows are looked up once, before other samples may be asked for."""
    opened.hold(torch.arange(4, 8))
    before = opened.held(torch.tensor([7, 4]))
    assert opened.fetch(opened.held(torch.tensor([0, 5, 90])), 0)[:, 0].tolist() == [200, 205, 290]
    assert opened.fetch(before, 0)[:, 0].tolist() == [207, 204]
    assert opened.labels(before).tolist() == [3, 0]
    assert OPENED == [(2, 4), (2, 0), (2, 90)]


@pytest.mark.parametrize(
    ("opener", "words"),
    [
        (short, "client 2: its stream ended at position 25, but 30 samples are asked for; lower"),
        (double, r"double \(.*:\d+\) yielded, as sample 20 of client 2, float64 \(6,\), allowed: float32 \(6,\)"),
        (label_of_its_own, r"\) yielded, as sample 20 of client 2, the label 4, allowed: 0 to 3"),
        (
            forgets_to_yield,
            r"stream: forgets_to_yield \(.*stream\.py:\d+\) returned NoneType for client 2, allowed: an iterator",
        ),
    ],
)
def test_what_is_wrong_with_a_stream_is_one_line(opener, words):
    with pytest.raises(RunError, match=words):
        CustomStream(opener, 2, LIKE).hold(torch.arange(20, 30))


@pytest.mark.parametrize("largest", [4, 5])
def test_ids_of_a_stream_are_the_data_sets(largest):
    """Of five ids, 0 to 4; what is no id would be looked up beyond a model's table."""
    like = Dataset(*(Split(np.zeros((3, 2), np.int64), np.zeros(3, np.int64)) for _ in range(2)), 1, vocabulary=5)
    stream = CustomStream(lambda client, start: iter([(np.array([0, largest]), 0)]), 2, like)
    if largest < 5:
        rows = stream.held(torch.tensor([0]))
        assert stream.fetch(rows, 0).tolist() == [[0, 4]]
        assert stream.fetch(rows, 0).dtype == torch.int64
    else:
        with pytest.raises(RunError, match=r"sample 0 of client 2, ids from 0 to 5, allowed: ids from 0 to 4"):
            stream.hold(torch.tensor([0]))


def test_targets_are_like_the_tests():
    like = Dataset(*(Split(np.zeros((3, 6), np.float32), np.zeros((3, 2), np.float32)) for _ in range(2)), classes=1)
    opened = CustomStream(number, 0, like)
    opened.hold(torch.arange(4, 7))
    assert opened.labels(opened.held(torch.tensor([6, 4]))).tolist() == [[1.5, 1], [1.0, 1]]
    with pytest.raises(RunError, match=r"sample 4 of client 0, a target of int64 \(\), allowed: float32 \(2,\)"):
        CustomStream(endless, 0, like).hold(torch.arange(4, 7))


def streamed(tiny, name="endless", **more):
    windows = {"window": 8, "windows": 3, "rounds_per_window": 2, "stream": f"test_user_stream:{name}"}
    scenario = {"kind": "class_incremental", "tasks": 2}
    boundaries = {"boundaries": {"asynchronous": windows}}
    return tiny(scenario=scenario | boundaries, training__rounds_per_task=None, **more)


@pytest.mark.parametrize("methods", [{}, {"er": {}, "fed_a_gem": {}}, {"joint": {}}])
def test_a_run_trains_on_it(tiny, simulate, methods):
    config = streamed(tiny, methods=methods, memory={"capacity": 3})
    run = simulate(config)
    assert len(run.rounds) == 6
    assert simulate(config).sha256 == run.sha256


def test_it_gives_the_bits_of_the_same_samples_in_a_data_set(tiny, simulate):
    """The dataset's own samples, handed over one by one; in one window, so that nothing is shuffled beforehand."""
    one = {"kind": "class_incremental", "tasks": 1}
    windows = {"window": 12, "windows": 1, "rounds_per_window": 3, "stream": "test_user_stream:again"}
    config = tiny(scenario=one | {"boundaries": {"asynchronous": windows}}, training__rounds_per_task=None,
                  methods={"er": {}}, memory={"capacity": 5})  # fmt: skip
    plain = tiny(scenario=one, training__rounds_per_task=3, methods={"er": {}}, memory={"capacity": 5})
    AGAIN.clear()
    whole = simulate(plain)
    federation = whole.simulation.federation
    for client, stream in enumerate(federation.streams):
        shown = federation.dataset.train.x[stream.rows[0]]
        AGAIN[client] = list(zip(shown, federation.dataset.train.y[stream.rows[0]], strict=True))
    assert simulate(config).sha256 == whole.sha256


AGAIN: dict = {}


def again(client, start):
    return iter(AGAIN[client][start:])


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        ({"stream": "test_user_stream:endless"}, "windows: found one of stream and windows, allowed: both or none"),
        ({"stream": "endless", "windows": 2}, "stream: unknown stream 'endless'; allowed: none, or your own as"),
        ({"stream": "test_user_stream:gone", "windows": 2}, "stream: .*gone"),
    ],
)
def test_a_stream_that_is_not_there_is_refused_at_once(tiny, stream, words):
    scenario = {"kind": "domain_incremental", "tasks": 1}
    with pytest.raises(ConfigError, match=words):
        tiny(scenario=scenario | {"boundaries": {"asynchronous": {"window": 4, **stream}}})


def turned(dataset, tasks, generator, *, pixels: bool = True):
    """A custom scenario: the second task shows the test samples with their features in the opposite order."""
    rows, opposite = np.arange(len(dataset.test)), np.arange(int(np.prod(dataset.shape)))[::-1].copy()
    maps = [None, opposite if pixels else None]
    classes, train = tuple(range(dataset.classes)), np.arange(len(dataset.train))
    return [Task(name, classes, which, train, rows) for name, which in zip(("as is", "turned"), maps, strict=True)]


def test_a_scenario_that_would_change_the_tests_alone_is_refused(tiny):
    """A stream's samples come as they are, so a map of pixels would change only what the model is tested on."""
    windows = {"window": 8, "windows": 3, "rounds_per_window": 2, "stream": "test_user_stream:endless"}
    own = {"kind": "test_user_stream:turned", "tasks": 2, "boundaries": {"asynchronous": windows}}
    said = (
        r"^scenario\.kind: found 'test_user_stream:turned', which changes the pixels of the task turned, allowed: "
        r"tasks with pixels=None with a custom stream, whose samples they would not change$"
    )
    with pytest.raises(ConfigError, match=said):
        build_federation(tiny(scenario=own, training__rounds_per_task=None))
    config = tiny(scenario=own | {"pixels": False}, training__rounds_per_task=None)
    assert [task.name for task in build_federation(config).tasks] == ["as is", "turned"]
