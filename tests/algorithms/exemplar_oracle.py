"""Exemplars by herding (Rebuffi et al., CVPR 2017, Algorithms 4 and 5) in NumPy, on one linear layer: f(x) = x."""

import numpy as np
from softmax_oracle import Softmax


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def logits_of(theta, x):
    model = Softmax.of(theta, 4, 6)
    return x @ model.weight.T + model.bias


def numpy_herd(features, size):
    """Algorithm 4, one candidate at a time; the first of those that are equally near, up to 1e-9."""
    mean, chosen = features.mean(0), []
    for number in range(1, min(size, len(features)) + 1):
        left = [i for i in range(len(features)) if i not in chosen]
        far = [np.linalg.norm(mean - features[[*chosen, i]].sum(0) / number) for i in left]
        chosen.append(next(i for i, distance in zip(left, far, strict=True) if distance <= min(far) + 1e-9))
    return chosen


def keep(held, own, data, capacity):
    """What a client with exemplars `held`, by class, has after a task of rows `own`, all of classes new to it."""
    classes = sorted({*held, *data.y[own].tolist()})
    room = capacity // len(classes)
    new = {c: own[data.y[own] == c] for c in set(classes) - set(held)}
    new = {c: rows[numpy_herd(unit(data.x[rows].astype(np.float64)), room)] for c, rows in new.items()}
    return {c: (held[c] if c in held else new[c])[:room] for c in classes}
