"""FedAvg on softmax regression in NumPy, with updates that pass through an encoding: for tests of top-k and QSGD."""

from collections import Counter

import numpy as np
import torch
from softmax_oracle import batch_order, local_phase

from raysim.models.building import build_model


def encoded_fedavg(config, federation, cohorts, encode):
    """The parameters after the last round; `encode(client, phase, update)` returns what the server adds."""
    module = build_model(config, federation.shape, federation.classes)
    x = torch.cat([p.detach().reshape(-1) for p in module.parameters()]).numpy()
    training, phases = config.training, Counter()
    for number, cohort in enumerate(cohorts):
        task, moves = number // training.rounds_per_task, []
        for client in cohort:
            phases[client] += 1
            rows, data = federation.streams[client].rows[task], federation.dataset.train
            images = data.x[rows].astype(np.float64)[:, federation.tasks[task].pixels]
            batches = batch_order(config.seed, client, phases[client], len(rows), 1, training.batch_size)
            update, _ = local_phase(x, images, data.y[rows], batches, training.optimizer.lr, federation.classes)
            moves.append(encode(client, phases[client], update))
        x = x + np.mean(moves, axis=0)
    return x
