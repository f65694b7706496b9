"""Detection: the loss against NumPy, the mean average precision by hand and against the library, and its parts."""

import contextlib
import io
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from torch.func import grad, vmap

from raysim.evaluation.metric_sums import collect_rows, evaluate_metric, merge_sums
from raysim.models.tiny_yolo import tiny_yolo
from raysim.objectives.anchors import find_anchors
from raysim.objectives.boxes import check_boxes, corners, overlaps, pad_boxes
from raysim.objectives.detection import Detection
from raysim.system.errors import Diverged, RunError

UNIT = 1 / 100  # boxes below are in hundredths of an image
NOTHING = [-1.0, 0, 0, 0, 0, 0]


def target(*rows: tuple[int, float, float, float, float], most: int = 4) -> Any:
    """A target [most, 5] from rows (class, left, top, right, bottom) in hundredths."""
    boxes = [[c, (x0 + x1) / 2 * UNIT, (y0 + y1) / 2 * UNIT, (x1 - x0) * UNIT, (y1 - y0) * UNIT]
             for c, x0, y0, x1, y1 in rows]  # fmt: skip
    return torch.from_numpy(pad_boxes([boxes], most)[0])


def found(*rows: tuple[int, float, float, float, float, float], most: int = 6) -> Any:
    """Detections [most, 6] from rows (class, score, left, top, right, bottom) in hundredths."""
    padded = [[c, s, *(side * UNIT for side in box)] for c, s, *box in rows]
    return torch.tensor(padded + [NOTHING] * (most - len(rows)))


def value(detections: Any, targets: Any, metric: Any = "mAP50", hosts: int = 1) -> float:
    """The metric of images in chunks of one, which `hosts` evaluate in turn."""
    objective = Detection(metric=metric, detections=len(detections[0]))
    rows = [*objective.measure(torch.stack(detections), torch.stack(targets)).split(1)]
    parts = [collect_rows(objective, [[*range(k, len(rows), hosts)]], [rows[k::hosts]]) for k in range(hosts)]
    return evaluate_metric(objective, merge_sums(parts[::-1])[0].tolist(), len(rows), "task 1")


CAR, OTHER = (0, 10, 10, 30, 30), (0, 60, 60, 80, 80)
CASES = [
    # the box itself: precision 1 at every recall
    ("exact", [found((0, 0.9, 10, 10, 30, 30))], [target(CAR)], 1.0),
    # one of two objects: precision 1 at recalls 0, 0.01, ..., 0.5, which are 51 of 101, and 0 above
    ("missed", [found((0, 0.9, 10, 10, 30, 30))], [target(CAR, OTHER)], 51 / 101),
    # a wrong box ranks first, then both objects: precisions 0, 1/2, 2/3. The largest at any recall or above is 2/3
    ("ranked", [found((0, 0.9, 40, 10, 50, 20), (0, 0.8, 10, 10, 30, 30), (0, 0.7, 60, 60, 80, 80))],
     [target(CAR, OTHER)], 2 / 3),
    # the second box of an object is wrong: precisions 1, 1/2, 2/3. Recall to 0.5 has 1, the other 50 recalls 2/3
    ("double", [found((0, 0.9, 10, 10, 30, 30), (0, 0.8, 11, 11, 30, 30), (0, 0.7, 60, 60, 80, 80))],
     [target(CAR, OTHER)], (51 + 50 * 2 / 3) / 101),
    # class 0 is found; class 1 is taken for class 0 in another image, at a lower score: 1 and 0. Class 2 is nowhere
    ("classes", [found((0, 0.9, 10, 10, 30, 30)), found((0, 0.5, 60, 60, 80, 80), (2, 0.9, 0, 0, 9, 9))],
     [target(CAR), target((1, 60, 60, 80, 80))], 0.5),
]  # fmt: skip


@pytest.mark.parametrize(("detections", "targets", "wanted"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_map50_by_hand(detections: Any, targets: Any, wanted: float) -> None:
    assert value(detections, targets) == pytest.approx(wanted, rel=1e-12)


def test_map50_95_by_hand() -> None:
    """Of width 20, shifted by 2.9: IoU 17.1 / 22.9 = 0.747, right at 0.5, 0.55, ..., 0.7 alone, 5 of 10 thresholds."""
    shifted = [found((0, 0.9, 12.9, 10, 32.9, 30))]
    assert value(shifted, [target(CAR)], "mAP50-95") == pytest.approx(0.5, rel=1e-12)
    assert value(shifted, [target(CAR)]) == pytest.approx(1, rel=1e-12)


def random_images(images: int) -> tuple[list[Any], list[Any]]:
    """Up to four objects of three classes in each image, and detections near them. Scores are rounded: some tie."""
    draws, detections, targets = np.random.default_rng(5), [], []
    for number in range(images):
        corner, size = draws.uniform(0, 60, (4, 2)), draws.uniform(8, 40, (4, 2))
        labels = draws.integers(0, 3, 4).tolist()
        boxes = np.hstack([corner, corner + size])
        count = number % 5  # image 0 has no object
        targets.append(target(*[(c, *box) for c, box in zip(labels[:count], boxes.tolist(), strict=False)]))
        moved = np.clip(boxes + draws.normal(0, 3, boxes.shape), 0, 100)
        guessed = np.where(draws.random(4) < 0.8, labels, draws.integers(0, 3, 4)).tolist()
        detections.append(found(*[(c, round(float(draws.random()), 1), *box)
                                  for c, box in zip(guessed, moved.tolist(), strict=True)]))  # fmt: skip
    return detections, targets


def library(detections: list[Any], targets: list[Any]) -> Any:
    """COCOeval as its manual has it: results by loadRes, all areas, pixels of a 100 x 100 image. Returns its stats."""
    gt, dt = [], []
    for image, (given, true) in enumerate(zip(detections, targets, strict=True), 1):
        for c, x, y, w, h in (true[true[:, 0] >= 0].double() * torch.tensor([1, 100, 100, 100, 100])).tolist():
            gt.append({"id": len(gt) + 1, "image_id": image, "category_id": int(c), "area": w * h, "iscrowd": 0,
                       "bbox": [x - w / 2, y - h / 2, w, h]})  # fmt: skip
        for c, s, x0, y0, x1, y1 in given[given[:, 0] >= 0].double().tolist():
            box = [100 * x0, 100 * y0, 100 * (x1 - x0), 100 * (y1 - y0)]
            dt.append({"image_id": image, "category_id": int(c), "bbox": box, "score": s})
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO()
        coco.dataset = {"images": [{"id": n + 1} for n in range(len(targets))], "annotations": gt,
                        "categories": [{"id": c} for c in range(3)]}  # fmt: skip
        coco.createIndex()
        judge = COCOeval(coco, coco.loadRes(dt), "bbox")
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    return judge.stats


def test_map_is_the_librarys_for_any_chunks_and_hosts() -> None:
    detections, targets = random_images(40)
    stats = library(detections, targets)
    assert 0.1 < stats[0] < stats[1] < 0.9
    for metric, wanted in (("mAP50-95", stats[0]), ("mAP50", stats[1])):
        values = {value(detections, targets, metric, hosts) for hosts in (1, 3, 7)}
        assert len(values) == 1
        assert values.pop() == pytest.approx(wanted, rel=1e-12)


def test_a_metric_without_a_value() -> None:
    assert value([found()], [target(CAR)]) == 0.0
    with pytest.raises(
        RunError, match=r"Detection .* has no finite mAP50 on the test samples of task 1: no target has"
    ):
        value([found((0, 0.9, 10, 10, 30, 30))], [target()])
    with pytest.raises(Diverged, match=r"Detection \(.*\).measure returned NaN"):
        value([found((0, float("nan"), 10, 10, 30, 30))], [target(CAR)])
    one = collect_rows(Detection(), [[], [0]], [[], [torch.ones(2, 1)]])
    assert merge_sums([one, collect_rows(Detection(), [[], []], [[], []])])[0, 0] == ()


def loss_by_loops(
    outputs: Any, targets: Any, anchors: Any, no_object: float, coordinates: float, ignore: float
) -> float:
    """The docstring's formula, object by object and cell by cell, in NumPy."""

    def sigmoid(t: Any) -> Any:
        return 1 / (1 + np.exp(-t))

    def clip(v: Any) -> Any:
        return min(max(v, 0), 1)

    n, rows, columns, _ = outputs.shape
    raw, total = outputs.reshape(n, rows, columns, len(anchors), -1), 0.0

    def iou(a: Any, b: Any) -> float:
        (ax, ay, aw, ah), (bx, by, bw, bh) = a, b
        a0, a1, b0, b1 = clip(ax - aw / 2), clip(ax + aw / 2), clip(bx - bw / 2), clip(bx + bw / 2)
        c0, c1, d0, d1 = clip(ay - ah / 2), clip(ay + ah / 2), clip(by - bh / 2), clip(by + bh / 2)
        shared = max(min(a1, b1) - max(a0, b0), 0) * max(min(c1, d1) - max(c0, d0), 0)
        return shared / ((a1 - a0) * (c1 - c0) + (b1 - b0) * (d1 - d0) - shared)

    for image, of_image in zip(raw, targets, strict=True):
        real = [row for row in of_image if row[0] >= 0]
        assigned = set()
        for label, x, y, w, h in real:
            j, i = int(x * columns), int(y * rows)
            at = [min(w, aw) * min(h, ah) / (w * h + aw * ah - min(w, aw) * min(h, ah)) for aw, ah in anchors]
            a = int(np.argmax(at))
            assigned.add((i, j, a))
            t = image[i, j, a]
            total += coordinates * (2 - w * h) * (
                (sigmoid(t[0]) - (x * columns - j)) ** 2 + (sigmoid(t[1]) - (y * rows - i)) ** 2
                + (t[2] - np.log(w / anchors[a][0])) ** 2 + (t[3] - np.log(h / anchors[a][1])) ** 2
            )  # fmt: skip
            total -= t[5 + int(label)] - np.log(np.exp(t[5:]).sum())
        for i in range(rows):
            for j in range(columns):
                for a, (aw, ah) in enumerate(anchors):
                    t = image[i, j, a]
                    box = (
                        (j + sigmoid(t[0])) / columns,
                        (i + sigmoid(t[1])) / rows,
                        aw * np.exp(t[2]),
                        ah * np.exp(t[3]),
                    )
                    if (i, j, a) in assigned:
                        total -= np.log(sigmoid(t[4]))
                    elif max([iou(box, row[1:]) for row in real], default=0) <= ignore:
                        total -= no_object * np.log(1 - sigmoid(t[4]))
    return total / n


ANCHORS = ((0.1, 0.2), (0.5, 0.4))
OBJECTS = [
    target(
        (0, 10, 10, 30, 30), (2, 40, 35, 90, 75), (1, 12, 12, 32, 33)
    ),  # the first and third share a cell and anchor
    target(),
    target((1, 0, 50, 100, 100)),
]


def test_the_loss_is_the_formula() -> None:
    outputs = torch.randn(3, 3, 4, 2 * 8, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    targets = torch.stack(OBJECTS)
    for keys in ({}, {"no_object": 2.0, "coordinates": 0.5, "ignore": 0.1}):
        objective = Detection(anchors=ANCHORS, **keys)
        weights = [getattr(objective, key) for key in ("no_object", "coordinates", "ignore")]
        wanted = loss_by_loops(outputs.numpy(), targets.double().numpy(), ANCHORS, *weights)
        assert objective.loss(outputs, targets).item() == pytest.approx(wanted, rel=1e-6)


def test_the_loss_is_the_mean_of_the_images_and_of_any_order_of_objects() -> None:
    objective, targets = Detection(anchors=ANCHORS), torch.stack(OBJECTS)
    outputs = torch.randn(3, 3, 4, 16, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    each = [objective.loss(out[None], y[None]).item() for out, y in zip(outputs, targets, strict=True)]
    assert objective.loss(outputs, targets.flip(1)).item() == pytest.approx(np.mean(each), rel=1e-12)
    gradients = vmap(grad(lambda out, y: objective.loss(out[None], y[None])))(outputs, targets)
    leaf = outputs.clone().requires_grad_()
    objective.loss(leaf, targets).backward()
    assert torch.allclose(gradients / 3, leaf.grad, rtol=1e-9)


def test_a_center_just_outside_the_image_is_in_the_cell_at_the_edge() -> None:
    """Rounding may move a center over an edge by up to 1e-4, which check_boxes accepts.

    The loss is continuous there: from 5e-5 inside to 5e-5 outside, a square such as (sigmoid(t_x) - x')^2 changes by at
    most 2 * 4 cells * 1e-4, times the weight 5 * 2: less than 0.01. Another cell's outputs, 3 apart, change it by more.
    """
    objective = Detection(anchors=ANCHORS)
    outputs = 3 * torch.arange(3 * 4, dtype=torch.float64).view(1, 3, 4, 1).expand(1, 3, 4, 16)
    for edge, axis in ((0, 1), (1, 1), (0, 2), (1, 2)):
        losses = []
        for x in (edge - 5e-5, edge + 5e-5):
            boxes = torch.tensor([[[0, 0.6, 0.6, 1e-5, 1e-5]]], dtype=torch.float32)
            boxes[..., axis] = x
            assert check_boxes(boxes.numpy(), 2) is None
            losses.append(objective.loss(outputs, boxes).item())
        assert losses[0] == pytest.approx(losses[1], abs=0.01)


def test_outputs_become_boxes_and_overlapping_ones_are_dropped() -> None:
    """Logits: t = 0 puts the center in the middle of a cell of 2 x 2, and the size is the anchor's.

    Cells have the centers 1/4 and 3/4. In row 0 the two boxes of width 1 overlap by 1/2 / (1/2 + 1/4 + 1/4), clipped at
    the edges: IoU of [0, 0.75] and [0.25, 1] is 0.5, more than 0.45. They are of class 0: the lower score goes. Row 1
    has classes 0 and 1, which both stay. Scores are sigmoid(t_o) times the softmax, 0.9 for logits (log 9, 0).
    """
    out = torch.zeros(1, 2, 2, 7)
    out[..., 4] = torch.tensor([[2.0, 1.0], [0.5, -9.0]])
    out[..., 5] = torch.log(torch.tensor(9.0))
    out[0, 1, 1, 4], out[0, 1, 1, 6] = 0.0, 2 * torch.log(torch.tensor(9.0))
    objective = Detection(anchors=((1.0, 0.2),), detections=5)
    p = 0.9 / (1 + np.exp(-np.array([2.0, 0.5, 0.0])))
    wanted = [[0, p[0], 0, 0.15, 0.75, 0.35], [0, p[1], 0, 0.65, 0.75, 0.85], [1, p[2], 0.25, 0.65, 1, 0.85], NOTHING]
    assert torch.allclose(objective.predict(out)[0, :4], torch.tensor(wanted, dtype=torch.float32), atol=1e-6)
    assert (Detection(anchors=((1.0, 0.2),), suppress=0.6).predict(out)[0, :, 0] >= 0).sum() == 4
    assert (Detection(anchors=((1.0, 0.2),), confidence=0.5).predict(out)[0, :, 0] >= 0).sum() == 2
    assert Detection(anchors=((1.0, 0.2),), detections=1).predict(out)[0].tolist() == [pytest.approx(wanted[0])]


def test_overlaps() -> None:
    """Squares of side 0.2 shifted by 0.1: 0.02 / 0.06. Without area there is none."""
    boxes = corners(torch.tensor([[0.3, 0.3, 0.2, 0.2], [0.4, 0.3, 0.2, 0.2], [0.0, 0.0, 0.0, 0.0]]))
    wanted = torch.tensor([[1, 1 / 3, 0], [1 / 3, 1, 0], [0, 0, 0]])
    assert torch.allclose(overlaps(boxes, boxes), wanted, atol=1e-6)


def test_anchors_by_k_means() -> None:
    """Two groups, around (0.1, 0.2) and (0.4, 0.3): their means, the smaller area first."""
    sizes = [(0.1, 0.19), (0.1, 0.21), (0.38, 0.3), (0.4, 0.28), (0.42, 0.32)]
    targets = pad_boxes([[[0, 0.5, 0.5, w, h]] for w, h in sizes], 2)
    assert find_anchors(targets, 2) == [[0.1, 0.2], [0.4, 0.3]]
    with pytest.raises(ValueError, match="found 5 boxes of different sizes, allowed: at least 6"):
        find_anchors(targets, 6)


WRONG = [
    ([[[2, 0.5, 0.5, 0.1, 0.1]]], r"found \(class, x, y, w, h\) = \(2, 0.5, .* 0, allowed: classes 0 to 1"),
    ([[], [[0, 0.5, 0.5, 0.1, 0]]], r"= \(0, 0.5, 0.5, 0.1, 0\) in sample 1, allowed: boxes with a width and a height"),
    ([[[0, 0.96, 0.5, 0.1, 0.1]]], r"0.96, 0.5, 0.1, 0.1\) in sample 0, allowed: boxes in the image"),
    ([[], []], "found no box, allowed: at least one"),
    ([[[0.5, 0.5, 0.5, 0.1, 0.1]]], "allowed: classes 0 to 1"),
]  # fmt: skip


@pytest.mark.parametrize(("boxes", "words"), WRONG)
def test_targets_that_are_no_boxes_are_named(boxes: Any, words: str) -> None:

    assert re.search(words, check_boxes(pad_boxes(boxes, 2), 2) or "")
    assert check_boxes(np.zeros((2, 3), np.float32), 2) == (
        "found targets of float32 [2, 3], allowed: boxes, float32 [N, M, 5]"
    )


@pytest.fixture
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_one_image_is_learned_by_heart(one_thread: None) -> None:
    """Until both of its boxes are found at all of COCO's overlaps, and nothing else at a higher score."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        objective = Detection(metric="mAP50-95", stride=8)
        model = tiny_yolo((3, 32, 32), objective.outputs(np.zeros((1, 3, 5)), 3), width=1, stride=8)
        x, y = (
            torch.rand(1, 3, 32, 32).repeat(2, 1, 1, 1),
            torch.stack([target((0, 20, 15, 40, 45), (2, 50, 50, 90, 70))] * 2),
        )
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        for _ in range(120):
            optimizer.zero_grad()
            objective.loss(model(x), y).backward()
            optimizer.step()
    rows = objective.measure(objective.predict(model(x).detach()), y)
    assert objective.value_of(rows.numpy()) == pytest.approx(1, rel=1e-12)
