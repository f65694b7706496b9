"""What the tests of replaying methods share: streams and whole runs in NumPy, float64, and a record of every step."""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import torch
from softmax_oracle import Softmax, batch_order

from raysim.algorithms.parts import replay
from raysim.engine import local_training
from raysim.models.building import build_model

SOFTMAX = {"name": "probes:softmax"}
LIVELY = {"name": "mlp", "hidden": [5], "dropout": 0.3, "batch_norm": True}
LR = 0.1
NEVER = 10**9


def stream_of(federation, client):
    """A client's samples in the order of their arrival, x [n, D] in float64 and y [n]: position p is row p."""
    x, y = [], []
    for task, rows in zip(federation.tasks, federation.streams[client].rows, strict=True):
        shown = federation.dataset.train.x[rows].astype(np.float64)
        x.append(shown if task.pixels is None else shown[:, task.pixels])
        y.append(federation.dataset.train.y[rows])
    return np.concatenate(x), np.concatenate(y)


def gradient(w, x, y):
    return Softmax.of(w, 4, x.shape[1]).loss_and_gradient(x, y)[1]


def projection(g, r):
    """Eq. 11; without a reference every gradient is admitted."""
    return g - (g @ r) / (r @ r) * r if r is not None and g @ r < 0 else g


def vector(state):
    return torch.cat([t.reshape(-1) for t in state.values()]).numpy()


def second_writing(config, federation, cohorts):
    """FedAvg with any of FedProx, A-GEM and Fed-A-GEM, their memories whole: the last round's model and g_ref."""
    knobs, training = dict(config.methods), config.training
    mu, own = knobs.get("fedprox", {}).get("mu", 0.0), {"every": 1, **knobs.get("fed_a_gem", {"every": NEVER})}
    streams = [stream_of(federation, k) for k in range(config.clients.count)]
    memory, phases, reference = [[] for _ in streams], Counter(), None
    w = vector(build_model(config, federation.shape, federation.classes).state_dict())

    def on_memory(k, model):
        return gradient(model, *(column[memory[k]] for column in streams[k]))

    def mean(cohort):
        found = [on_memory(k, w) for k in cohort if memory[k]]
        return np.mean(found, 0) if found else None

    for number, cohort in enumerate(cohorts, 1):
        task, ends = (number - 1) // training.rounds_per_task, []
        used, at_the_sent_model = None if number % own["every"] else reference, mean(cohort)
        for k in cohort:
            phases[k] += 1
            v, (x, y) = w, streams[k]
            new = federation.streams[k].span(task, task + 1).numpy()
            epochs = batch_order(config.seed, k, phases[k], len(new), training.local_epochs, training.batch_size)
            for batch in epochs:
                g = gradient(v, x[new[batch]], y[new[batch]]) + mu * (v - w)
                if "a_gem" in knobs and memory[k]:
                    g = projection(g, on_memory(k, v))
                v = v - LR * projection(g, used)
                memory[k] += [p for p in new[batch].tolist() if p not in memory[k]]
            ends.append(v)
        w = np.mean(ends, 0)
        if own.get("reference") == "with_update":
            reference = at_the_sent_model
        elif (number + 1) % own["every"] == 0:
            reference = mean(cohort)
    return w, reference


def recorded(monkeypatch):
    """Return a list to which every step of the runs that follow is added: what it saw and drew, before and after."""
    steps, drawn = [], []
    real_step, real_drawn = local_training.LocalLoop.step, replay.draw_entries

    def spied_drawn(client, count, purpose):
        drawn.append(real_drawn(client, count, purpose))
        return drawn[-1]

    def spied_step(loop, step):
        client, model = step.client, step.client.model
        drawn.clear()
        now = SimpleNamespace(client=client.id, phase=client.phases, number=step.number)
        now.positions, now.x, now.held = step.positions.tolist(), step.x, len(client.memory or ())
        now.before, now.buffers = model.parameters.numpy().copy(), model.buffers.numpy().copy()
        real_step(loop, step)
        now.after, now.buffers_after = model.parameters.numpy().copy(), model.buffers.numpy().copy()
        now.logits, now.x_and_replayed, now.drawn = step.logits.detach().clone(), step.x, list(drawn)
        now.reference = client.from_server("fed_a_gem").numpy() if "fed_a_gem" in client.shared.broadcasts else None
        steps.append(now)

    monkeypatch.setattr(replay, "draw_entries", spied_drawn)
    monkeypatch.setattr(local_training.LocalLoop, "step", spied_step)
    return steps
