"""scikit-learn's embedded handwritten digits: real data that need no download."""

from pathlib import Path

import numpy as np

from raysim.data.dataset import Dataset, Split


def digits(root: Path, download: bool) -> Dataset:
    """Handwritten digits 8 x 8, 10 classes, 1433 + 364 images, inside scikit-learn: no download (Alpaydin 1998).

    Grey values 0..16 become round(255 / 16 * value) as uint8. The split is fixed: of each class, in the order of the
    file, the 1st, 6th, 11th, ... image is for testing and the others for training.
    """
    from sklearn.datasets import load_digits

    grey, labels = load_digits(return_X_y=True)
    x = np.rint(grey * (255 / 16)).astype(np.uint8).reshape(-1, 1, 8, 8)
    y = labels.astype(np.int64)
    testing = np.zeros(len(y), dtype=bool)
    for label in range(10):
        testing[np.flatnonzero(y == label)[::5]] = True
    return Dataset(Split(x[~testing], y[~testing]), Split(x[testing], y[testing]), classes=10)
