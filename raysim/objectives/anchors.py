"""Anchors of a detector: typical sizes of boxes, given or found by k-means."""

from typing import Any

import numpy as np
import numpy.typing as npt

from raysim.objectives.boxes import PADDING

TINY_YOLO = ((0.0831, 0.0915), (0.2631, 0.3392), (0.51, 0.8754), (0.7246, 0.3931), (1.2785, 0.8092))
"""Widths and heights as fractions of the image: those of tiny YOLOv2 for VOC, given there for 13 x 13 cells."""
MOST_ROUNDS = 100


def find_anchors(targets: npt.NDArray[Any], count: int) -> list[list[float]]:
    """Return `count` anchors [w, h] for targets [N, M, 5], by area: k-means with the distance 1 - IoU of the sizes.

    YOLO9000, section 2 (Redmon and Farhadi, CVPR 2017, arXiv 1612.08242). A cluster's center has the mean width and
    height. The first centers are evenly spaced quantiles of the boxes sorted by area, so nothing is drawn.

    Raises:
        ValueError: there are fewer boxes of different sizes than `count`.
    """
    sizes = targets[targets[..., 0] != PADDING][:, 3:].astype(np.float64)
    distinct = np.unique(sizes, axis=0)
    if len(distinct) < count:
        raise ValueError(f"found {len(distinct)} boxes of different sizes, allowed: at least {count}")
    distinct = distinct[np.argsort(distinct.prod(1), kind="stable")]
    centers = distinct[(2 * np.arange(count) + 1) * len(distinct) // (2 * count)]
    for _ in range(MOST_ROUNDS):
        shared = np.minimum(sizes[:, None], centers).prod(2)
        nearest = (shared / (sizes.prod(1)[:, None] + centers.prod(1) - shared)).argmax(1)
        moved = np.stack([sizes[nearest == k].mean(0) if (nearest == k).any() else centers[k] for k in range(count)])
        if (moved == centers).all():
            break
        centers = moved
    return [[round(side, 4) for side in center] for center in centers[np.argsort(centers.prod(1))].tolist()]
