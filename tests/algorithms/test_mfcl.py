"""MFCL (Babakniya et al., NeurIPS 2023): the generator's and the clients' losses by hand and against NumPy."""

import math

import numpy as np
import pytest
import torch
from costs import cost_of
from torch import nn

import raysim
from raysim.algorithms.mfcl import (
    Mfcl,
    blurred,
    divergence,
    feature_distance,
    generator_terms,
    loss_among,
    make_generator,
    missing_entropy,
)
from raysim.api import BatchStatistics, FlatModel, with_batch_statistics
from raysim.system.errors import ConfigError

SMALL_RUN = {
    "hyperparameters": {"generated": 2, "steps": 2, "batch_size": 3, "latent": 2, "width": 2},
    "dataset__shape": [1, 8, 8],
}

IMAGES = {"name": "synthetic", "classes": 4, "shape": [1, 8, 8], "train": 36, "test": 20}
BYTES = {"name": "digits", "train_samples": 36}
CLASSES = {"kind": "class_incremental", "tasks": 2}
UNORDERED = {**CLASSES, "class_order": [3, 1, 0, 2]}
NORMED = {"name": "mlp", "hidden": [5], "batch_norm": True}
SMALL = {"generated": 3, "steps": 2, "batch_size": 4, "latent": 3, "width": 2}
TINY = {"dataset": IMAGES, "scenario": CLASSES, "model": NORMED}


def doubles(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_the_divergence_by_hand():
    """KL(N(0, 1) || N(1, 4)) = ln 2 + (1 + 1)/8 - 1/2 = .443147; it is 0 if and only if the two are equal."""
    same = BatchStatistics(doubles(1, 0, 0), doubles(4, 1, 2), doubles(0, 0, 0), doubles(1, 1, 1))
    found = divergence(same)
    assert found[0].item() == pytest.approx(math.log(2) - 0.25, rel=1e-7)
    assert found[0].item() == pytest.approx(0.443147, abs=5e-7)
    assert found[1].item() == 0
    assert found[2].item() == pytest.approx(math.log(2) / 2 + 1 / 4 - 1 / 2, rel=1e-7)
    assert divergence(BatchStatistics(*(doubles(0) for _ in range(4)))).isfinite().all()


def test_the_entropy_by_hand():
    """0 for equal shares, 1 for one class: rows (large, 0) and (0, large) have q = (1/2, 1/2). One class alone is 0."""
    rows = doubles([1000, 0], [0, 1000])
    assert missing_entropy(rows).item() == pytest.approx(0, abs=1e-12)
    assert missing_entropy(rows[[0, 0]]).item() == 1
    assert missing_entropy(rows[:, :1]).item() == 0


def test_the_filter_by_hand():
    """Taps exp(-(i/2)^2) for i = -2..2 over their sum; a constant image stays, a margin is reflected."""
    taps = [0.111703, 0.236476, 0.303641, 0.236476, 0.111703]
    point = torch.zeros(1, 2, 9, 9, dtype=torch.float64)
    point[0, 0, 4, 4] = 1
    np.testing.assert_allclose(blurred(point)[0, 0, 2:7, 2:7], np.outer(taps, taps), atol=1e-6)
    assert not blurred(point)[0, 1].any()
    np.testing.assert_allclose(blurred(torch.ones_like(point)), 1, rtol=1e-12)
    corner = torch.zeros(1, 1, 8, 8, dtype=torch.float64)
    corner[0, 0, 1, 0] = 1  # it is seen from row 0 as itself and, reflected, as row -1
    assert blurred(corner)[0, 0, 0, 0].item() == pytest.approx(2 * taps[1] * taps[2], abs=1e-6)


def test_the_distance_of_features_by_hand():
    """W = I, f - f* = (1, 2), K = 2: (1 + 4)/2 = 2.5, so that w_kd = .1 gives .25."""
    found = feature_distance(doubles([3, 2]), doubles([2, 0]), torch.eye(2, dtype=torch.float64))
    assert Mfcl().w_kd * found.item() == pytest.approx(0.25, rel=1e-15)


def test_the_content_loss_is_almost_constant_as_published():
    """A logit of 5 over three of 0, divided by 1000: ln(e^.005 + 3) - .005 = 1.38255; of equal logits ln 4 = 1.3863."""
    x = torch.zeros(1, 1, 8, 8, dtype=torch.float64)
    found = generator_terms(x, doubles([5, 0, 0, 0]), [], Mfcl().divisor)
    assert found[0].item() == pytest.approx(math.log(math.exp(0.005) + 3) - 0.005, rel=1e-12)
    assert found[0].item() == pytest.approx(1.3825, abs=1e-4)
    assert found[2:].tolist() == [0, 0]


def test_the_generators_losses_are_numpys():
    """Two BatchNorm layers in evaluation mode; biased variances of their inputs."""
    torch.manual_seed(0)
    layers = nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(108, 5), nn.BatchNorm1d(5)
    network = nn.Sequential(*layers, nn.Linear(5, 4)).double()
    x = torch.randn(6, 1, 8, 8, dtype=torch.float64)
    network(3 * x + 1)
    network.eval()
    logits, seen = with_batch_statistics(network, x)
    found = generator_terms(x, logits, seen, 2.0)
    with torch.no_grad():
        entering = network[0](x).numpy(), network[:5](x).numpy()
    z = logits.detach().numpy()
    p = np.exp(z / 2) / np.exp(z / 2).sum(1, keepdims=True)
    content = -np.log(p.max(1)).mean()
    q = (np.exp(z) / np.exp(z).sum(1, keepdims=True)).mean(0)
    entropy = 1 + (q * np.log(q)).sum() / np.log(4)
    by_layer = []
    for inputs, norm, axes in zip(entering, (network[1], network[5]), ((0, 2, 3), 0), strict=True):
        s, mu = inputs.std(axes), inputs.mean(axes)
        s_run, mu_run = np.sqrt(norm.running_var.numpy()), norm.running_mean.numpy()
        by_layer.append((np.log(s / s_run) - (1 - (s_run**2 + (mu - mu_run) ** 2) / s**2) / 2).mean())
    padded = np.pad(x[:, 0].numpy(), ((0, 0), (2, 2), (2, 2)), "reflect")
    taps = np.exp(-((np.arange(-2, 3) / 2) ** 2))
    kernel = np.outer(taps, taps) / taps.sum() ** 2
    smooth = sum(kernel[i, j] * padded[:, i : i + 8, j : j + 8] for i in range(5) for j in range(5))
    noise = ((x[:, 0].numpy() - smooth) ** 2).mean()
    np.testing.assert_allclose(found.detach(), [content, entropy, np.mean(by_layer), noise], rtol=1e-6)


def test_the_generator_has_the_papers_layers():
    """8,423,939 parameters at 32 x 32: 1000 -> 128 x 8 x 8, 128, 64, 3. Its images have mean 0 and variance 1."""
    module = make_generator((3, 32, 32), 1000, 128, True, torch.float32)
    assert len(FlatModel(module).parameters) == 8_423_939
    assert [layer.eps for layer in module if isinstance(layer, nn.BatchNorm2d)] == [1e-5, 0.8, 0.8, 1e-5]
    torch.manual_seed(0)
    x = make_generator((3, 32, 32), 5, 4, True, torch.float64)(torch.randn(4, 5, dtype=torch.float64))
    np.testing.assert_allclose(x.mean((0, 2, 3)).detach(), 0, atol=1e-9)
    np.testing.assert_allclose(x.var((0, 2, 3), correction=0).detach(), 1, atol=1e-2)


@pytest.mark.parametrize(("size", "channels"), [(8, 1), (28, 1), (32, 3), (64, 3)])
def test_the_generator_makes_images_of_the_models_inputs(size, channels):
    """Where inputs are not normalized they are pixels, from 0 to 1."""
    x = make_generator((channels, size, size), 5, 2, False, torch.float32)(torch.randn(3, 5))
    assert x.shape == (3, channels, size, size)
    assert x.min() >= 0
    assert x.max() <= 1


def test_a_softmax_among_some_classes():
    """Logits (0, ln 3, 9) among the first two: -ln 3/4 for label 1; a row of another label does not count."""
    logits, among = doubles([0, math.log(3), 9], [5, 5, 5]), torch.tensor([True, True, False])
    assert loss_among(logits, torch.tensor([1, 2]), among).item() == pytest.approx(math.log(4 / 3), rel=1e-12)
    assert loss_among(logits, torch.tensor([2, 2]), among).item() == 0


def softmax(z):
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


@pytest.mark.parametrize("scenario", [UNORDERED, {"kind": "domain_incremental", "tasks": 2, "shift": "rotation"}])
def test_a_clients_step_is_numpys(tiny, simulate, monkeypatch, scenario):
    """f = A x + a, z = W f + w. One client, one step a task: the generated rows as they were, the step in NumPy.

    dL/df is the new classes' error times W on real rows, and 2 w_kd/(K n) W*^T W* (f - f*) on all; f = f* here, before
    the first step, so a second step is taken. dL/dW has the new classes' error and w_ft times that among seen classes.
    """
    steps, real = [], Mfcl.Client.task_loss

    def spy(half, step):
        steps.append((step.client.model.parameters.clone().numpy(), step.x.numpy(), step.y.numpy(), half.first))
        return real(half, step)

    monkeypatch.setattr(Mfcl.Client, "task_loss", spy)
    config = tiny(
        dataset=IMAGES,
        scenario=scenario,
        model={"name": "probes:stacked_images"},
        clients__count=1,
        training={"rounds_per_task": 1, "local_steps": 2, "batch_size": 5, "optimizer": {"lr": 0.1}},
        methods={"mfcl": {**SMALL, "w_bn": 0.0, "w_ft": 0.7, "w_kd": 3.0}},
    )
    run = simulate(config)
    tasks = run.simulation.federation.tasks
    old = sorted(tasks[0].classes)
    new = old if scenario is not UNORDERED else sorted(tasks[1].classes)
    seen, K, D = sorted({*old, *new}), len(old), 64

    def parts(theta):
        A, a, W, w = np.split(theta, [3 * D, 3 * D + 3, 3 * D + 15])
        return A.reshape(3, D), a, W.reshape(4, 3), w

    A0, a0, W0, w0 = parts(steps[2][0])  # the model that ended task 1
    for (theta, x, y, first), after in zip(
        steps[2:], [steps[3][0], run.simulation.server.parameters.numpy()], strict=True
    ):
        (A, a, W, w), x = parts(theta), x.reshape(len(x), -1)
        assert (len(x), first) == (8, 5)
        f, f0 = x @ A.T + a, x @ A0.T + a0
        taught = (f0 @ W0.T + w0)[first:]
        assert y[first:].tolist() == [old[c] for c in taught[:, old].argmax(1)]
        z, hot = f @ W.T + w, np.eye(4)[y]
        among_new, among_seen = np.zeros((first, 4)), np.zeros_like(z)
        among_new[:, new] = softmax(z[:first, new]) - hot[:first, new]
        among_seen[:, seen] = softmax(z[:, seen]) - hot[:, seen]
        among_new, among_seen = among_new / first, 0.7 * among_seen / len(x)
        error = among_seen.copy()
        error[:first] += among_new
        slope = 2 * 3.0 / (K * len(x)) * (f - f0) @ W0[old].T @ W0[old]
        slope[:first] += among_new @ W
        expected = A - 0.1 * slope.T @ x, a - 0.1 * slope.sum(0), W - 0.1 * error.T @ f, w - 0.1 * error.sum(0)
        np.testing.assert_allclose(after, np.concatenate([part.reshape(-1) for part in expected]), rtol=0, atol=1e-10)
    assert not np.allclose(steps[3][0], steps[2][0])


def test_without_weights_it_is_fedavg_with_a_softmax_over_the_task(tiny, simulate):
    """Bit for bit, BatchNorm and dropout included: nothing is generated for the clients."""
    model = {**NORMED, "dropout": 0.4}
    off = simulate(tiny(**{**TINY, "model": model}, methods={"mfcl": {**SMALL, "w_ft": 0.0, "w_kd": 0.0}}))
    assert off.sha256 == simulate(tiny(**{**TINY, "model": model}, training__logits="task")).sha256
    assert off.sha256 != simulate(tiny(**{**TINY, "model": model}, methods={"mfcl": SMALL})).sha256


def test_the_heads_loss_does_not_reach_the_features(tiny, simulate):
    """After the only step of task 2, all layers but the head are the same whatever w_ft is."""
    one = {"training__rounds_per_task": 1, "training__local_steps": 1, "training__local_epochs": None}
    low, high = (simulate(tiny(**TINY, **one, methods={"mfcl": {**SMALL, "w_ft": w_ft}})).state for w_ft in (0.5, 2.0))
    changed = {name for name in low if not torch.equal(low[name], high[name])}
    assert changed == {"4.weight", "4.bias"}


def test_a_second_pass_moves_batch_norms_statistics_once_more(tiny, simulate):
    """Two rounds of 3 steps in each of two tasks: 12 passes of a client, and 6 more in task 2."""
    more = {**TINY, "training__local_steps": 3, "training__local_epochs": None}
    runs = [simulate(tiny(**more, methods={"mfcl": {**SMALL, "second_pass": again}})) for again in (False, True)]
    assert [run.state["2.num_batches_tracked"].item() for run in runs] == [12, 18]


def test_clients_draw_with_the_generators_running_statistics(tiny, simulate, monkeypatch):
    """Weights of 0 and a last bias of artanh .5 make every pixel .5 before the last BatchNorm.

    Its running mean is .1 and its running variance .16: pixels are (.5 - .1) / sqrt(.16 + 1e-5) = .999969 in every
    step. With the batch's own statistics they would be 0.
    """
    module = make_generator((1, 8, 8), 3, 2, True, torch.float32)
    for layer in module:
        if isinstance(layer, nn.Conv2d):
            nn.init.zeros_(layer.weight)
            nn.init.constant_(layer.bias, math.atanh(0.5))
    module[-1].running_mean.fill_(0.1)
    module[-1].running_var.fill_(0.16)
    weights, drawn = FlatModel(module).weights(), []
    ending, learning = Mfcl.Server.end_task, Mfcl.Client.task_loss

    def end_task(half, server):
        ending(half, server)
        half.generator = weights.parameters, weights.buffers, weights.integers

    def task_loss(half, step):
        if half.old is not None:
            drawn.append(step.x[half.first :].clone())
        return learning(half, step)

    monkeypatch.setattr(Mfcl.Server, "end_task", end_task)
    monkeypatch.setattr(Mfcl.Client, "task_loss", task_loss)
    normalized = {**BYTES, "normalize": {"mean": [0.2], "std": [3.0]}}
    simulate(tiny(**{**TINY, "dataset": normalized}, training__local_epochs=2, methods={"mfcl": SMALL}))
    assert len(drawn) > 6
    for x in drawn:
        assert x.shape == (3, 1, 8, 8)
        np.testing.assert_allclose(x, 0.999969, atol=2e-6)


def test_the_generator_goes_on_and_the_model_stays(tiny, simulate):
    """At each boundary but the last, it learns from where it was; the frozen model is the server's, to the bit."""
    three = {**TINY, "scenario": {**CLASSES, "tasks": 3}, "dataset": {**IMAGES, "classes": 6}}
    seen, real = [], Mfcl.Server.end_task

    def spy(half, server):
        made = server.networks.state().get("mfcl.generator")
        before, parameters = None if made is None else made[0].clone(), server.parameters.clone()
        real(half, server)
        if half.generator is not None:
            assert torch.equal(server.parameters, parameters)
        seen.append((before, half.generator[0].clone(), half.frozen[0], parameters))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Mfcl.Server, "end_task", spy)
        run = simulate(tiny(**three, methods={"mfcl": SMALL}))
    assert seen[0][0] is None
    assert torch.equal(seen[1][0], seen[0][1])
    assert not torch.equal(seen[1][1], seen[0][1])
    assert torch.equal(seen[2][1], seen[1][1])  # nothing is learned after the last task
    assert torch.equal(seen[1][2], seen[1][3])
    assert [r.records.get("server_steps") for r in run.rounds] == [None, 2, None, 2, None, None]


def test_the_generator_learns(tiny, simulate):
    """Its losses fall: after 60 steps the statistics are nearer and the classes more equal than after one."""
    few, many = (
        simulate(tiny(**TINY, methods={"mfcl": {**SMALL, "steps": steps, "batch_size": 32}})).rounds[1].records
        for steps in (1, 60)
    )
    assert many["generator_statistics"] < few["generator_statistics"] / 2


def test_at_a_tasks_end_there_is_a_picture(tiny, simulate):
    """Of 64 images as pixels, also where inputs are normalized; the captions are the old classes, in order."""
    for normalize in ("none", {"mean": [0.2], "std": [3.0]}):
        run = simulate(tiny(**{**TINY, "dataset": {**BYTES, "normalize": normalize}}, methods={"mfcl": SMALL}))
        assert [[*r.pictures] for r in run.rounds] == [[], ["generated"], [], []]
        picture = run.rounds[1].pictures["generated"]
        assert picture.images.shape == (64, 1, 8, 8)
        assert {*picture.captions} <= {str(label) for label in run.simulation.federation.tasks[0].classes}
        assert sorted(picture.captions) == [*picture.captions]


def test_what_is_sent_is_known_before(tiny, simulate):
    """The generator's and the model's vectors come down once per client in task 2: nothing goes up beside the model."""
    config, plain = tiny(**TINY, methods={"mfcl": SMALL}), simulate(tiny(**TINY))
    run, before = simulate(config), cost_of(config)
    generator = FlatModel(make_generator((1, 8, 8), 3, 2, False, torch.float32)).weights().nbytes
    model = plain.simulation.server.broadcast().value.nbytes
    more = [
        (r.bytes_up - p.bytes_up, r.bytes_down - p.bytes_down) for r, p in zip(run.rounds, plain.rounds, strict=True)
    ]
    assert more == [(0, 0), (0, 0), (0, 3 * (generator + model)), (0, 0)]
    counted = run.simulation.exchange
    assert (sum(before.up.values()), sum(before.down.values())) == (counted.traffic.up, counted.traffic.down)
    assert before.steps == counted.steps


def test_resuming_gives_the_same(resumed):
    whole, again = resumed(3, **TINY, methods={"mfcl": SMALL})
    assert whole == again


def test_what_does_not_suit_it_is_refused_before_anything_starts(tiny, tmp_path):
    def refusal(**overrides):
        with pytest.raises(ConfigError) as found:
            raysim.run(
                tiny(methods={"mfcl": {}}, logging__tensorboard=False, **overrides), out=tmp_path / "r", local=True
            )
        assert not (tmp_path / "r").exists()
        assert "\n" not in str(found.value)
        return str(found.value)

    assert "methods.mfcl: found no BatchNorm in the model" in refusal(dataset=IMAGES, scenario=CLASSES)
    assert "methods.mfcl: generates images, but the samples have the shape (6,)" in refusal(model=NORMED)
    assert "methods.mfcl: trains on earlier tasks" in refusal(**TINY, training__logits="task")
