"""Boxes in images: targets as rows of a fixed number, corners, overlaps, and the boxes that a detector's outputs mean.

A box is (x, y, w, h): its center, width and height, as fractions of the image's width and height. A target is [M, 5]:
a class and a box in each row. Rows of the class -1 are padding, so that all samples have the same shape.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

ROW = 5  # numbers of a target's row: class, x, y, w, h
PADDING = -1.0  # the class of a row that is no box
EDGE = 1e-4  # how far a box may be beyond the image, in fractions: float32 and rounded files are not exact


def corners(boxes: Tensor) -> Tensor:
    """Return boxes (x, y, w, h) [..., 4] as corners (left, top, right, bottom), clipped to the image."""
    center, half = boxes[..., :2], boxes[..., 2:] / 2
    return torch.cat([center - half, center + half], -1).clamp(0, 1)


def overlaps(boxes: Tensor, others: Tensor) -> Tensor:
    """Return the intersections over unions [..., P, M] of corners [..., P, 4] and [..., M, 4]; 0 without any area."""
    first, second = boxes[..., :, None, :], others[..., None, :, :]
    sides = torch.minimum(first[..., 2:], second[..., 2:]) - torch.maximum(first[..., :2], second[..., :2])
    shared = sides.clamp(min=0).prod(-1)
    areas = (first[..., 2:] - first[..., :2]).prod(-1) + (second[..., 2:] - second[..., :2]).prod(-1)
    return shared / (areas - shared).clamp(min=torch.finfo(boxes.dtype).tiny)


def shape_overlaps(sizes: Tensor, anchors: Tensor) -> Tensor:
    """Return the intersections over unions [..., A] of boxes with sizes [..., 2] and anchors [A, 2] at one center."""
    shared = torch.minimum(sizes[..., None, :], anchors).prod(-1)
    return shared / (sizes.prod(-1)[..., None] + anchors.prod(-1) - shared)


def decode(raw: Tensor, grid: tuple[int, int], anchors: Tensor) -> Tensor:
    """Return the boxes [n, P, 4] of outputs [n, P, 5 + K], P = rows x columns x anchors, the anchors last.

    YOLO9000, section 2: x = (column + sigmoid(t_x)) / columns and w = anchor's w * exp(t_w); y and h alike.
    """
    rows, columns = grid
    place = torch.arange(rows * columns, device=raw.device).repeat_interleave(len(anchors))
    cells = torch.stack([place % columns, place // columns], -1).to(raw.dtype)
    center = (cells + raw[..., :2].sigmoid()) / torch.tensor([columns, rows], dtype=raw.dtype, device=raw.device)
    return torch.cat([center, anchors.repeat(rows * columns, 1) * raw[..., 2:4].exp()], -1)


def check_boxes(targets: npt.NDArray[Any], classes: int) -> str | None:
    """Return a problem with targets [N, M, 5] of a split, as `found ..., allowed: ...`, or None."""
    if targets.dtype != np.float32 or targets.ndim != 3 or targets.shape[2] != ROW:
        return f"found targets of {targets.dtype} {[*targets.shape]}, allowed: boxes, float32 [N, M, 5]"
    labels = targets[..., 0]
    real = labels != PADDING
    if not real.any():
        return "found no box, allowed: at least one, as the mean average precision needs"
    problems = (
        ((labels != np.floor(labels)) | (labels < PADDING) | (labels >= classes), f"classes 0 to {classes - 1}"),
        (real & (targets[..., 3:] <= 0).any(-1), "boxes with a width and a height above 0"),
        (real & (np.abs(targets[..., 1:3] - 0.5) + targets[..., 3:] / 2 > 0.5 + EDGE).any(-1), "boxes in the image"),
    )
    for wrong, allowed in problems:
        if wrong.any():
            sample, row = np.argwhere(wrong)[0].tolist()
            found = ", ".join(f"{value:g}" for value in targets[sample, row].tolist())
            return f"found (class, x, y, w, h) = ({found}) in sample {sample}, allowed: {allowed}"
    return None


def pad_boxes(boxes: Sequence[Sequence[Sequence[float]]], most: int) -> npt.NDArray[np.float32]:
    """Return lists of rows (class, x, y, w, h), at most `most` for each sample, as targets float32 [N, most, 5]."""
    targets = np.zeros((len(boxes), most, ROW), np.float32)
    targets[..., 0] = PADDING
    for target, rows in zip(targets, boxes, strict=True):
        if len(rows):
            target[: len(rows)] = rows
    return targets
