"""Mean average precision of detections, computed by pycocotools, COCO's own code (the extra detection)."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from typing import Any

import numpy as np
import numpy.typing as npt

from raysim.objectives.boxes import PADDING
from raysim.system.importing import import_extra

Array = npt.NDArray[Any]

HALF = (0.5,)
COCO = tuple(np.linspace(0.5, 0.95, 10).tolist())
"""COCO's thresholds of the overlap."""


def mean_average_precision(detections: Array, targets: Array, thresholds: tuple[float, ...]) -> float:
    """Return the mean over classes and thresholds of the average precision, with COCO's definition.

    Detections are ranked by score. One is right if its overlap with a target of its class, not found before in the
    image, is at least the threshold. The average precision is the mean, over 101 recalls, of the largest precision at
    that recall or above. Classes without a target do not count (Lin et al., ECCV 2014, arXiv 1405.0312; COCOeval).

    Args:
        detections: [N, D, 6] (class, score, left, top, right, bottom), the class -1 for none.
        targets: [N, M, 5] (class, x, y, w, h), the class -1 for none.
        thresholds: the smallest overlaps of a right detection.

    Raises:
        ZeroDivisionError: there is no target.
    """
    found, true = detections[..., 0] != PADDING, targets[..., 0] != PADDING
    if not true.any():
        raise ZeroDivisionError("no target has a box")
    if not found.any():
        return 0.0
    classes = np.unique(targets[true][:, 0]).astype(int).tolist()
    images = [*range(len(targets))]
    coco, evaluation = import_extra("pycocotools.coco", "detection"), import_extra("pycocotools.cocoeval", "detection")
    with redirect_stdout(io.StringIO()):  # it prints what it does
        truth, given = coco.COCO(), coco.COCO()
        corner = targets[..., 1:3] - targets[..., 3:] / 2
        sets = (
            (truth, true, targets[..., 0], np.concatenate([corner, targets[..., 3:]], -1), true.astype(float)),
            (given, found, detections[..., 0], _as_corner_and_size(detections[..., 2:]), detections[..., 1]),
        )
        for one, present, labels, boxes, scores in sets:
            one.dataset = {"images": [{"id": number} for number in images], "categories": [{"id": c} for c in classes]}
            one.dataset["annotations"] = [
                {
                    "id": number + 1,
                    "image_id": image,
                    "category_id": int(labels[image, row]),
                    "bbox": boxes[image, row].tolist(),
                    "area": float(boxes[image, row, 2:].prod()),
                    "iscrowd": 0,
                    "score": float(scores[image, row]),
                }
                for number, (image, row) in enumerate(np.argwhere(present).tolist())
            ]
            one.createIndex()
        judge = evaluation.COCOeval(truth, given, "bbox")
        judge.params.imgIds, judge.params.catIds = images, classes
        judge.params.iouThrs = np.array(thresholds)
        judge.params.maxDets = [detections.shape[1]]
        judge.params.areaRng, judge.params.areaRngLbl = [[0, 1e10]], ["all"]
        judge.evaluate()
        judge.accumulate()
    precision = judge.eval["precision"]  # [thresholds, recalls, classes, 1, 1], -1 where a class has no target
    return float(precision[precision > -1].mean())


def _as_corner_and_size(boxes: Array) -> Array:
    """Return (left, top, right, bottom) as (left, top, width, height)."""
    return np.concatenate([boxes[..., :2], boxes[..., 2:] - boxes[..., :2]], -1)
