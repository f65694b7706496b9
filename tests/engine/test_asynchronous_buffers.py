"""BatchNorm's statistics under an asynchronous schedule: stale clients' statistics are mixed as models."""

import pytest
import torch

from raysim.api.messages import Delta
from raysim.engine.asynchronous import AsynchronousUpdates
from raysim.engine.virtual_time import discount
from raysim.federation.federation import build_federation

FEDBUFF = {"kind": "asynchronous", "concurrency": 6, "buffer_size": 1, "speeds": {"kind": "log_normal"}}


def watched(config, federation, simulate, monkeypatch):
    """Run a config; return per server update (update, buffers before, mean delta, mixed delta, buffers after)."""
    seen = []
    mix = AsynchronousUpdates._mix

    def noted(self, update, mean):
        mixed = mix(self, update, mean)
        seen.append((update, self._server.buffers, mean, mixed))
        return mixed

    monkeypatch.setattr(AsynchronousUpdates, "_mix", noted)
    run = simulate(config, federation)
    return run, seen


@pytest.mark.parametrize("mixing", ["deltas", "models"])
def test_no_variance_becomes_negative(mixing, tiny, simulate):
    """Six clients train at once and are applied one by one, so most are 5 server updates old.

    Summed as deltas, each takes 1 - 0.9^3 of the old variance away, six times before any of them is seen: a variance
    that falls from 1 to nearly 0 loses 6 times 0.27 and becomes negative.
    """
    config = tiny(
        model__batch_norm=True,
        clients__count=6,
        schedule={**FEDBUFF, "mixing": mixing},
        training__rounds_per_task=20,
        training__optimizer={"lr": 0.01},
        dataset={"name": "synthetic", "classes": 4, "shape": [6], "train": 72, "test": 20, "noise": 0.01},
    )
    run = simulate(config)
    variances = [value for name, value in run.state.items() if name.endswith("running_var")]
    assert variances
    assert all(float(value.min()) > 0 for value in variances)


@pytest.mark.parametrize(
    ("mixing", "size", "rate"), [("deltas", 2, 0.7), ("deltas", 1, 1.0), ("deltas", 2, 3.0), ("models", 1, 0.6)]
)
def test_buffers_are_a_convex_mean_of_the_models_statistics(mixing, size, rate, tiny, simulate, monkeypatch):
    """b <- (1 - a) b + a sum_i s_i b_i / sum_i s_i, with a = min(1, rate mean_i s_i) and client i's statistics b_i.

    Client i's statistics are those it received, of version v_i, plus its delta. The mean delta that is given is
    sum_i s_i delta_i / sum_i s_i, so the clients' statistics mean that mean plus sum_i s_i b_(v_i) / sum_i s_i.
    """
    schedule = {**FEDBUFF, "concurrency": 4, "buffer_size": size, "rate": rate, "mixing": mixing}
    config = tiny(model__batch_norm=True, clients__count=4, schedule=schedule, training__rounds_per_task=5)
    federation = build_federation(config)
    _, seen = watched(config, federation, simulate, monkeypatch)
    versions = [before.double() for _, before, _, _ in seen]
    stale = 0
    for (dispatches, before, mean, mixed), now in zip(seen, versions, strict=True):
        weights = [discount(d.staleness, config.schedule.staleness) for d in dispatches]
        stale += sum(d.staleness for d in dispatches)
        received = sum(w * versions[d.version] for w, d in zip(weights, dispatches, strict=True)) / sum(weights)
        a = min(1.0, rate * sum(weights) / len(weights))
        wanted = (1 - a) * now + a * (mean.buffers.double() + received)
        torch.testing.assert_close((before + mixed.buffers).double(), wanted, rtol=0, atol=1e-6)
    assert stale, "no update was stale"
    assert isinstance(mixed, Delta)
