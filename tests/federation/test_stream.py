import numpy as np
import pytest
import torch

from raysim.federation.stream import Stream


@pytest.fixture
def stream():
    """Four windows: rows 4 7 9, none, 1 4, 8. Positions 0 1 2 | | 3 4 | 5."""
    return Stream([np.array(rows, np.int32) for rows in ([4, 7, 9], [], [1, 4], [8])])


def test_sizes_and_spans(stream):
    assert stream.windows == 4
    assert [stream.size(window) for window in range(4)] == [3, 0, 2, 1]
    assert stream.span(0, 1).tolist() == [0, 1, 2]
    assert stream.span(1, 2).tolist() == []
    assert stream.span(1, 4).tolist() == [3, 4, 5]
    assert stream.span(2, 2).tolist() == []
    assert stream.span(0, 1).dtype == torch.int64


def test_positions_of_one_task_have_one_number(stream):
    rows, task = stream.locate(torch.tensor([2, 0, 2]))
    assert rows.tolist() == [9, 4, 9]
    assert rows.dtype == torch.int64
    assert task == 0
    rows, task = stream.locate(torch.tensor([3]))  # the first after an empty window
    assert (rows.tolist(), task) == ([1], 2)


def test_positions_of_several_tasks_keep_their_order(stream):
    rows, tasks = stream.locate(torch.tensor([5, 0, 4, 1, 3]))
    assert rows.tolist() == [8, 4, 4, 7, 1]
    assert tasks.tolist() == [3, 0, 2, 0, 2]


def test_a_row_in_two_tasks_is_two_positions(stream):
    """Row 4 is position 0 (task 0) and position 4 (task 2): an image turned is another sample."""
    rows, tasks = stream.locate(torch.tensor([0, 4]))
    assert rows.tolist() == [4, 4]
    assert tasks.tolist() == [0, 2]


def test_no_positions_have_no_rows(stream):
    rows, _ = stream.locate(torch.zeros(0, dtype=torch.int64))
    assert rows.tolist() == []


def test_tasks_may_share_one_array():
    shared = np.array([5, 6], np.int32)
    rows, tasks = Stream([shared, shared]).locate(torch.tensor([3, 0]))
    assert rows.tolist() == [6, 5]
    assert tasks.tolist() == [1, 0]
