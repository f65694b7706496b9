"""C-FLAG with models that draw or count: dropout, BatchNorm, augmentation, in both phases of a round."""

import dataclasses

import numpy as np
import pytest
import torch
from c_flag_oracle import BETA
from torch import nn

from raysim.algorithms.parts.gradient_table import Components
from raysim.engine.orders import Call, Order, RoundInfo, Train
from raysim.federation.availability import plan_availability
from raysim.federation.federation import build_federation
from raysim.system.errors import RunError


@pytest.mark.parametrize("mode", ["iag", "svrg"])
@pytest.mark.parametrize("model", [{"dropout": 0.4}, {"batch_norm": True}])
def test_keeping_the_tables_gives_the_same_bits(tiny, simulate, model, mode):
    def run(table):
        knobs = {"table": table, "mode": mode}
        model_block = {"name": "mlp", "hidden": [5], **model}
        config = tiny(model=model_block, methods={"c_flag": knobs}, dataset__train=39, training__local_epochs=2)
        return simulate(config)

    kept, rebuilt = run("keep"), run("rebuild")
    assert kept.sha256 == rebuilt.sha256
    assert [r.loss for r in kept.rounds] == [r.loss for r in rebuilt.rounds]


def test_a_component_keeps_its_dropout_mask_in_a_phase_only(tiny, host_of, quiet_torch):
    """Its loss twice at one model is one number; another component's, and the next phase's, is drawn anew."""
    host = host_of(tiny(model={"name": "mlp", "dropout": 0.5}, methods={"c_flag": {}}))
    client = host.clients[0]
    client.receive_data(0)
    host.model.module.train()
    first, again, later = (Components(client, phase) for phase in (1, 1, 2))
    losses = [float(c.gradient(0)[0]) for c in (first, first, again, later)]
    assert losses[0] == losses[1] == losses[2] != losses[3]
    x, y = first._shown[0]
    first._shown[1] = (x, y)
    assert float(first.gradient(1)[0]) != losses[0]
    assert all(torch.equal(a[0], b[0]) for a, b in zip(first._shown[2:], later._shown[2:], strict=True))


@pytest.mark.parametrize("table", ["rebuild", "keep"])
def test_statistics_move_in_phase_b_only(tiny, host_of, quiet_torch, table):
    """BatchNorm, one component, one epoch: the table's pass alone moves the mean to 0.1 times the batch's.

    13 samples at 4: the last sample joins the third component, as BatchNorm cannot take it alone.
    """
    config = tiny(model={"name": "mlp", "batch_norm": True}, methods={"c_flag": {"table": table}}, dataset__train=39)
    host = host_of(config)
    order = Order(Call("c_flag", "gradients"), (0,), {0: 1.0}, 1, RoundInfo(1, 0, BETA))
    host.perform(order, None)
    client = host.clients[0]
    assert Components(client, 1).weights == [4 / 13, 4 / 13, 5 / 13]
    message = {"c_flag": {"posted": [], "cohort": 1, "past_per_new": 0.0}}
    reply = host.perform(Order(Train(), (0,), {0: 1.0}, 1, RoundInfo(1, 0, BETA)), message)
    moved = reply.delta(torch.float32).buffers
    assert (moved != 0).all()
    assert reply.integers[1].tolist() == [5, 5]  # 3 of the table's pass, 2 refreshes; none of phase A's
    buffers = host.broadcasts["model"].value.buffers
    np.testing.assert_allclose(buffers + moved, host.model.buffers, rtol=0, atol=1e-6)


def test_augmented_samples_are_the_same_in_both_phases_of_a_round(tiny, simulate):
    """Else the rebuilt table's sum would not be the gradient that was sent, which is an error."""
    config = tiny(
        dataset={"name": "digits", "augment": ["crop", "flip"]},
        scenario={"kind": "class_incremental", "tasks": 2},
        methods={"c_flag": {}},
        training__batch_size=200,
    )
    assert all(value.isfinite().all() for value in simulate(config).state.values())


def test_a_model_that_draws_elsewhere_is_noticed(c_flag_config, simulate):
    with pytest.raises(RunError, match=r"came out differently .* methods\.c_flag\.table=keep"):
        simulate(c_flag_config(model={"name": "test_c_flag_models:restless"}))


class Restless(nn.Linear):
    calls = 0

    def forward(self, x):
        Restless.calls += self.training
        return super().forward(x) * (1 + 0.01 * Restless.calls)


def restless(shape, classes):
    """A model whose output depends on how often it was called."""
    return Restless(shape[0], classes)


def test_tables_that_do_not_fit_are_refused_with_the_figure(c_flag_config, simulate, monkeypatch):
    """11, 6 and 19 samples in batches of 1: client 2's table has 19 rows of 28 float64, 4256 bytes, 0.8 of 5320."""
    config = c_flag_config(knobs={"table": "keep"}, training__batch_size=1)

    class Free:
        available, total = 4256 / 0.8 - 1, 2**40

    monkeypatch.setattr("raysim.algorithms.parts.gradient_table.psutil.virtual_memory", lambda: Free)
    monkeypatch.setattr("raysim.algorithms.parts.gradient_table.GIB", 1000)
    with pytest.raises(RunError, match=r"methods\.c_flag\.table: keep would take 4\.3 GiB for client 2, .* 5\.3 GiB"):
        simulate(config)
    Free.available += 1
    simulate(config)


def test_a_client_that_batch_norm_cannot_serve_sends_no_gradients(tiny, simulate):
    """Client 2 has one sample of each task: no component, no step, no F_2; what the others send counts for more."""
    config = tiny(model={"name": "probes:normalised"}, methods={"c_flag": {}}, memory={"capacity": 100})
    federation = build_federation(config)
    few = type(federation.streams[2])([rows[:1] for rows in federation.streams[2].rows])
    streams = [*federation.streams[:2], few]
    run = simulate(
        config, dataclasses.replace(federation, streams=streams, availability=plan_availability(config, streams))
    )
    assert all(value.isfinite().all() for value in run.state.values())
    size = sum(p.numel() for p in run.simulation.model.module.parameters()) * 8
    kept = run.rounds[0].bytes_up - 5 * size  # statistics
    assert [r.bytes_up - kept for r in run.rounds] == [5 * size] * 2 + [7 * size] * 2


@pytest.mark.parametrize(
    "methods",
    [
        {"c_flag": {}},
        {"af_fcl": {"k_flow": 0.0, "width": 3, "tail": 1}},
        {"fedcil": {"adversarial": 0.0, "server_steps": 0, "width": 1, "noise": 2}},
    ],
)
def test_a_client_without_a_step_records_no_loss(tiny, simulate, methods):
    """Of 4 samples client 0 has 2 and the others 1, which BatchNorm cannot serve: the loss is client 0's, as FedAvg's.

    In round 1 it is that of one batch at the model that was sent, for all methods.
    """
    dataset = {"name": "synthetic", "classes": 4, "shape": [1, 8, 8], "train": 4, "test": 8}
    shared = {"dataset": dataset, "model": {"name": "mlp", "hidden": [5], "batch_norm": True}, "scenario__tasks": 1}
    losses = [simulate(tiny(**shared, methods=each)).rounds[0].loss for each in ({}, methods)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)
