"""Softmax regression in NumPy, float64: an independent second writing of what a client and FedAvg compute.

For one batch X [n, D] with labels y, logits Z = X W^T + b and P = softmax(Z), the mean cross-entropy has

    dL/dZ = (P - onehot(y)) / n,   dL/dW = dL/dZ^T X,   dL/db = column sums of dL/dZ.

The parameters are one vector: W row by row, then b, as nn.Linear lays them out.
"""

from dataclasses import dataclass

import numpy as np


@dataclass
class Softmax:
    weight: np.ndarray  # [C, D]
    bias: np.ndarray  # [C]

    @classmethod
    def of(cls, vector, classes, features):
        vector = np.array(vector, np.float64)
        return cls(vector[: classes * features].reshape(classes, features), vector[classes * features :])

    @property
    def vector(self):
        return np.concatenate([self.weight.reshape(-1), self.bias])

    def loss_and_gradient(self, x, y, kept_out=()):
        logits = x @ self.weight.T + self.bias
        logits[:, list(kept_out)] = -np.inf
        logits = logits - logits.max(1, keepdims=True)
        logarithms = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        error = np.exp(logarithms)
        rows = np.arange(len(y))
        error[rows, y] -= 1
        error /= len(y)
        return -logarithms[rows, y].mean(), np.concatenate([(error.T @ x).reshape(-1), error.sum(0)])

    def right(self, x, y, classes=None):
        logits = x @ self.weight.T + self.bias
        if classes is not None:
            others = [c for c in range(len(self.bias)) if c not in classes]
            logits[:, others] = -np.inf
        return int((logits.argmax(1) == y).sum())


def batch_order(seed, client, phase, samples, epochs, size):
    """The batches of a phase, from the documented stream: one PCG64 permutation per epoch, cut from the front."""
    from raysim.system.seeding import generator

    stream = generator(seed, client, phase, 0, "batches")
    for _ in range(epochs):
        order = stream.permutation(samples)
        yield from (order[start : start + size] for start in range(0, samples, size))


def local_phase(start, x, y, batches, lr, classes, *, kept_out=(), clip=None, mu=0.0):
    """Plain SGD over the batches (positions into x, y) from the vector `start`: the change, and the mean loss."""
    vector, total, seen = start.copy(), 0.0, 0
    for batch in batches:
        loss, gradient = Softmax.of(vector, classes, x.shape[1]).loss_and_gradient(x[batch], y[batch], kept_out)
        gradient = gradient + mu * (vector - start)
        if clip is not None:
            gradient = gradient * min(1.0, clip / (np.sqrt((gradient**2).sum()) + 1e-6))
        vector = vector - lr * gradient
        total, seen = total + loss * len(batch), seen + len(batch)
    return vector - start, total / max(seen, 1)


def sample_norms(vector, x, y, classes, admitted=slice(None)):
    """d loss / d logits = p - y, dW = (p - y) x^T, db = p - y, so ||g||^2 = ||p - y||^2 (||x||^2 + 1)."""
    model = Softmax.of(vector, classes, x.shape[1])
    logits = np.full((len(y), classes), -np.inf)
    logits[:, admitted] = (x @ model.weight.T + model.bias)[:, admitted]
    error = np.exp(logits - logits.max(1, keepdims=True))
    error /= error.sum(1, keepdims=True)
    error[np.arange(len(y)), y] -= 1
    return (error**2).sum(1) * ((x**2).sum(1) + 1)
