"""TARGET (Zhang et al., ICCV 2023, arXiv 2303.06937): what clients distill, and how the images are generated."""

import numpy as np
import pytest
import torch
from costs import cost_of
from softmax_oracle import Softmax, batch_order
from torch import nn
from torch.nn import functional

from raysim.algorithms import target
from raysim.algorithms.target import Synthesis, Target
from raysim.api import Broadcast
from raysim.cli import main
from raysim.engine.orders import Order, RoundInfo, Train
from raysim.engine.runner import LocalRunner
from raysim.engine.simulation import Simulation
from raysim.federation.federation import build_federation
from raysim.system.seeding import generator

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
        "z": 2,
    },
    "dataset__shape": [1, 8, 8],
}

IMAGES = {"name": "synthetic", "classes": 4, "shape": [1, 8, 8], "train": 36, "test": 20}
FAST = {"calls": 2, "batch": 4, "steps": 2, "width": 2, "z": 3}
SOFTMAX = {"name": "test_target:softmax"}
CLASSES, FEATURES = 4, 64


def softmax(shape, classes):
    """Softmax regression on images in float64; no BatchNorm."""
    return nn.Sequential(nn.Flatten(), nn.Linear(FEATURES, classes)).double()


@pytest.fixture
def config(tiny):
    """A function: TARGET on images of classes in two tasks, 3 clients, softmax regression without BatchNorm."""

    def make(knobs=None, **overrides):
        methods = {"target": {**FAST, "bn": 0.0, **(knobs or {})}} if knobs is not False else {}
        scenario = {"kind": "class_incremental", "tasks": 2}
        return tiny(**{"dataset": IMAGES, "scenario": scenario, "model": SOFTMAX, "methods": methods, **overrides})

    return make


@pytest.fixture
def server(quiet_torch):
    """A function: the server of a config in a round, and TARGET's server half."""

    def make(config, round=2):
        federation = build_federation(config)
        simulation = Simulation(config, federation, LocalRunner(config, federation))
        for _ in range(round):
            simulation.server.begin_round()
        return simulation.server, simulation.exchange.halves["target"]

    return make


@pytest.mark.parametrize("name", ["target", "lander", "mfcl"])
def test_a_task_that_all_clients_have_left_before_its_end(config, simulate, name):
    """Clients 0 and 1 leave after round 1 of task 1, and client 2 arrives with task 2: no images, as no class is known.

    Clients then receive no old classes in task 2, so nothing is distilled or replayed.
    """
    clients = {"count": 3, "leave": [{"clients": [0, 1], "round": 2}], "arrive": {"at": [{"round": 3, "clients": [2]}]}}
    methods = {name: {"target": {"bn": 0.0}, "lander": {"bn": 0.0}, "mfcl": {"w_bn": 0.0}}[name]}
    run = simulate(config(False, clients=clients, methods=methods))
    assert [done.cohort for done in run.rounds] == [[0, 1], [], [2], [2]]
    message, _ = run.simulation.exchange.halves[name].announce(run.simulation.server)
    assert not (message[0] if name != "target" else message)


@pytest.mark.parametrize("model", [SOFTMAX, {"name": "mlp", "hidden": [5], "dropout": 0.4, "batch_norm": True}])
def test_kd_0_and_task_1_are_fedavg_bit_for_bit(config, simulate, model):
    for tasks, knobs, same in ((2, {"kd": 0.0}, True), (1, {}, True), (2, {}, False)):
        more = {"model": model, "scenario__tasks": tasks}
        runs = [simulate(config(k, **more)).sha256 for k in (False, knobs)]
        assert (runs[0] == runs[1]) == same


def soft(logits, temperature=1.0):
    powers = np.exp((logits - logits.max(1, keepdims=True)) / temperature)
    return powers / powers.sum(1, keepdims=True)


def test_a_local_training_is_gradient_descent_on_both_losses(config, host_of, quiet_torch):
    """In NumPy: CE over the new classes 2, 3 on new data + kd KD(teacher, student; T) over 0, 1 on images in turn.

    Of 12 samples in batches of 4, of which client 0 has those of task 2; 5 images in batches of 2, so two passes leave
    out the rest of one image. d KD / d z = (p_S - p_T) / (n T).
    """
    kd, temperature, lr = 1.5, 3.0, 0.1
    knobs = {"kd": kd, "temperature": temperature, "client_batch": 2}
    made = config(knobs, training__logits="task", training__local_epochs=3)
    host = host_of(made)
    sent = host.broadcasts["model"].value
    old = sent.parameters + torch.linspace(-1, 1, 260, dtype=torch.float64)
    images = torch.arange(5 * 64).mul(37).remainder(256).to(torch.uint8).view(5, 1, 8, 8)
    host.receive([Broadcast("target", 1, (old, sent.buffers, images))])
    reply = host.perform(Order(Train(), (0,), {0: 1.0}, 1, RoundInfo(3, 1, lr)), {"target": (0, 1)})

    federation = build_federation(made)
    rows = federation.streams[0].rows[1]
    x = federation.dataset.train.x[rows].reshape(len(rows), -1).astype(np.float64)
    y = federation.dataset.train.y[rows]
    shown = (images.float() / 255).double().reshape(5, -1).numpy()
    teacher, theta = Softmax.of(old.numpy(), CLASSES, FEATURES), sent.parameters.numpy()
    stream, turn = generator(0, 0, 1, 0, "target"), []
    for batch in batch_order(0, 0, 1, len(rows), 3, 4):
        model = Softmax.of(theta, CLASSES, FEATURES)
        gradient = model.loss_and_gradient(x[batch], y[batch], kept_out=(0, 1))[1]
        if not turn:
            order = stream.permutation(5)
            turn = [order[:2], order[2:4]]
        s, error = shown[turn.pop(0)], np.zeros((2, CLASSES))
        of_old, of_new = ((s @ net.weight.T + net.bias)[:, :2] for net in (teacher, model))
        error[:, :2] = kd * (soft(of_new, temperature) - soft(of_old, temperature)) / temperature / 2
        theta = theta - lr * (gradient + np.concatenate([(error.T @ s).reshape(-1), error.sum(0)]))
    assert reply.steps == len([*batch_order(0, 0, 1, len(rows), 3, 4)]) > 4
    delta = reply.delta(torch.float64).parameters.numpy()
    np.testing.assert_allclose(delta, theta - sent.parameters.numpy(), rtol=0, atol=1e-12)


def test_images_pass_the_model_in_training_mode(config, host_of, quiet_torch):
    """BatchNorm counts two batches in each step: one of new data and one of images."""
    made = config({}, model={"name": "mlp", "hidden": [5], "batch_norm": True})
    host = host_of(made)
    sent = host.broadcasts["model"].value
    images = torch.arange(4 * 64).remainder(256).to(torch.uint8).view(4, 1, 8, 8)
    host.receive([Broadcast("target", 1, (sent.parameters, sent.buffers, images))])
    reply = host.perform(Order(Train(), (0,), {0: 1.0}, 1, RoundInfo(3, 1, 0.1)), {"target": (0, 1)})
    assert reply.integers[1].item() - sent.integers.item() == 2 * reply.steps > 0


def test_images_are_augmented_as_the_clients_samples(config, host_of, quiet_torch):
    """With crops and flips, a white image gets a black border in nearly all of 64 draws."""
    host = host_of(config({}, dataset={**IMAGES, "augment": ["crop", "flip"]}))
    client = host.clients[0]
    images = torch.full((64, 1, 8, 8), 255, dtype=torch.uint8)
    shown = next(target.synthetic_batches(client, "target", images, 64))
    assert {0.0, 1.0} == {*shown.unique().tolist()}
    assert (shown.flatten(1).min(1).values == 0).sum() > 50


def test_synthesis_lowers_the_teachers_cross_entropy(config, server):
    """On a linear teacher without BatchNorm: the kept batch has a lower loss than the generator's first images."""
    made = config({"calls": 1, "batch": 32, "steps": 60, "width": 8, "z": 16, "lr_g": 0.02})
    run, half = server(made)
    run.parameters = torch.linspace(-3, 3, 260, dtype=torch.float64).sin().mul(2.0)
    with run.rng_scope("probe"):
        synthesis = Synthesis(half.method, run)
        synthesis.seen = torch.arange(4)
        losses, real = [], synthesis.loss
        synthesis.loss = lambda images, labels, adversarial: (
            losses.append(real(images, labels, adversarial)) or losses[-1]
        )
        synthesis.synthesize(0)
    assert losses[-1].item() < 0.5 * losses[0].item()


def test_the_loss_is_that_of_the_paper(config, server):
    """bn, oh and adv, weighted, on a network with BatchNorm, in NumPy; images normalized by mean .5, deviation .25."""
    normalize = {"mean": [0.5], "std": [0.25]}
    model = {"name": "mlp", "hidden": [3], "batch_norm": True}
    made = config(
        {"bn": 2.0, "oh": 0.7, "adv": 1.3, "warmup": 1}, model=model, dataset={**IMAGES, "normalize": normalize}
    )
    run, half = server(made)
    run.buffers = torch.tensor([0.3, -0.2, 0.1, 1.5, 0.7, 2.0])
    with run.rng_scope("probe"):
        synthesis = Synthesis(half.method, run)
        student = synthesis.drawn_student().module
        images, labels = torch.rand(6, 1, 8, 8), torch.tensor([0, 1, 1, 0, 1, 0])
    loss = synthesis.loss(images, labels, adversarial=True).item()
    x = (images.flatten(1).numpy() - 0.5) / 0.25
    parts = []
    for network in (synthesis.teacher, student):
        _, first, norm, _, head = network
        inner = x @ first.weight.detach().numpy().T + first.bias.detach().numpy()
        mean, variance, weight, bias = (
            t.detach().numpy() for t in (norm.running_mean, norm.running_var, norm.weight, norm.bias)
        )
        hidden = np.maximum((inner - mean) / np.sqrt(variance + 1e-5) * weight + bias, 0)
        parts.append((inner, (hidden @ head.weight.detach().numpy().T + head.bias.detach().numpy())[:, :2]))
    (inner, known), (_, learnt) = parts
    p, q = soft(known), soft(learnt)
    agree = p.argmax(1) == q.argmax(1)
    assert agree.any()
    statistics = np.linalg.norm(inner.mean(0) - run.buffers[:3].numpy())
    statistics += np.linalg.norm(inner.var(0) - run.buffers[3:].numpy())
    wanted = 2.0 * statistics - 0.7 * np.log(p[range(6), labels]).mean()
    wanted -= 1.3 * ((p * np.log(p / q)).sum(1) * agree).mean()
    assert loss == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("meta", ["maml", "reptile"])
def test_the_generator_learns_from_its_copies(config, server, monkeypatch, meta):
    """First-order MAML: its gradient is the sum of those of the copy's steps. Reptile: 67 times the way of the copy.

    Adam's first step is lr g / (|g| + 1e-8), which is lr sign(g) here, with lr = steps times the copy's.
    """
    run, half = server(config({"meta": meta, "calls": 1, "steps": 3, "lr_g": 0.01}))
    with run.rng_scope("probe"):
        synthesis = Synthesis(half.method, run)
    before, steps, real = synthesis.generator.parameters.clone(), [], target.LocalAdam.step

    def spy(optimizer, parameters, gradient, lr):
        if parameters is synthesis.fast.parameters:
            steps.append(gradient.clone())
        real(optimizer, parameters, gradient, lr)

    monkeypatch.setattr(target.LocalAdam, "step", spy)
    with run.rng_scope("probe"):
        synthesis.synthesize(0)
    assert len(steps) == 3
    gradient = sum(steps) if meta == "maml" else 67 * (before - synthesis.fast.parameters)
    np.testing.assert_allclose(synthesis.generator.gradient, gradient, rtol=1e-6)
    moved = synthesis.generator.parameters - before
    clear = gradient.abs() > 1e-4
    assert clear.sum() > 100
    np.testing.assert_allclose(moved[clear], -0.03 * gradient[clear].sign(), rtol=1e-3)


@pytest.mark.parametrize(("calls", "warmup", "adversarial", "taught"), [(5, 3, [3, 4, 5], [4, 5]), (2, 3, [], [])])
def test_the_student_takes_part_after_the_warm_up(config, server, calls, warmup, adversarial, taught):
    """Calls from 1: the disagreement counts from call `warmup` on, training from the call after it, as in the code.

    So with the constants for CIFAR-100, 10 calls and a warm-up of 20, no student is drawn at all.
    """
    assert Target().calls < Target().warmup
    run, half = server(config({"calls": calls, "warmup": warmup, "student_steps": 1}))
    with run.rng_scope("probe"):
        synthesis, seen = Synthesis(half.method, run), []
        loss, teach = synthesis.loss, synthesis.teach
        synthesis.loss = lambda *given, adversarial: seen.append(adversarial) or loss(*given, adversarial=adversarial)
        teachings = []
        synthesis.teach = lambda call: teachings.append(call) or teach(call)
        synthesis.images()
    assert seen == [call in adversarial for call in range(1, calls + 1) for _ in range(2)]
    assert teachings == taught
    assert (synthesis.student is None) == (not adversarial)


def test_the_students_rate_falls_by_a_cosine_over_its_calls(config, server, monkeypatch):
    """From .2 to .0002 over 200 calls: in the middle their mean .1001, after a third of the way .0002 + .1998 * 3/4.

    The second call has .2 - .1998 (1 - cos(pi / 200)) / 2 = .2 - .1998 * 6.1684e-5 = .19998768.
    """
    run, half = server(config({"calls": 1, "student_steps": 2}))
    rates, step = [], target.LocalSgd.step
    monkeypatch.setattr(target.LocalSgd, "step", lambda *given: rates.append(given[-1]) or step(*given))
    with run.rng_scope("probe"):
        synthesis = Synthesis(half.method, run)
        synthesis.synthesize(0)
        for _ in range(2):
            synthesis.teach(1)
        assert synthesis.taught == 2
        for taught in (100, 200):
            synthesis.taught = taught
            synthesis.teach(1)
        synthesis.taught = 200 / 3
        synthesis.teach(1)
    found = [0.2, 0.19998768, 0.1001, 0.0002, 0.15005]
    assert rates[::2] == rates[1::2] == pytest.approx(found, abs=5e-9)


def test_a_student_learns_the_teacher(config, server):
    """Its distance to the teacher's outputs on the images shrinks; the teacher keeps every bit."""
    run, half = server(config({"calls": 1, "batch": 16, "student_steps": 40}))
    run.parameters = torch.linspace(-3, 3, 260, dtype=torch.float64).sin()
    with run.rng_scope("probe"):
        synthesis = Synthesis(half.method, run)
        synthesis.synthesize(0)
        before = [p.clone() for p in (*synthesis.teacher.parameters(), *synthesis.drawn_student().module.parameters())]
        student, x = synthesis.student, synthesis.made.flatten(0, 1).double() / 255

        def distance():
            logits = [net(x).index_select(1, synthesis.seen) for net in (student.module, synthesis.teacher)]
            return functional.kl_div(
                *(functional.log_softmax(z, 1) for z in logits), reduction="batchmean", log_target=True
            ).item()

        first = distance()
        synthesis.teach(1)
    assert distance() < 0.5 * first
    after = [*synthesis.teacher.parameters()]
    assert all(torch.equal(old, new) for old, new in zip(before, after, strict=False))


def test_images_depend_on_seed_round_and_model_alone(config, server):
    """The same for any number of hosts, as clients take no part; the model is unchanged to the bit."""

    def made(shift=0.0, **overrides):
        run, half = server(config({}, **overrides))
        run.parameters = run.parameters + shift
        before = run.parameters.clone(), run.network.parameters.clone()
        half.end_task(run)
        assert [*run.pictures] == ["generated"]
        assert torch.equal(run.parameters, before[0])
        assert torch.equal(run.network.parameters, before[1])
        return half.posted[2]

    first = made()
    assert first.dtype == torch.uint8
    assert first.shape == (8, 1, 8, 8)
    assert torch.equal(first, made())
    assert torch.equal(first, made(clients__count=2))
    assert not torch.equal(first, made(seed=1))
    assert not torch.equal(first, made(shift=torch.linspace(-1, 1, 260)))


def test_the_last_task_generates_nothing(config, server):
    run, half = server(config(), round=4)
    half.end_task(run)
    assert half.posted is None


@pytest.mark.parametrize("count", [1, 3])
def test_images_and_teacher_are_sent_once_per_task_and_client(config, simulate, count):
    """P = 260 of 8 bytes; 7 images of 64 bytes. Whoever missed the boundary is sent them when it comes."""
    more = {"training__rounds_per_task": 3, "participation": {"count": count}}
    run = simulate(config({"images": 7}, **more))
    served = set()
    for done in run.rounds:
        new = {k for k in done.cohort if 2 in done.tasks} - served
        served |= new
        assert (done.bytes_up, done.bytes_down) == (2080 * count, 2080 * count + (2080 + 7 * 64) * len(new))
    of = run.simulation
    before, counted = cost_of(of.config, of.federation), of.exchange.traffic
    assert (sum(before.up.values()), sum(before.down.values())) == (counted.up, counted.down)


def test_domains_have_all_classes_as_old_ones(config, simulate, monkeypatch):
    """The paper does not say; here, as for LwF: the distillation and the generated labels are over all classes."""
    heard, real = [], Synthesis.__init__
    monkeypatch.setattr(target.Target.Client, "start", lambda half, client, message: heard.append(message))
    monkeypatch.setattr(
        Synthesis, "__init__", lambda self, *given: real(self, *given) or heard.append(self.seen.tolist())
    )
    scenario = {"kind": "domain_incremental", "tasks": 2, "shift": "permutation"}
    simulate(config(scenario=scenario, training__rounds_per_task=1))
    assert heard == [None] * 3 + [[0, 1, 2, 3]] + [(0, 1, 2, 3)] * 3


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["methods={target: {}}"], "methods.target: matches images to BatchNorm's statistics, but the model has no"),
        (
            ["methods={target: {bn: 0}}", "dataset={name: synthetic, shape: [3, 9, 9], classes: 10}"],
            "methods.target: generates images, but the samples have the shape (3, 9, 9), allowed: 8 x 8, 28 x 28",
        ),
        (
            ["methods={target: {bn: 0}}", "scenario.boundaries={jittered: {rounds: 1}}"],
            "methods.target: needs boundaries that all clients have at the same time",
        ),
        (
            ["methods={target: {bn: 0}}", "training.logits=task", "scenario={kind: domain_incremental, tasks: 2}"],
            "methods.target: distills an earlier model, or reads what enters the head, but training.logits=task",
        ),
    ],
)
def test_what_does_not_suit_it_is_refused_in_one_line(tmp_path, capsys, overrides, words):
    argv = ["run", "configs/split_digits.yaml", *overrides, "--local", "--out", str(tmp_path / "out")]
    assert main(argv) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert words in said
    assert not (tmp_path / "out").exists()
