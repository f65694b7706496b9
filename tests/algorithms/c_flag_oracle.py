"""A round of C-FLAG in NumPy, from the documented streams: what its tests compare the runs with."""

import itertools

import numpy as np
import torch
from softmax_oracle import Softmax
from torch import nn

from raysim.federation.federation import build_federation
from raysim.system import seeding

L, BETA = 5.0, 0.1


def linear(shape, classes):
    """A linear map in float64."""
    return nn.Linear(shape[0], classes, bias=False).double()


def samples(federation, client, task):
    """The client's samples of a task, x in float64."""
    rows = federation.streams[client].rows[task]
    x, y = federation.dataset.train.x[rows].astype(np.float64), federation.dataset.train.y[rows]
    pixels = federation.tasks[task].pixels
    return (x if pixels is None else x[:, pixels]), y


def gradient(w, x, y):
    return Softmax.of(w, 4, x.shape[1]).loss_and_gradient(x, y)[1]


class Reference:
    """C-FLAG in NumPy, with full memories; what the clients compute in the last round is left to look at."""

    def __init__(self, config, federation, knobs):
        self.config, self.federation, self.method = config, federation, knobs
        self.phases = dict.fromkeys(range(config.clients.count), 0)

    def parts(self, k, task):
        x, y = samples(self.federation, k, task)
        order = seeding.generator(self.config.seed, k, "components of window", task).permutation(len(y))
        size = self.config.training.batch_size
        return [(x[order[a : a + size]], y[order[a : a + size]]) for a in range(0, len(y), size)]

    def chosen(self, k, steps, components):
        stream = seeding.generator(self.config.seed, k, self.phases[k], 0, "batches")
        order = self.method.get("order", "random")
        if order == "random":
            return list(stream.integers(components, size=steps))
        turn = (lambda: stream.permutation(components)) if order == "reshuffled" else (lambda: np.arange(components))
        return list(itertools.chain.from_iterable(turn() for _ in range(steps)))[:steps]

    def local(self, k, task, x, correction, beta):
        """The E steps of client k from x: its last model, and A."""
        parts = self.parts(k, task)
        weights = [len(y) for _, y in parts] / np.sum([len(y) for _, y in parts])
        steps = self.config.training.local_epochs * len(parts)
        chosen = self.chosen(k, steps, len(parts))
        table, added = [gradient(x, *part) for part in parts], np.zeros_like(x)
        for number in range(steps):
            if self.method.get("mode") == "svrg":
                delayed = gradient(x, *parts[chosen[number]])
            else:
                if number:
                    j = chosen[number - 1]
                    table[j] = gradient(x, *parts[j])
                delayed = sum(w * row for w, row in zip(weights, table, strict=True))
            added = added + delayed
            x = x - beta * (correction + delayed)
        return x, added, steps

    def round(self, x, task, cohort, p):
        knobs, lr = self.method, self.config.training.optimizer.lr
        beta = knobs.get("beta") or lr
        alpha = beta if knobs.get("alpha") is None else knobs["alpha"]
        own = {k: gradient(x, *samples(self.federation, k, task)) for k in cohort}
        big_g = sum(p[k] * own[k] for k in cohort)
        past = {k: [samples(self.federation, k, t) for t in range(task)] for k in cohort}
        past = {k: [np.concatenate(part) for part in zip(*v, strict=True)] for k, v in past.items() if v}
        past = {k: v for k, v in past.items() if len(v[1])}
        big_f = sum(p[k] * gradient(x, *v) for k, v in past.items()) / sum(p[k] for k in past) if past else None
        self.rates, self.local_models, self.added, self.steps, self.corrections = {}, {}, {}, {}, {}
        self.own, self.mean, self.memory, self.p = own, big_g, big_f, p
        change = 0.0
        for k in cohort:
            self.phases[k] += 1
            self.corrections[k] = big_g - own[k]
            self.local_models[k], a, e = self.local(k, task, x, big_g - own[k], beta)
            self.added[k], self.steps[k] = a, e
            alpha_i, beta_i = alpha, beta
            if knobs.get("objective_weights") == "h":
                sizes = [sum(s.size(t) for s in self.federation.streams) for t in range(task + 1)]
                alpha_i = e * beta * sum(sizes[:task]) / sizes[task]
            if big_f is not None and knobs.get("adaptive", "worst") != "off":
                c = len(cohort) if knobs.get("adaptive", "worst") == "worst" else 1
                inner = big_f @ a
                if inner > 0:
                    beta_i = (1 - L * alpha) * inner / (L * c * p[k] * (a @ a))
                    beta_i = min(max(beta_i, 1e-4), 0.95)
                else:
                    rate = alpha if knobs.get("interference") == "as_printed" else beta
                    alpha_i = min(alpha - rate * inner / (big_f @ big_f), 2 / L / (1 + knobs.get("bias", 0)))
            self.rates[k] = (alpha_i, beta_i)
            tracked = beta if knobs.get("correction") == "nominal" else beta_i
            delta = e * tracked * self.corrections[k] + beta_i * a
            change = change + p[k] * (delta if big_f is None else delta + alpha_i * big_f)
        return x - change

    def run(self, cohorts):
        model = initial(self.config, self.federation)
        for number, cohort in enumerate(cohorts):
            task = number // self.config.training.rounds_per_task
            sizes = {k: self.federation.streams[k].size(task) for k in cohort}
            uniform = self.config.aggregation.weights == "uniform"
            p = {k: 1 / len(cohort) if uniform else n / sum(sizes.values()) for k, n in sizes.items()}
            model = self.round(model, task, cohort, p)
        return model


def initial(config, federation):
    from raysim.models.building import build_model

    return vector(build_model(config, federation.shape, federation.classes).state_dict())


def vector(state):
    return torch.cat([t.reshape(-1) for t in state.values()]).numpy()


def last_round(config, simulate, knobs):
    """The second writing's last round, beside the run: what it left to look at, and the models before and after."""
    federation = build_federation(config)
    run = simulate(config, federation)
    reference = Reference(config, federation, knobs)
    cohorts = [r.cohort for r in run.rounds]
    before = Reference(config, federation, knobs).run(cohorts[:-1])
    reference.run(cohorts)
    return reference, before, vector(run.state), run
