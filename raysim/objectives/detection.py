"""Object detection in one stage, as YOLO: boxes with classes, a varying number in each image.

Redmon et al., "You only look once", CVPR 2016, arXiv 1506.02640; Redmon and Farhadi, "YOLO9000", CVPR 2017, arXiv
1612.08242, and "YOLOv3", 2018, arXiv 1804.02767. A cell of a grid over the image predicts a box for each anchor.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from annotated_types import Ge, Gt, Le, Lt, MinLen, doc
from torch import Tensor
from torch.nn import functional

from raysim.objectives.anchors import TINY_YOLO
from raysim.objectives.average_precision import COCO, HALF, mean_average_precision
from raysim.objectives.boxes import PADDING, ROW, check_boxes, corners, decode, overlaps, shape_overlaps
from raysim.objectives.objective import Metric, OfAllSamples
from raysim.system.importing import import_extra, import_torchvision

FOUND = 6  # numbers of a detection: class, score, left, top, right, bottom
Side = Annotated[float, Gt(0), Le(4)]
Weight = Annotated[float, Ge(0)]


class Detection(OfAllSamples):
    """Boxes with classes: YOLO's loss; mAP50 or mAP50-95 by pycocotools (the extra detection; Redmon et al., 2016).

    Targets are float32 [N, M, 5] (class, x, y, w, h), padded with rows of class -1; see raysim.objectives.boxes. The
    outputs are [n, rows, columns, anchors * (5 + classes)]: t_x, t_y, t_w, t_h, t_o and a logit for each class.
    """

    in_image: ClassVar[bool] = True

    def __init__(
        self,
        *,
        metric: Annotated[
            Literal["mAP50", "mAP50-95"], doc("at an overlap of 0.5, or the mean over 0.5, 0.55, ... 0.95, as COCO's")
        ] = "mAP50",
        anchors: Annotated[
            tuple[tuple[Side, Side], ...], MinLen(1), doc("[w, h] of each anchor, as fractions of the image")
        ] = TINY_YOLO,
        stride: Annotated[Literal[8, 16, 32], doc("pixels of a cell's side; the model's key of that name")] = 32,
        coordinates: Annotated[Weight, doc("weight of the boxes' places and sizes")] = 5.0,
        no_object: Annotated[Weight, doc("weight of the confidence where there is no object")] = 0.5,
        ignore: Annotated[
            float, Gt(0), Le(1), doc("the overlap with an object above which a box is not taken for background")
        ] = 0.6,
        confidence: Annotated[float, Ge(0), Lt(1), doc("the smallest score of a detection")] = 0.005,
        suppress: Annotated[
            float, Ge(0), Le(1), doc("the overlap above which a box of a lower score and the same class is dropped")
        ] = 0.45,
        detections: Annotated[int, Ge(1), Le(1000), doc("the most detections of an image")] = 100,
    ) -> None:
        self.anchors, self.stride = anchors, stride
        self.coordinates, self.no_object, self.ignore = coordinates, no_object, ignore
        self.confidence, self.suppress, self.detections = confidence, suppress, detections
        self.thresholds = HALF if metric == "mAP50" else COCO
        self.metric = Metric(metric, "%", range=(0.0, 1.0))

    def check(self, targets: npt.NDArray[Any], ids: int) -> str | None:
        """Accept only boxes of known classes in the image, at least one. Raises ConfigError without pycocotools."""
        import_extra("pycocotools.cocoeval", "detection")
        return check_boxes(targets, ids)

    def outputs(self, targets: npt.NDArray[Any], ids: int) -> int:
        """Return the number of outputs of a cell: for each anchor a box, a confidence and the classes."""
        return len(self.anchors) * (ROW + ids)

    def output_shape(self, shape: tuple[int, ...], outputs: int) -> tuple[int, ...]:
        """Return the shape of the output for an image of `shape` (C, H, W): rows, columns, outputs of a cell."""
        return (*(-(-side // self.stride) for side in shape[1:]), outputs)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return YOLO's loss, summed over an image's cells and anchors, the mean over the images.

        An object is assigned to the cell of its center, there to the anchor with the largest IoU of the sizes:

            coordinates * sum_objects (2 - w h) [(sigmoid(t_x) - x')^2 + (sigmoid(t_y) - y')^2 + (t_w - w')^2 + ...]
            + sum_assigned -log sigmoid(t_o) + no_object * sum_background -log(1 - sigmoid(t_o))
            + sum_objects -log softmax(classes)[class]

        x' and y' are the center in its cell, w' and h' the logarithms of the size over the anchor's. The squares and
        both weights are YOLO's (2016, eq. 3). The parametrization and `ignore` are YOLO9000's. The logistic confidence
        is YOLOv3's (section 2.1). The factor 2 - w h, for small boxes, is that of their code.
        """
        raw, grid, anchors = self._split(outputs)
        labels, boxes = targets[..., 0], targets[..., 1:].to(raw.dtype)
        real = labels != PADDING
        columns_rows = torch.tensor([grid[1], grid[0]], dtype=raw.dtype, device=raw.device)
        # a center may be at an edge, or beyond it by rounding
        cell = (boxes[..., :2] * columns_rows).floor().clamp(torch.zeros_like(columns_rows), columns_rows - 1)
        sizes = boxes[..., 2:].where(real[..., None], torch.ones_like(anchors[0]))
        anchor = shape_overlaps(sizes, anchors).argmax(-1)
        place = (cell[..., 1] * grid[1] + cell[..., 0]).long() * len(anchors) + anchor  # [n, M]
        assigned = raw.gather(1, place[..., None].expand(*place.shape, raw.shape[-1]))
        center = (assigned[..., :2].sigmoid() - (boxes[..., :2] * columns_rows - cell)).square().sum(-1)
        size = (assigned[..., 2:4] - (sizes / anchors[anchor]).log()).square().sum(-1)
        class_logits = assigned[..., ROW:].log_softmax(-1)
        log_p = class_logits.gather(-1, labels.clamp(min=0).long()[..., None]).squeeze(-1)
        of_objects = self.coordinates * (2 - sizes.prod(-1)) * (center + size) - log_p
        # comparisons, not a scatter: the same for any order of the objects, and vmap's
        positions = torch.arange(raw.shape[1], device=raw.device)
        has_object = ((place[..., None] == positions) & real[..., None]).any(-2)
        shared = overlaps(corners(decode(raw.detach(), grid, anchors)), corners(boxes))  # [n, P, M]; padding has none
        background = ~has_object & (shared.amax(-1) <= self.ignore)
        confidence = functional.binary_cross_entropy_with_logits(
            raw[..., 4], has_object.to(raw.dtype), reduction="none"
        )
        weights = has_object.to(raw.dtype) + self.no_object * background.to(raw.dtype)
        total = of_objects.where(real, torch.zeros_like(of_objects)).sum() + (weights * confidence).sum()
        return total / len(raw)

    def predict(self, outputs: Tensor) -> Tensor:
        """Return the detections [n, D, 6]: class, score, left, top, right, bottom; rows of class -1 are none.

        A box has its most likely class. The score is the confidence times the class's probability. Of overlapping boxes
        of a class, the one with the largest score stays (non-maximum suppression).
        """
        suppress = import_torchvision("ops", "objective detection").batched_nms
        raw, grid, anchors = self._split(outputs)
        boxes = corners(decode(raw, grid, anchors))
        probability, label = raw[..., ROW:].softmax(-1).max(-1)
        score = raw[..., 4].sigmoid() * probability
        found = raw.new_zeros(len(raw), self.detections, FOUND)
        found[..., 0] = PADDING
        for image, of_image in enumerate(found):
            likely = (score[image] > self.confidence).nonzero().squeeze(1)
            kept = suppress(boxes[image, likely], score[image, likely], label[image, likely], self.suppress)
            best = likely[kept[: self.detections]]
            columns = label[image, best, None].to(raw.dtype), score[image, best, None], boxes[image, best]
            of_image[: len(best)] = torch.cat(columns, 1)
        return found

    def measure(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """Return each sample's detections and target in a row, [n, 6 D + 5 M]."""
        return torch.cat([predictions.double().flatten(1), targets.double().flatten(1)], 1)

    def value_of(self, rows: npt.NDArray[np.float64]) -> float:
        """Return the mean average precision of all samples' detections."""
        detections, targets = np.split(rows, [FOUND * self.detections], 1)
        n = len(rows)
        return mean_average_precision(detections.reshape(n, -1, FOUND), targets.reshape(n, -1, ROW), self.thresholds)

    def _split(self, outputs: Tensor) -> tuple[Tensor, tuple[int, int], Tensor]:
        """Return the outputs by place [n, rows * columns * anchors, 5 + K], the grid, and the anchors [A, 2]."""
        n, rows, columns, _ = outputs.shape
        anchors = torch.tensor(self.anchors, dtype=outputs.dtype, device=outputs.device)
        return outputs.reshape(n, rows * columns * len(anchors), -1), (rows, columns), anchors
