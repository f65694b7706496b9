"""One client's phase against softmax regression in NumPy (tests/softmax_oracle.py), float64."""

from itertools import islice
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from costs import cost_of
from probes import OwnSamples
from softmax_oracle import Softmax, batch_order, local_phase

from raysim.api.client import cut_into_batches
from raysim.engine.compatibility import check_fit, check_methods
from raysim.engine.hook_checks import CHECKS
from raysim.engine.hosted_server import HostedServer
from raysim.engine.local_training import epochs
from raysim.engine.orders import Order, RoundInfo, Train
from raysim.engine.rates import learning_rate
from raysim.engine.virtual_time import Clock
from raysim.federation.availability import Progress
from raysim.federation.federation import build_federation
from raysim.models.building import check_model
from raysim.system.errors import ConfigError, WrongResult


def data_of(host, client, task=0):
    """The client's samples of a task as NumPy sees them: rows of the split, features in the task's order."""
    federation = host.federation
    rows = federation.streams[client].rows[task]
    x = federation.dataset.train.x[rows].astype(np.float64)
    pixels = federation.tasks[task].pixels
    return (x if pixels is None else x[:, pixels]), federation.dataset.train.y[rows]


def phase(host, number, window=0, lr=0.1):
    """Client `number`'s next phase from the posted model; (delta [P], its mean loss)."""
    client = host.clients[number]
    host.model.load(host.broadcasts["model"].value)
    client.begin_phase(RoundInfo(1, window, lr), 1.0)
    delta = client.local_training()
    return delta.parameters.numpy(), float(client.records["loss"])


@pytest.mark.parametrize(
    ("samples", "size", "normalises", "wanted"),
    [
        (10, 4, False, [(0, 4), (4, 8), (8, 10)]),
        (9, 4, False, [(0, 4), (4, 8), (8, 9)]),
        (9, 4, True, [(0, 4), (4, 8)]),  # one sample has no variance
        (10, 4, True, [(0, 4), (4, 8), (8, 10)]),
        (8, 4, True, [(0, 4), (4, 8)]),
        (3, 4, True, [(0, 3)]),
        (1, 4, True, []),
        (1, 4, False, [(0, 1)]),
        (0, 4, False, []),
    ],
)
def test_batches(samples, size, normalises, wanted):
    assert [(part.start, part.stop) for part in cut_into_batches(samples, size, normalises)] == wanted


@pytest.mark.parametrize("clip", [None, 0.2])
@pytest.mark.parametrize("epochs", [1, 3])
def test_a_phase_is_that_of_numpy(host_of, tiny, quiet_torch, epochs, clip):
    """12 samples, batches of 5: 5, 5, 2. The second phase has streams of its own and starts from the same model."""
    more = {"training__local_epochs": epochs, "training__batch_size": 5, "training__clip_norm": clip}
    host = host_of(tiny(model={"name": "probes:softmax"}, seed=3, **more))
    start = host.model.parameters.numpy().copy()
    for number, count, window in ((2, 1, 0), (0, 1, 0), (2, 2, 1)):
        x, y = data_of(host, number, window)
        order = batch_order(3, number, count, len(y), epochs, 5)
        delta, loss = local_phase(start, x, y, order, 0.1, 4, clip=clip)
        found, its_loss = phase(host, number, window)
        np.testing.assert_allclose(found, delta, rtol=0, atol=1e-12)
        assert its_loss == pytest.approx(loss, abs=1e-12)
        assert np.abs(delta).max() > 1e-3


def test_a_kept_momentum_goes_on_where_the_phase_before_ended(host_of, tiny, quiet_torch):
    """One full batch from one model each time, so the same gradient g: v = g, then 0.9 g + g, then 0.9 * 1.9 g + g.

    Also through a checkpoint, at another host; started anew it is g again.
    """
    config = {"model": {"name": "probes:softmax"}, "training__batch_size": 100}
    config["training__optimizer"] = {"lr": 0.1, "momentum": 0.9}
    g, again = (phase(host, 0)[0] for host in [host_of(tiny(**config))] for _ in range(2))
    np.testing.assert_allclose(again, g, rtol=1e-12)
    kept = host_of(tiny(**config, training__keep_optimizer=True))
    np.testing.assert_allclose([phase(kept, 0)[0] for _ in range(2)], [g, 1.9 * g], rtol=1e-12)
    other = host_of(tiny(**config, training__keep_optimizer=True))
    other.restore({0: kept.snapshot()[0]})
    np.testing.assert_allclose([phase(host, 0)[0] for host in (kept, other)], [2.71 * g] * 2, rtol=1e-12)
    np.testing.assert_allclose(phase(other, 1)[0], phase(host_of(tiny(**config)), 1)[0], rtol=1e-12)


def test_bf16_is_a_pass_in_bfloat16_around_parameters_and_a_loss_that_are_not(host_of, tiny, quiet_torch):
    """A linear model and one full batch: logits by hand from rounded x, W and b; their loss in float32."""
    config = {"model": {"name": "mlp", "hidden": []}, "training__batch_size": 100}
    host, full = host_of(tiny(**config, training__precision="bf16")), host_of(tiny(**config))
    x, y = (torch.from_numpy(np.array(part)) for part in data_of(host, 0))
    start = host.model.parameters.clone().requires_grad_()
    weight, bias = (part.bfloat16() for part in (start[:24].view(4, 6), start[24:]))
    logits = torch.nn.functional.linear(x.float().bfloat16(), weight, bias).float()
    torch.nn.functional.cross_entropy(logits, y).backward()
    found, exact = phase(host, 0)[0], phase(full, 0)[0]
    np.testing.assert_allclose(found, -0.1 * start.grad.numpy(), rtol=1e-2, atol=1e-5)
    assert 1e-5 < np.abs(found - exact).max() < 1e-2
    assert host.model.parameters.dtype == torch.float32


@pytest.mark.parametrize("steps", [2, 5])
def test_so_many_steps_are_those_of_numpy(host_of, tiny, quiet_torch, steps):
    """12 samples, batches of 5, 5 and 2: two steps are the first two of one epoch, five are one and two of the next."""
    more = {"training__local_epochs": None, "training__local_steps": steps, "training__batch_size": 5}
    config = tiny(model={"name": "probes:softmax"}, seed=3, **more)
    host = host_of(config)
    start = host.model.parameters.numpy().copy()
    x, y = data_of(host, 0)
    order = list(batch_order(3, 0, 1, len(y), -(-steps // 3), 5))[:steps]
    delta, loss = local_phase(start, x, y, order, 0.1, 4)
    found, its_loss = phase(host, 0)
    np.testing.assert_allclose(found, delta, rtol=0, atol=1e-12)
    assert its_loss == pytest.approx(loss, abs=1e-12)
    assert host.clients[0].steps == steps
    # virtual time: so many batches of 5, at 0.001 s a sample
    assert Clock(config).training(0, 12) == pytest.approx(0.001 * 5 * steps)


def test_so_many_steps_are_foreseen(tiny, simulate):
    """3 clients, 2 tasks of 2 rounds of 4 steps: of a client's 12 samples an epoch of 3 batches, and one more step."""
    config = tiny(training__local_epochs=None, training__local_steps=4, methods={"er": {}}, memory__capacity=30)
    run = simulate(config)
    assert sum(done.steps for done in run.rounds) == 3 * 2 * 2 * 4
    assert cost_of(config).steps == 3 * 2 * 2 * 4


@pytest.mark.parametrize(("key", "value"), [("precision", "bf16"), ("keep_optimizer", True), ("local_steps", 3)])
def test_a_method_with_a_loop_of_its_own_refuses_what_its_loop_has_not(tiny, key, value):
    with pytest.raises(
        ConfigError, match=rf"^training\.{key}: found .*, allowed with fedtrack, which replaces the local loop"
    ):
        check_methods(tiny(methods={"fedtrack": {}}, **{f"training__{key}": value}))


def test_clipping_bounds_the_step_and_leaves_small_gradients(host_of, tiny, quiet_torch):
    """One batch, lr 1: the step is the gradient's own direction with norm clip (n / (n + 1e-6) of it), or itself."""
    config = {"model": {"name": "probes:softmax"}, "training__batch_size": 100}
    free, _ = phase(host_of(tiny(**config)), 0, lr=1.0)
    length = np.linalg.norm(free)
    clipped, _ = phase(host_of(tiny(**config, training__clip_norm=length / 4)), 0, lr=1.0)
    np.testing.assert_allclose(clipped, free / 4, rtol=1e-5)
    loose, _ = phase(host_of(tiny(**config, training__clip_norm=length * 2)), 0, lr=1.0)
    np.testing.assert_array_equal(loose, free)


def test_a_client_without_new_data_changes_nothing(host_of, tiny, quiet_torch):
    """Shards of one class each and tasks of two classes: client 0's class is in one task only."""
    config = tiny(
        scenario={"kind": "class_incremental", "tasks": 2},
        partition={"kind": "shards", "shards_per_client": 1, "per": "run"},
        clients__count=4,
        model={"name": "probes:softmax"},
    )
    host = host_of(config)
    absent = next(t for t in (0, 1) if host.federation.streams[0].size(t) == 0)
    order = Order(Train(), (0,), {0: 1.0}, 1, RoundInfo(1, absent, 0.1))
    reply = host.perform(order, {})
    assert not reply.delta(host.model.dtype).parameters.any()
    assert "loss" not in reply.means()  # 0 would look like a perfect one
    assert np.abs(phase(host, 0, 1 - absent)[0]).max() > 0


def test_an_epoch_without_batches_ends_a_phase_of_steps():
    """Three steps in the first epoch and none in the second: five are never reached."""
    client = SimpleNamespace(shared=SimpleNamespace(training=SimpleNamespace(local_steps=5)))
    taken, left = [0], []
    for rest in islice(epochs(client, lambda: taken[0]), 4):
        left.append(rest)
        taken[0] += 3 if len(left) == 1 else 0
    assert left == [5, 2]


@pytest.mark.parametrize("more", [{"training__lr_scales": {"*.weight": 10.0}}, {"training__clip_norm": 0.1}])
def test_keys_of_a_replaced_loop_are_refused(tiny, more):
    config = tiny(methods={"probes:OwnTrain": {}}, **more)
    with pytest.raises(
        ConfigError, match=r"^training\.(lr_scales|clip_norm): found .*, which replaces the local loop: "
    ):
        check_methods(config)


def test_a_position_comes_once_in_an_epoch():
    half, client = OwnSamples.Client("samples", OwnSamples()), SimpleNamespace(stream=range(9))
    check = CHECKS["client"]["samples"]
    with pytest.raises(WrongResult, match=r"returned a position twice, allowed: positions in the client's stream"):
        check(half, torch.tensor([0, 3, 0]), None, client)
    assert check(half, torch.tensor([3, 0]), None, client).tolist() == [3, 0]


@pytest.mark.parametrize("logits", ["all", "task", "seen"])
def test_the_training_softmax_has_the_classes_that_are_asked_for(host_of, tiny, quiet_torch, logits):
    """Tasks {0, 1} and {2, 3}. In task 1 `task` and `seen` leave out 2 3; in task 2 `task` leaves out 0 1, `seen` none.

    Rows of W of classes that are left out do not move: their softmax is 0 whatever they are.
    """
    config = tiny(
        scenario={"kind": "class_incremental", "tasks": 2},
        model={"name": "probes:softmax"},
        training__logits=logits,
    )
    left_out = {"all": ((), ()), "task": ((2, 3), (0, 1)), "seen": ((2, 3), ())}[logits]
    host = host_of(config)
    start = host.model.parameters.numpy().copy()
    for window in (0, 1):
        x, y = data_of(host, 1, window)
        order = batch_order(0, 1, window + 1, len(y), 1, 4)
        wanted, loss = local_phase(start, x, y, order, 0.1, 4, kept_out=left_out[window])
        found, its_loss = phase(host, 1, window)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)
        assert its_loss == pytest.approx(loss, abs=1e-12)
        moved = np.abs(Softmax.of(found, 4, 6).weight).max(1) > 0
        assert moved.tolist() == [c not in left_out[window] for c in range(4)]


def test_in_domain_incremental_runs_no_class_is_left_out(host_of, tiny, quiet_torch):
    """With `task` the model has another head for the other task, which does not move."""
    found = [phase(host_of(tiny(training__logits=logits)), 0)[0] for logits in ("all", "task", "seen")]
    assert np.array_equal(found[0], found[2])
    assert np.array_equal(np.pad(found[0], (0, 4 * 5 + 4)), found[1])


def test_a_remainder_of_one_is_left_out_with_batchnorm(host_of, tiny, quiet_torch):
    """Batches of 11 out of 12 samples: one step and one count of batches, not two."""
    host = host_of(tiny(model={"name": "probes:normalised"}, training__batch_size=11))
    phase(host, 0)
    assert host.model.integers.tolist() == [1]
    host = host_of(tiny(model={"name": "probes:normalised"}, training__batch_size=10))
    phase(host, 0)
    assert host.model.integers.tolist() == [2]


def test_momentum_starts_at_zero_in_every_phase(host_of, tiny, quiet_torch):
    """torch's SGD on a twin module, new for each phase, on the same batches."""
    config = tiny(model={"name": "probes:softmax"}, training__optimizer={"lr": 0.1, "momentum": 0.9})
    host = host_of(config)
    x, y = (torch.from_numpy(part) for part in data_of(host, 0))
    for count in (1, 2):
        twin = torch.nn.Linear(6, 4).double()
        with torch.no_grad():
            host.model.load(host.broadcasts["model"].value)
            twin.weight.copy_(host.model.module[1].weight)
            twin.bias.copy_(host.model.module[1].bias)
        before = host.model.parameters.numpy().copy()
        optimizer = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9, foreach=False)
        for batch in batch_order(0, 0, count, len(y), 1, 4):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(twin(x[batch]), y[batch]).backward()
            optimizer.step()
        after = torch.cat([twin.weight.detach().reshape(-1), twin.bias.detach()]).numpy()
        np.testing.assert_allclose(phase(host, 0)[0], after - before, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("decay", "wanted"),
    [
        ({}, [0.8] * 6),
        ({"per_round": 0.5}, [0.8, 0.4, 0.2, 0.8, 0.4, 0.2]),
        ({"per_round": 0.5, "restart": False}, [0.8, 0.4, 0.2, 0.1, 0.05, 0.025]),
        ({"per_task": 0.25}, [0.8] * 3 + [0.2] * 3),
        ({"per_round": 0.5, "per_task": 0.25}, [0.8, 0.4, 0.2, 0.2, 0.1, 0.05]),
        ({"per_round": 0.5, "per_task": 0.25, "restart": False}, [0.8, 0.4, 0.2, 0.025, 0.0125, 0.00625]),
    ],
)
def test_the_learning_rate_falls_by_round_and_task(tiny, decay, wanted):
    """Two tasks of three rounds from 0.8."""
    training = tiny(training__rounds_per_task=3, training__optimizer={"lr": 0.8}, training__lr_decay=decay).training
    found = [learning_rate(training, Progress(round, 6, int(round > 3), 3 * (round > 3), 3)) for round in range(1, 7)]
    assert found == pytest.approx(wanted, rel=1e-14)


@pytest.mark.parametrize(
    ("schedule", "wanted"),
    [
        # half a cosine over three rounds: (1 + cos(0)) / 2, (1 + cos(pi/3)) / 2, (1 + cos(2 pi/3)) / 2
        ({"name": "cosine"}, [0.8, 0.6, 0.2, 0.8, 0.6, 0.2]),
        # a rise over two of six rounds, then four parts: cos of 0, pi/4, pi/2 and 3 pi/4, down to a half of 0.8
        (
            {"name": "cosine", "per": "run", "warmup": 2, "least": 0.5},
            [0.8 / 3, 1.6 / 3, 0.8, 0.6 + 0.2 * 0.5**0.5, 0.6, 0.6 - 0.2 * 0.5**0.5],
        ),
        ({"name": "warmup", "rounds": 3}, [0.2, 0.4, 0.6, 0.8, 0.8, 0.8]),
        ({"name": "warmup", "rounds": 1, "per": "task"}, [0.4, 0.8, 0.8, 0.4, 0.8, 0.8]),
    ],
)
def test_the_learning_rate_of_the_other_schedules(tiny, schedule, wanted):
    """Two tasks of three rounds from 0.8."""
    training = tiny(training__optimizer={"lr": 0.8}, training__lr_decay=schedule).training
    found = [learning_rate(training, Progress(round, 6, int(round > 3), 3 * (round > 3), 3)) for round in range(1, 7)]
    assert found == pytest.approx(wanted, rel=1e-14)


def test_progress_is_that_of_the_run(tiny):
    """Two tasks of two rounds; and where nobody is told the task, windows of 5 of 24 samples: 5 windows of 2 rounds."""
    availability = build_federation(tiny()).availability
    assert [availability.progress(round) for round in (1, 2, 3, 4)] == [
        Progress(1, 4, 0, 0, 2),
        Progress(2, 4, 0, 0, 2),
        Progress(3, 4, 1, 2, 2),
        Progress(4, 4, 1, 2, 2),
    ]
    windows = {"asynchronous": {"window": 5, "rounds_per_window": 2}}
    config = tiny(training__rounds_per_task=None, scenario__boundaries=windows)
    federation = build_federation(config)
    server = HostedServer(config, federation, check_model(config, federation.shape, federation.classes))
    server.begin_round()
    assert server.progress == Progress(1, 10, 0, 0, 10)


def test_the_phase_is_trained_at_its_learning_rate(host_of, tiny, quiet_torch):
    """One full batch: the step is lr times the gradient, so three times the lr is three times the step."""
    config = tiny(model={"name": "probes:softmax"}, training__batch_size=100)
    once, thrice = (phase(host_of(config), 0, lr=lr)[0] for lr in (0.1, 0.3))
    np.testing.assert_allclose(thrice, 3 * once, rtol=1e-12)


def test_bf16_is_refused_for_a_model_of_float64(tiny):
    """Autocast leaves float64 as it is, so the key would have no effect."""
    config = tiny(model={"name": "probes:softmax"}, training__precision="bf16")
    federation = build_federation(config)
    model = check_model(config, federation.shape, federation.classes)
    with pytest.raises(
        ConfigError, match=r"precision: found bf16, allowed with model\.name=probes:softmax, which .*: full"
    ):
        check_fit(config, model, federation.classes)
