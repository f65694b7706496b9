"""A file of TensorBoard's: scalars, images, a histogram, text, hyperparameters and the layout of charts.

Everything is written by the caller's thread. `torch.utils.tensorboard.SummaryWriter` hands it to a thread of its own,
which prints a traceback if the disk is full.
"""

import os
import socket
import time
from collections.abc import Mapping, Sequence
from io import BytesIO
from itertools import count
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.plugins.custom_scalar.layout_pb2 import Category, Chart, Layout, MultilineChartContent
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.summary.writer.record_writer import RecordWriter

NAME = "events.out.tfevents"
NUMBERS = count()  # of the files of this process, which may begin several in one second
POSITIVE = np.multiply.accumulate([1e-12, *[1.1] * 773])
EDGES = np.concatenate([-POSITIVE[::-1], [0.0], POSITIVE])  # TensorBoard's usual bins, up to 1e20: each is 10% wider


class EventFile:
    """A new file of TensorBoard's in a directory. Every method raises OSError if the file cannot be written.

    Args:
        directory: the directory, which exists.
    """

    def __init__(self, directory: Path) -> None:
        # TensorBoard finds files by the first part of their names, and reads a directory's in the names' order
        name = f"{NAME}.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{next(NUMBERS):06d}"
        self._records = RecordWriter((directory / name).open("xb"))
        self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))
        self.flush()

    def flush(self) -> None:
        """Write the buffer to the file."""
        self._records.flush()

    def close(self) -> None:
        """Write the buffer to the file and close it."""
        self._records.close()

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        """Write a number."""
        self._add(Summary.Value(tag=tag, simple_value=float(value)), step)

    def add_image(self, tag: str, image: npt.NDArray[np.uint8], step: int) -> None:
        """Write an image (uint8 [H, W, 3])."""
        height, width, channels = image.shape
        png = BytesIO()
        Image.fromarray(image).save(png, format="PNG")
        encoded = Summary.Image(height=height, width=width, colorspace=channels, encoded_image_string=png.getvalue())
        self._add(Summary.Value(tag=tag, image=encoded), step)

    def add_histogram(self, tag: str, values: Sequence[float], step: int) -> None:
        """Write the distribution of at least one number."""
        numbers = np.asarray(values, dtype=float)
        counts, edges = np.histogram(numbers, EDGES)
        filled = np.flatnonzero(counts)
        first, last = int(filled[0]), int(filled[-1])
        # TensorBoard reads the right edge of each bin, so an empty bin in front gives the left edge of the first one
        histogram = HistogramProto(
            min=numbers.min(),
            max=numbers.max(),
            num=len(numbers),
            sum=numbers.sum(),
            sum_squares=numbers @ numbers,
            bucket_limit=edges[first : last + 2],
            bucket=[0, *counts[first : last + 1]],
        )
        self._add(Summary.Value(tag=tag, histo=histogram), step)

    def add_text(self, tag: str, text: str) -> None:
        """Write a text in Markdown."""
        shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
        tensor = TensorProto(dtype="DT_STRING", string_val=[text.encode()], tensor_shape=shape)
        self._add(Summary.Value(tag=f"{tag}/text_summary", tensor=tensor, metadata=_shown_by("text")))

    def add_hparams(self, settings: Mapping[str, int | float | str]) -> None:
        """Write the run's hyperparameters, without the columns of an experiment.

        Of the experiments in several runs TensorBoard reads one, and would show the columns of that run only. If there
        is none, it shows the columns of all runs.
        """
        for value in hparams_pb(dict(settings), trial_id="", start_time_secs=0).value:
            self._add(value)

    def add_charts(self, categories: Mapping[str, Mapping[str, Sequence[str]]]) -> None:
        """Write the charts of CUSTOM SCALARS: by category and title, patterns of the scalars' tags."""
        layout = Layout()
        for category, charts in categories.items():
            drawn = [Chart(title=title, multiline=MultilineChartContent(tag=tags)) for title, tags in charts.items()]
            layout.category.append(Category(title=category, chart=drawn))
        tensor = TensorProto(
            dtype="DT_STRING", string_val=[layout.SerializeToString()], tensor_shape=TensorShapeProto()
        )
        metadata = _shown_by("custom_scalars")
        self._add(Summary.Value(tag="custom_scalars__config__", tensor=tensor, metadata=metadata))

    def _add(self, value: Summary.Value, step: int = 0) -> None:
        self._write(Event(wall_time=time.time(), step=step, summary=Summary(value=[value])))

    def _write(self, event: Event) -> None:
        self._records.write(event.SerializeToString())


def _shown_by(plugin: str) -> SummaryMetadata:
    return SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name=plugin))
