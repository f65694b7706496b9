"""Custom datasets of colored boxes on a gray ground, for runs of the objective detection."""

from pathlib import Path

import numpy as np

from raysim.data.dataset import Dataset, Split
from raysim.objectives.boxes import pad_boxes

SIDE = 16  # pixels
MOST = 3  # boxes


def squares(root: Path, download: bool, *, seed: int = 0, train: int = 12, test: int = 6) -> Dataset:
    """One to three boxes of 4 to 8 pixels in each image: red ones are of class 0, blue ones of class 1."""
    draws = np.random.default_rng(seed)

    def make_split(samples: int) -> Split:
        x, rows = np.full((samples, 3, SIDE, SIDE), 96, np.uint8), []
        for image in x:
            of_image = []
            for _ in range(draws.integers(1, MOST + 1)):
                label, (w, h) = int(draws.integers(2)), draws.integers(4, 9, 2).tolist()
                left, top = int(draws.integers(SIDE - w + 1)), int(draws.integers(SIDE - h + 1))
                image[:, top : top + h, left : left + w] = (
                    [[[220]], [[20]], [[20]]] if label == 0 else [[[20]], [[20]], [[220]]]
                )
                of_image.append([label, (left + w / 2) / SIDE, (top + h / 2) / SIDE, w / SIDE, h / SIDE])
            rows.append(of_image)
        return Split(x, pad_boxes(rows, MOST))

    return Dataset(make_split(train), make_split(test), 2, ("red", "blue"))
