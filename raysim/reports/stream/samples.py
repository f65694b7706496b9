"""The samples that the stream's picture shows: small images, maybe with boxes, or the first words of texts."""

import base64
from dataclasses import dataclass
from io import BytesIO
from typing import Literal

import numpy as np
from PIL import Image, ImageDraw

from raysim.data.dataset import Array
from raysim.data.tokens import FIRST_WORD
from raysim.federation.federation import Federation
from raysim.objectives.boxes import PADDING

LARGEST = 32  # pixels a side
LARGEST_WITH_BOXES = 64
MOST_WORDS = 16
FRAMES = ((255, 64, 64), (255, 190, 0), (70, 235, 70), (80, 170, 255), (235, 90, 235), (90, 235, 220))  # by class

Kind = Literal["images", "texts", "numbers"]


@dataclass(frozen=True)
class Sample:
    """A sample as the picture shows it."""

    task: int
    """Its task, from 0."""
    words: str = ""
    """The beginning of a text."""
    image: str = ""
    """An image as a data URI."""


class Samples:
    """The samples of a federation, as their clients see them before augmentation and normalization."""

    def __init__(self, federation: Federation) -> None:
        self._federation = federation

    @property
    def kind(self) -> Kind | None:
        """What samples are; None if they cannot be shown: their files are missing, or clients open their streams."""
        dataset = self._federation.dataset
        if dataset.missing or self._federation.opener is not None:
            return None
        if dataset.vocabulary is not None:
            return "texts"
        channels = dataset.shape[0]
        return "images" if len(dataset.shape) == 3 and channels in (1, 3) else "numbers"

    def of_window(self, client: int, window: int, count: int) -> list[Sample]:
        """Return up to `count` samples of a client's window, evenly spaced, so that they are of all its tasks."""
        stream = self._federation.streams[client]
        positions = stream.span(window, window + 1)
        count = min(count, len(positions))
        chosen = positions[[(2 * number + 1) * len(positions) // (2 * count) for number in range(count)]]
        rows, tasks = stream.locate(chosen)
        every = [int(tasks)] * count if isinstance(tasks, int) else tasks.tolist()
        return [self._show(row, task) for row, task in zip(rows.tolist(), every, strict=True)]

    def of_task(self, task: int, count: int) -> list[Sample]:
        """Return up to `count` training samples of a task, of different classes if possible."""
        rows, train = self._federation.tasks[task].train, self._federation.dataset.train
        if train.labelled:
            _, first = np.unique(train.y[rows], return_index=True)
            rows = rows[np.sort(first)] if len(first) >= count else rows
        return [self._show(row, task) for row in rows[:count].tolist()]

    def _show(self, row: int, task: int) -> Sample:
        x = self._federation.dataset.train.x[row]
        if self.kind == "texts":
            return Sample(task, words=self._read(x))
        pixels = self._federation.tasks[task].pixels
        if pixels is not None:
            x = np.where(pixels < 0, 0, x.reshape(-1)[pixels]).astype(x.dtype).reshape(x.shape)
        boxes = self._federation.dataset.train.y[row] if self._federation.objective.in_image else None
        return Sample(task, image=encode_image(x, boxes))

    def _read(self, ids: Array) -> str:
        """Return the first words of a text; the numbers of ids that have no words."""
        words, known = self._federation.dataset.words, [number for number in ids.reshape(-1).tolist() if number]
        if words is None:
            return " ".join(map(str, known[:MOST_WORDS]))
        return " ".join(words[number - FIRST_WORD] if number >= FIRST_WORD else "?" for number in known[:MOST_WORDS])


def encode_image(x: Array, boxes: Array | None = None) -> str:
    """Return an image [C, H, W] as a data URI, made smaller if it is large. Floats are scaled to their range.

    Boxes [M, 5] (see raysim.objectives.boxes) are drawn into it, in a color for each class.
    """
    if x.dtype != np.uint8:
        low, high = float(x.min()), float(x.max())
        low, high = (0.0, 1.0) if low >= 0 and high <= 1 else (low, high)
        x = np.rint((x - low) * (255 / ((high - low) or 1))).astype(np.uint8)
    image = Image.fromarray(x[0] if len(x) == 1 else np.ascontiguousarray(x.transpose(1, 2, 0)))
    most = LARGEST if boxes is None else LARGEST_WITH_BOXES
    if max(image.size) > most:
        image.thumbnail((most, most), Image.Resampling.BILINEAR)
    if boxes is not None:
        image = draw_boxes(image, boxes)
    written = BytesIO()
    form = "PNG" if image.mode == "L" else "JPEG"  # which is a third of the size where there are colors
    image.save(written, form, optimize=True)
    return f"data:image/{form.lower()};base64,{base64.b64encode(written.getvalue()).decode()}"


def draw_boxes(image: Image.Image, boxes: Array) -> Image.Image:
    """Return an image with its boxes [M, 5] (class, x, y, w, h) as frames, in a color for each class."""
    image = image.convert("RGB")
    pen = ImageDraw.Draw(image)
    for label, x, y, w, h in boxes[boxes[:, 0] != PADDING].tolist():
        left, top = (x - w / 2) * image.width, (y - h / 2) * image.height
        right, bottom = (x + w / 2) * image.width - 1, (y + h / 2) * image.height - 1
        pen.rectangle((left, top, max(left, right), max(top, bottom)), outline=FRAMES[int(label) % len(FRAMES)])
    return image
