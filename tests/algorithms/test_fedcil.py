"""FedCIL (Qi, Zhao and Li, ICLR 2023): the AC-GAN's losses and steps in NumPy, replay, and consolidation."""

import contextlib
import math

import numpy as np
import pytest
import torch
from costs import cost_of
from torch import nn

import raysim
from raysim.algorithms.fedcil import FedCil, as_mask, draw_balanced
from raysim.algorithms.parts.acgan import Acgan, AsInputs, Optimizers, draw_images, make_generator, noise_of
from raysim.api import Broadcast, FlatModel, LocalSgd, Weights
from raysim.api.pictures import make_picture
from raysim.engine.events import RoundDone
from raysim.engine.hosted_server import HostedServer
from raysim.engine.orders import RoundInfo
from raysim.system.errors import ConfigError

# The generator has 56 + 16 + 516 + 8 + 130 + 4 + 33 + 2 + 10 = 775 parameters: of layers and their BatchNorms in
# turn. The second head has 5 weights and a bias. A client says which of the 4 classes it has, in a byte each.
SMALL_RUN = {
    "hyperparameters": {"width": 1, "noise": 2, "server_steps": 1, "server_batch": 3},
    "dataset__shape": [1, 8, 8],
    "unsure_bytes": True,
    "bytes_up": 4 * (775 + 5 + 1) + 4,
    "bytes_down": 4 * (775 + 5 + 1),
}

IMAGES = {"name": "synthetic", "classes": 4, "shape": [1, 8, 8], "train": 36, "test": 20}
CLASSES = {"kind": "class_incremental", "tasks": 2}
SMALL = {"width": 1, "noise": 2, "server_steps": 2, "server_batch": 3, "server_lr": 0.01}
OFF = {"adversarial": 0.0, "replay": 0.0, "server_steps": 0}
TINY = {"dataset": IMAGES, "scenario": CLASSES, "model": {"name": "mlp", "hidden": [5]}}


def softmax(z):
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def sigmoid(r):
    return 1 / (1 + np.exp(-r))


def small_acgan(lr=0.1, weight=1.0):
    """f = A x + a of size 3, classes z = W f + w of 3, real/fake r = u f + c; G(z) = tanh(B z + b) of 4 numbers."""
    torch.manual_seed(1)
    model = FlatModel(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 3)).double())
    model.head = ("1.weight", "1.bias")
    realness, generator = (
        FlatModel(nn.Linear(3, 1).double()),
        FlatModel(nn.Sequential(nn.Linear(5, 4), nn.Tanh()).double()),
    )
    by = Optimizers(*(LocalSgd(0.0, False, 0.0) for _ in range(3)), lr)
    cross_entropy = nn.functional.cross_entropy
    return Acgan(model, realness, generator, by, cross_entropy, torch.tensor([0, 2]), 3, weight, contextlib.nullcontext)


def arrays(acgan):
    """A, a, W, w, u, c as NumPy's."""
    return [p.detach().numpy().copy() for net in (acgan.model, acgan.realness) for p in net.module.parameters()]


def numpy_parts(acgan, x, y, real):
    """The cross-entropy and the real/fake loss of images, and their gradients with respect to z [n, 3] and r [n]."""
    A, a, W, w, u, c = arrays(acgan)
    f = x @ A.T + a
    p, s = softmax(f @ W.T + w), sigmoid(f @ u[0] + c)
    rows = np.arange(len(y))
    loss = -np.log(p[rows, y]).mean() - np.log(s if real else 1 - s).mean()
    return f, loss, (p - np.eye(3)[y]) / len(y), (s - real) / len(y)


@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_the_critics_loss_and_step_are_numpys(weight):
    """L_D = CE(x, y) + weight (BCE(x, 1) + BCE(x', 0) + CE(x', y')), x' and y' drawn from this seed."""
    acgan, x, y = small_acgan(weight=weight), np.random.default_rng(0).normal(size=(6, 4)), np.array([0, 2, 1, 0, 2, 2])
    torch.manual_seed(7)
    fakes, labels = (each.detach().numpy() for each in acgan.draw(6))
    f, loss, dz, dr = numpy_parts(acgan, x, y, True)
    f_fake, loss_fake, dz_fake, dr_fake = numpy_parts(acgan, fakes, labels, False)
    _, _, W, _, u, _ = arrays(acgan)
    p = softmax(f @ W.T + arrays(acgan)[3])
    cross_entropy = -np.log(p[np.arange(6), y]).mean()
    torch.manual_seed(7)
    found = acgan.critic_loss(torch.from_numpy(x), torch.from_numpy(y))
    assert found.item() == pytest.approx(cross_entropy + weight * (loss - cross_entropy + loss_fake), rel=1e-12)
    dr, dz_fake, dr_fake = weight * dr, weight * dz_fake, weight * dr_fake
    df, df_fake = dz @ W + dr[:, None] * u, dz_fake @ W + dr_fake[:, None] * u
    gradients = [
        df.T @ x + df_fake.T @ fakes,
        df.sum(0) + df_fake.sum(0),
        dz.T @ f + dz_fake.T @ f_fake,
        dz.sum(0) + dz_fake.sum(0),
        (dr @ f + dr_fake @ f_fake)[None],
        np.array([dr.sum() + dr_fake.sum()]),
    ]
    expected = [part - 0.1 * gradient for part, gradient in zip(arrays(acgan), gradients, strict=True)]
    acgan.step(found, 6)
    for after, part in zip(arrays(acgan), expected, strict=True):
        np.testing.assert_allclose(after, part, rtol=0, atol=1e-12)


def test_the_generators_step_is_numpys():
    """L_G = BCE(x', 1) + CE(x', y') at the critic after its step; with x' = tanh(h), dL/dh = dL/dx' (1 - x'^2)."""
    acgan, x, y = small_acgan(), torch.ones(2, 4, dtype=torch.float64), torch.tensor([0, 2])
    critic_only = small_acgan()
    torch.manual_seed(3)
    critic_only.step(critic_only.critic_loss(x, y), 5)
    torch.manual_seed(3)
    loss = acgan.critic_loss(x, y)
    state = torch.get_rng_state()
    labels = acgan.labels[torch.randint(2, (5,))]
    z = noise_of(labels, 3, acgan.generator).numpy()
    B, b = (p.detach().numpy().copy() for p in acgan.generator.module.parameters())
    fakes = np.tanh(z @ B.T + b)
    _, expected, dz, dr = numpy_parts(critic_only, fakes, labels.numpy(), True)
    A, _, W, _, u, _ = arrays(critic_only)
    dh = (dz @ W + dr[:, None] * u) @ A * (1 - fakes**2)
    torch.set_rng_state(state)
    acgan.step(loss, 5)
    torch.set_rng_state(state)
    np.testing.assert_allclose(acgan.generator.module[0].weight.detach(), B - 0.1 * dh.T @ z, rtol=0, atol=1e-12)
    np.testing.assert_allclose(acgan.generator.module[0].bias.detach(), b - 0.1 * dh.sum(0), rtol=0, atol=1e-12)
    assert expected > 0


def test_the_noise_begins_with_the_label():
    """With 47 classes and 126 numbers, the first 47 are one-hot and 79 are drawn."""
    generator = FlatModel(nn.Sequential(nn.Linear(126, 1)))
    z = noise_of(torch.tensor([46, 0, 5]), 47, generator)
    assert z.shape == (3, 126)
    assert z[:, :47].sum(1).tolist() == [1, 1, 1]
    assert z[:, :47].argmax(1).tolist() == [46, 0, 5]
    assert z[:, 47:].unique().numel() == 3 * 79


def test_the_generators_have_the_papers_layers():
    """MNIST, z 110: fc to 512 x 4 x 4; then 512 -> 256 -> 128 -> 64 by 4 x 4, 64 -> 1 by 3 x 3, each with a bias.

    CIFAR, z 110: fc to 384; then 384 -> 192 -> 96 -> 48 -> 3 by 4 x 4 without biases.
    """
    mnist = FlatModel(make_generator("mnist", (1, 32, 32), 110, 64, None, torch.float32))
    convolutions = sum(i * o * 16 + o + 2 * o for i, o in ((512, 256), (256, 128), (128, 64)))
    assert len(mnist.parameters) == 110 * 8192 + 8192 + 2 * 512 + convolutions + 64 * 9 + 1
    cifar = FlatModel(make_generator("cifar", (3, 32, 32), 110, 48, None, torch.float32))
    convolutions = sum(i * o * 16 for i, o in ((384, 192), (192, 96), (96, 48), (48, 3)))
    assert len(cifar.parameters) == 110 * 384 + 384 + convolutions + 2 * (192 + 96 + 48)


@pytest.mark.parametrize("kind", ["mnist", "cifar"])
@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32)])
def test_images_are_the_models_inputs(kind, shape):
    """tanh's -1 to 1 are pixels 0 to 1: with mean .5 and deviation .5 the inputs are -1 to 1 again."""
    moments = (0.5,) * shape[0], (0.5,) * shape[0]
    generator = FlatModel(make_generator(kind, shape, 6, 2, moments, torch.float32))
    x, y = draw_images(generator, torch.tensor([1, 3]), 4, 5)
    assert x.shape == (5, *shape)
    assert {*y.tolist()} <= {1, 3}
    assert -1 <= x.min() < 0 < x.max() <= 1


def test_the_middle_of_an_image_is_taken():
    """32 x 32 becomes 28 x 28: rows and columns 2 to 29. Pixels (x + 1)/2, less the mean .1, over the deviation .2."""
    x = torch.arange(1024.0).view(1, 1, 32, 32) / 1024
    found = AsInputs((28, 28), ((0.1,), (0.2,)))(x)
    torch.testing.assert_close(found, ((x[:, :, 2:30, 2:30] + 1) / 2 - 0.1) / 0.2)


def test_the_servers_images_have_equal_shares_of_classes():
    """Source 0 has class 0 alone, source 1 classes 0, 1 and 2: a third of the images for each, from who has them.

    G(z) = (the label, the source): its weights are (0, 1, 2) on the one-hot label, its bias the source.
    """
    generator = FlatModel(nn.Linear(5, 2))
    parameters = []
    for source in (0, 1):
        with torch.no_grad():
            generator.module.weight.zero_()
            generator.module.weight[0, :3] = torch.arange(3.0)
            generator.module.bias.copy_(torch.tensor([0.0, source]))
        parameters.append(generator.parameters.clone())
    sources = [(parameters[0], as_mask(torch.tensor([0, 0]), 3)), (parameters[1], as_mask(torch.tensor([2, 0, 1]), 3))]
    torch.manual_seed(0)
    x, y = draw_balanced(generator, [*sources, (parameters[1], torch.zeros(3, dtype=torch.uint8))], 3, 3000)
    assert x[:, 0].tolist() == y.tolist()
    assert all(abs(int(count) - 1000) < 4 * math.sqrt(3000 * 2 / 9) for count in y.bincount(minlength=3))
    assert (x[y > 0, 1] == 1).all()
    share = (x[y == 0, 1] == 0).float().mean()  # 3000 images of source 0 have class 0, some 1000 of source 1
    assert share.item() == pytest.approx(3 / 4, abs=0.06)


def test_off_it_is_fedavg_bit_for_bit(tiny, simulate):
    """As a classifier alone; also with `local_steps`, which a loop of a method's own may follow."""
    model = {"name": "mlp", "hidden": [5], "batch_norm": True, "dropout": 0.4}
    assert FedCil.neutral == OFF
    for more in ({}, {"training__local_steps": 5, "training__local_epochs": None}):
        plain, off = (simulate(tiny(**{**TINY, "model": model}, **more, methods=m)) for m in ({}, {"fedcil": OFF}))
        assert off.sha256 == plain.sha256
        assert [r.loss for r in off.rounds] == pytest.approx([r.loss for r in plain.rounds], rel=1e-6)
        assert [r.steps for r in off.rounds] == [r.steps for r in plain.rounds]


def watch(monkeypatch, name, half="Client"):
    """Record (self, arguments, result) of each call of a half's function."""
    calls, owner = [], getattr(FedCil, half)
    real = getattr(owner, name)

    def spy(self, *given):
        result = real(self, *given)
        calls.append((self, given, result))
        return result

    monkeypatch.setattr(owner, name, spy)
    return calls


def test_a_client_replays_its_own_generator_of_the_last_task(tiny, simulate, monkeypatch):
    """Frozen is what its last local training left, not the mean that followed; it is the same through the next task."""
    left, used = {}, []
    real_finish, real_start = FedCil.Client.finish, FedCil.Client.start

    def finish(half, client, delta):
        found = real_finish(half, client, delta)
        left[client.id, client.round] = client.networks["fedcil.generator"][0].clone(), half.own
        return found

    def start(half, client, message):
        real_start(half, client, message)
        used.append((client.id, client.round, half.frozen, half.past))

    monkeypatch.setattr(FedCil.Client, "finish", finish)
    monkeypatch.setattr(FedCil.Client, "start", start)
    run = simulate(tiny(**TINY, methods={"fedcil": SMALL}))
    first = torch.tensor(sorted(run.simulation.federation.tasks[0].classes))
    assert [frozen for _, number, frozen, _ in used if number < 3] == [None] * 6
    later = [each for each in used if each[1] > 2]
    assert len(later) == 6
    for client, _, frozen, past in later:
        assert torch.equal(frozen[0], left[client, 2][0])
        assert torch.equal(past, first)
    assert not torch.equal(left[0, 2][0], left[1, 2][0])


def test_without_replay_the_frozen_generator_is_not_used(tiny, simulate, monkeypatch):
    """Its images would have labels of the past; the loss on new images has the weight 1."""
    drawn = watch(monkeypatch, "_images")
    simulate(tiny(**TINY, methods={"fedcil": {**SMALL, "replay": 0.0}}))
    assert drawn == []
    run = simulate(tiny(**TINY, methods={"fedcil": SMALL}))
    old = {*run.simulation.federation.tasks[0].classes}
    assert drawn
    assert all({*y.tolist()} <= old for _, _, (_, y) in drawn)


@pytest.mark.parametrize(("classes", "images"), [(4, 4 * 8), (40, 40 * 6), (300, 256)])
def test_a_tasks_picture_has_at_most_256_images(tiny, simulate, monkeypatch, classes, images):
    """Eight images of each class; of more than 32 classes fewer; of more than 256 only those classes' that fit."""
    recorded = []
    monkeypatch.setattr(
        HostedServer, "record_image", lambda server, name, x, captions: recorded.append((name, x, captions))
    )
    simulate(
        tiny(
            dataset={**IMAGES, "classes": classes, "train": classes, "test": classes},
            scenario={"kind": "class_incremental", "tasks": 1},
            model={"name": "mlp", "hidden": [5]},
            training__rounds_per_task=1,
            methods={"fedcil": {"width": 2, "server_steps": 0}},
        )
    )
    ((name, x, captions),) = recorded
    make_picture(name, x, captions)
    assert len(x) == len(captions) == images


def test_the_servers_mean_is_that_of_exact_sums(tiny, simulate, monkeypatch):
    """Weighted by samples: with server steps it is formed from each client's change, without them from a mean term."""
    uneven = {"partition": {"kind": "dirichlet", "alpha": 0.7, "balanced": False, "min_samples": 3}}
    more = {**TINY, **uneven, "aggregation": {"weights": "samples"}, "training__rounds_per_task": 1}
    one = {**more, "scenario": {**CLASSES, "tasks": 1}}
    plain = simulate(tiny(**one, methods={"fedcil": {**SMALL, "server_steps": 0}}))
    calls = []
    monkeypatch.setattr(
        FedCil.Server,
        "_consolidate",
        lambda half, server, delta, current, past: calls.append((server.shares, current, past)) or delta,
    )
    both = simulate(tiny(**one, methods={"fedcil": SMALL}))
    ((shares, current, past),) = calls
    assert len({*shares.values()}) > 1
    assert past == []
    assert both.sha256 == plain.sha256
    means = [run.simulation.server.networks.state()["fedcil.generator"][0] for run in (plain, both)]
    torch.testing.assert_close(means[1], means[0], rtol=1e-6, atol=1e-8)
    weighted = sum(shares[k] * parameters for k, (parameters, _) in enumerate(current))
    torch.testing.assert_close(means[1], weighted, rtol=1e-6, atol=1e-7)


def test_the_server_trains_the_mean_networks(tiny, simulate, monkeypatch):
    """`server_steps` steps after every round, on current generators and, from task 2 on, the frozen ones."""
    drawn = []
    real = draw_balanced
    monkeypatch.setattr(
        "raysim.algorithms.fedcil.draw_balanced", lambda *given: drawn.append([len(given[1]), given[3]]) or real(*given)
    )
    run = simulate(tiny(**TINY, methods={"fedcil": SMALL}))
    assert [r.records["server_steps"] for r in run.rounds] == [2.0] * 4
    assert drawn == [[3, 3]] * (2 + 2) + [[3, 3], [3, 3]] * (2 + 2)
    still = simulate(tiny(**TINY, methods={"fedcil": {**SMALL, "server_lr": 1e-30}}))
    assert run.sha256 != still.sha256


def ready(host_of, config):
    """A host's client 0 in its first phase, with its half, as after `start`."""
    host = host_of(config)
    client = host.clients[0]
    half = client.halves["fedcil"]
    client.begin_phase(RoundInfo(1, 0, 0.1), 1.0)
    parameters = half._generator(client).parameters.clone(), half._realness(client).parameters.clone()
    host.receive([Broadcast("fedcil", 0, parameters)])
    half.start(client, None)
    return client, half, half._acgan(client)


def test_the_consistency_terms_are_numpys(tiny, host_of, quiet_torch):
    """3 times KD of the received model on fresh images, and 2 times CE on those of the received generator."""
    knobs = {**SMALL, "consistency_kl": 3.0, "consistency_ce": 2.0}
    config = tiny(**{**TINY, "model": {"name": "probes:stacked_images"}}, methods={"fedcil": knobs})
    client, half, acgan = ready(host_of, config)
    acgan.model.parameters.add_(0.1 * torch.randn_like(acgan.model.parameters))
    acgan.generator.parameters.add_(0.1 * torch.randn_like(acgan.generator.parameters))
    found = half._with_replay(client, acgan, torch.zeros((), dtype=torch.float64), 4)
    client.forget()
    received = FlatModel(half._build(client)())
    received.load(Weights(client.from_server("fedcil")[0], *acgan.generator.vectors[1:]))
    with client.rng_scope("fedcil"):
        own, _ = draw_images(acgan.generator, acgan.labels, 4, 4)
        sent, y = draw_images(received, acgan.labels, 4, 4)

    def logits(vector, x):
        A, a, W, w = np.split(vector.numpy(), [192, 195, 207])
        return (x.detach().flatten(1).numpy() @ A.reshape(3, 64).T + a) @ W.reshape(4, 3).T + w

    teacher = softmax(logits(client.from_server("model").parameters, own))
    kl = -(teacher * np.log(softmax(logits(acgan.model.parameters, own)))).sum(1).mean()
    ce = -np.log(softmax(logits(acgan.model.parameters, sent))[np.arange(4), y.numpy()]).mean()
    assert found.item() == pytest.approx(3 * kl + 2 * ce, rel=1e-10)


def test_the_received_model_has_the_clients_own_head(tiny, simulate, monkeypatch):
    """With FedPer the model that teaches on generated images is not the server's, with a head that is never trained."""
    taught, received, train, logits = [], [], FedCil.Client.train, FlatModel.logits

    def see_train(half, client):
        received.append(client.received.clone())
        return train(half, client)

    def see_logits(model, x, parameters, buffers):
        taught.append(torch.equal(parameters, received[-1]))
        return logits(model, x, parameters, buffers)

    monkeypatch.setattr(FedCil.Client, "train", see_train)
    monkeypatch.setattr(FlatModel, "logits", see_logits)
    simulate(tiny(**TINY, methods={"fedper": {}, "fedcil": {**SMALL, "consistency_kl": 1.0}}))
    assert taught
    assert all(taught)


def test_the_frozen_images_have_their_share_of_the_loss(tiny, host_of, quiet_torch):
    """(1 - .25) 8 + .25 L_D of images of the frozen generator, with labels of the past."""
    config = tiny(**{**TINY, "model": {"name": "probes:stacked_images"}}, methods={"fedcil": {**SMALL, "replay": 0.25}})
    client, half, acgan = ready(host_of, config)
    half.frozen, half.past = tuple(vector.clone() for vector in acgan.generator.vectors), torch.tensor([3])
    found = half._with_replay(client, acgan, torch.tensor(8.0, dtype=torch.float64), 4)
    client.forget()
    frozen = FlatModel(half._build(client)())
    frozen.load(Weights(*half.frozen))
    with client.rng_scope("fedcil"), torch.no_grad():
        x, y = draw_images(frozen, half.past, 4, 4)
        replayed = acgan.critic_loss(x, y)
    assert y.tolist() == [3, 3, 3, 3]
    assert found.item() == pytest.approx(6 + replayed.item() / 4, rel=1e-10)


def test_what_is_sent_is_known_before(tiny, simulate):
    """G and the second head, both ways, and masks of 4 classes; each frozen G once, with its mask, in round 3."""
    config, plain = tiny(**TINY, methods={"fedcil": SMALL}), simulate(tiny(**TINY))
    run, before = simulate(config), cost_of(config)
    generator, head = len(FlatModel(make_generator("mnist", (1, 8, 8), 6, 1, None, torch.float32)).parameters), 5 + 1
    up, down, once = 3 * (4 * (generator + head) + 4), 3 * 4 * (generator + head), 3 * (4 * generator + 4)
    more = [
        (r.bytes_up - p.bytes_up, r.bytes_down - p.bytes_down) for r, p in zip(run.rounds, plain.rounds, strict=True)
    ]
    assert more == [(up, down), (up, down), (up + once, down), (up, down)]
    counted = run.simulation.exchange
    assert (sum(before.up.values()), sum(before.down.values())) == (counted.traffic.up, counted.traffic.down)
    assert before.steps == counted.steps


def test_a_client_that_is_new_in_a_task_has_nothing_to_replay(tiny, simulate):
    clients = {"count": 3, "arrive": {"at": [{"round": 3, "clients": [2]}]}}
    run = simulate(tiny(**TINY, clients=clients, methods={"fedcil": SMALL}))
    assert run.rounds[2].cohort == [0, 1, 2]
    assert run.simulation.exchange.halves["fedcil"].frozen.keys() == {0, 1}


def test_domains_share_their_classes(tiny, simulate):
    """In domain-incremental streams the past has all classes: one generator for all past domains."""
    more = {**TINY, "scenario": {"kind": "domain_incremental", "tasks": 2, "shift": "rotation"}}
    run = simulate(tiny(**more, methods={"fedcil": SMALL}))
    halves = [client.halves["fedcil"] for client in run.simulation.runner.host.clients.values()]
    assert all(half.past.tolist() == [0, 1, 2, 3] for half in halves)


def test_resuming_gives_the_same(resumed):
    whole, again = resumed(3, **TINY, methods={"fedcil": SMALL})
    assert whole == again


def test_at_a_tasks_end_there_is_a_picture(tiny, simulate):
    """Eight images of each class so far: 16 after task 1, 32 after task 2."""
    run = simulate(tiny(**TINY, methods={"fedcil": SMALL}))
    pictures = [event.pictures for event in run.events if isinstance(event, RoundDone)]
    assert [{name: len(each.images) for name, each in of.items()} for of in pictures] == [
        {},
        {"generated": 16},
        {},
        {"generated": 32},
    ]


def test_what_does_not_suit_it_is_refused_before_anything_starts(tiny, tmp_path):
    def refusal(**overrides):
        with pytest.raises(ConfigError) as found:
            raysim.run(
                tiny(methods={"fedcil": {}}, logging__tensorboard=False, **overrides), out=tmp_path / "r", local=True
            )
        assert not (tmp_path / "r").exists()
        assert "\n" not in str(found.value)
        return str(found.value)

    assert "methods.fedcil: generates images, but the samples have the shape (6,)" in refusal()
    assert "methods.fedcil: found no head in model.name=probes:scaled" in refusal(model={"name": "probes:scaled"})
    assert "training.clip_norm: found 1.0, allowed with fedcil, which replaces the local loop" in refusal(
        **TINY, training__clip_norm=1.0
    )
