"""Few labels: which of a client's samples have one, and the streams of those with and without."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from raysim.data.dataset import Split
from raysim.federation.stream import Stream
from raysim.system import seeding


def divide_by_label(
    streams: Sequence[Stream], train: Split, rate: float, seed: int
) -> tuple[list[Stream], list[Stream]]:
    """Return each client's stream of the samples with a label, and its stream of the others, with the same windows.

    Of a client's n samples of one class that first arrive in one task, round(rate * n) have a label, at least one. If
    targets are not labels, the samples of a task count as one class. A sample that returns in later tasks, as with
    rotations, is the same in all. The draws depend on the seed and the client only, and a larger rate adds labels to
    the same samples.
    """
    marked = [
        _draw(stream, train, rate, seeding.generator(seed, "labels", client)) for client, stream in enumerate(streams)
    ]
    with_labels = [stream.take(has_label) for stream, has_label in zip(streams, marked, strict=True)]
    return with_labels, [stream.take(~has_label) for stream, has_label in zip(streams, marked, strict=True)]


def _draw(stream: Stream, train: Split, rate: float, draws: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Return which rows of the training split have a label at a client: bool [N]."""
    has_label = np.zeros(len(train), dtype=bool)
    if not len(stream):
        return has_label
    rows, first = np.unique(np.concatenate(stream.rows), return_index=True)
    task = np.repeat(stream.tasks, [len(portion) for portion in stream.rows])[first]
    label = train.y[rows] if train.labelled else np.zeros_like(task)
    _, group, sizes = np.unique(np.stack([task, label]), axis=1, return_inverse=True, return_counts=True)
    in_random_order = draws.permutation(len(rows))
    by_group = in_random_order[np.argsort(group.reshape(-1)[in_random_order], kind="stable")]
    for members in np.split(by_group, np.cumsum(sizes)[:-1]):
        has_label[rows[members[: max(1, round(rate * len(members)))]]] = True
    return has_label
