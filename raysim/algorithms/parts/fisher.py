"""The diagonal of a client's Fisher information in its usual forms, for EWC and FedCurv."""

from typing import Literal

import torch
from torch import Tensor

from raysim.algorithms.parts.sample_gradients import sum_of_squares
from raysim.api import Client, Setting, to_device

FisherForm = Literal["sample", "batch", "expected"]
"""Of which gradients of log p(y|x) the squares are averaged: each sample's with its true label (the empirical Fisher),
those of the mean over a batch (smaller by about the batch size, 0 where gradients cancel), or each sample's with a
label drawn from the model (the Fisher itself). Where no label is learned, -log p is the objective's loss."""


def refuse_form(form: FisherForm, setting: Setting) -> str | None:
    """Return why a form does not suit a run: only classes can be drawn as labels."""
    if form != "expected" or setting.classes:
        return None
    return "fisher=expected draws labels from the model, which needs classes; allowed: sample or batch"


def fisher_diagonal(client: Client, positions: Tensor, form: FisherForm, sample_size: int, purpose: str) -> Tensor:
    """Return the diagonal [P] at the current model, over up to `sample_size` of the samples at these positions.

    They are drawn without replacement and not augmented. Classes that training excludes have probability 0. The model
    is in evaluation mode: no dropout, and BatchNorm's statistics are used and not changed. The mode is restored.
    """
    model, total = client.model, torch.zeros_like(client.model.parameters)
    draws, training = client.generator(purpose), client.model.module.training
    order = torch.from_numpy(draws.permutation(len(positions)))
    drawn = positions[order[:sample_size]]
    model.module.eval()
    for part in client.batches(len(drawn), single=True) if form == "batch" else [slice(len(drawn))]:
        x, y = client.samples(drawn[part])
        with client.rng_scope(purpose):
            if form == "batch":
                mean = model.gradient_of(client.loss(model(x), y))
                total.add_(mean.square(), alpha=len(y))
                continue
            if form == "expected":  # the largest of log p + Gumbel noise is a draw from p
                logits = client.mask_logits(model(x).detach())
                noise = torch.from_numpy(draws.gumbel(size=tuple(logits.shape)))
                y = (logits + to_device(noise, logits.device)).argmax(1)
            total.add_(sum_of_squares(model, client.loss, x, y))
    model.module.train(training)
    return total / len(drawn)
