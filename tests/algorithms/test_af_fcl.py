"""AF-FCL (Wuerkaixi et al., ICLR 2024): the flow, every loss and its step in NumPy, and what clients keep and send."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from raysim.algorithms.af_fcl import AfFcl, Learner, capped_losses, draw, weights_of
from raysim.algorithms.parts.conditional_flow import ConditionalFlow
from raysim.algorithms.parts.distillation import distillation_loss
from raysim.algorithms.parts.feature_layer import FeatureLayer
from raysim.api import FlatModel
from raysim.engine.compatibility import check_fit
from raysim.federation.federation import build_federation
from raysim.models.building import build_model, check_model
from raysim.system.errors import ConfigError

# A layer of the flow has 7 * 2 + 2, twice 2 * (2 * 2 + 2) + 4 * 2 + 2, and 2 * 6 + 6 parameters: 78. There are four.
# Down come also the orders of 6 features, int64.
SMALL_RUN = {"hyperparameters": {"width": 2}, "bytes_up": 4 * 312, "bytes_down": 4 * 312 + 4 * 8 * 6}

CLASSES = {"kind": "class_incremental", "tasks": 2}
SMALL = {"width": 3, "flow_lr": 0.01}
OFF = {"k_flow": 0.0, "k_kdlast": 0.0, "keep_moments": False}


def flow(features=4, classes=3, width=5, seed=1):
    torch.manual_seed(seed)
    return ConditionalFlow(features, classes, width, torch.float64)


def numpy_flow(net, x, y):
    """Codes and ln q: permute, then scale and shift the second half by a network of the first half."""

    def linear(layer, h):
        return h @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()

    def leaky(h):
        return np.where(h > 0, h, 0.01 * h)

    context, volume, half = np.eye(net.classes)[y], 0.0, net.features // 2
    for layer in net.layers:
        x = x[:, layer.order.numpy()]
        h = linear(layer.first, np.hstack([x[:, :half], context]))
        for block in layer.blocks:
            gate = 1 / (1 + np.exp(-linear(block.gate, context)))
            h = h + linear(block.second, leaky(linear(block.first, leaky(h)))) * gate
        out = linear(layer.last, h)
        shift, raw = out[:, : net.features - half], out[:, net.features - half :]
        scale = 1 / (1 + np.exp(-(raw + 2))) + 1e-3
        x = np.hstack([x[:, :half], scale * x[:, half:] + shift])
        volume = volume + np.log(scale).sum(1)
    return x, volume - (x**2).sum(1) / 2 - net.features / 2 * np.log(2 * np.pi)


@pytest.mark.parametrize("features", [4, 5])
def test_the_flow_is_numpys_and_its_volume_the_jacobians(features):
    net, y = flow(features), torch.tensor([2, 0])
    x = torch.randn(2, features, dtype=torch.float64)
    codes, likelihood = net.encode(x, y)
    expected, density = numpy_flow(net, x.numpy(), y.numpy())
    np.testing.assert_allclose(codes.detach(), expected, rtol=1e-12)
    np.testing.assert_allclose(likelihood.detach(), density, rtol=1e-12)
    assert torch.allclose(net.decode(codes, y), x, atol=1e-12)
    for row in range(2):
        jacobian = torch.autograd.functional.jacobian(
            lambda one, row=row: net.encode(one[None], y[row : row + 1])[0][0], x[row]
        )
        volume = likelihood[row] + codes[row].square().sum() / 2 + features / 2 * math.log(2 * math.pi)
        assert volume.item() == pytest.approx(jacobian.det().abs().log().item(), rel=1e-9)


def test_the_identity_has_the_normal_density():
    """Scale 1 is sigmoid(raw + 2) = .999: raw = ln 999 - 2. At 0, ln q = -(4/2) ln(2 pi). Codes have x's numbers."""
    net = flow()
    for layer in net.layers:
        nn.init.zeros_(layer.last.weight)
        layer.last.bias.data = torch.tensor([0.0, 0, math.log(999) - 2, math.log(999) - 2], dtype=torch.float64)
    y = torch.tensor([1])
    assert net.encode(torch.zeros(1, 4).double(), y)[1].item() == pytest.approx(-2 * math.log(2 * math.pi), rel=1e-12)
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0]]).double()
    assert net.encode(x, y)[0].sort().values[0].tolist() == pytest.approx([1, 2, 3, 4], rel=1e-12)
    assert [layer.order.tolist() for layer in net.layers[:2]] == [[3, 2, 1, 0]] * 2


def test_features_count_by_the_density_of_their_class():
    """Codes 0 and 2 of class 1: mean 1, variance 1, so at 1 w = 1 / sqrt(2 pi) = .398942; at 3, e^-2 of it.

    Class 0 has one code and class 2 none: they count the usual .5. Over two numbers w is the mean.
    """
    codes, y = torch.tensor([[0.0], [2.0], [7.0]]), torch.tensor([1, 1, 0])
    found = weights_of(
        torch.tensor([[1.0], [3.0], [7.0], [1.0]]), torch.tensor([1, 1, 0, 2]), codes, y, torch.tensor(0.5), 3
    )
    assert found.tolist() == pytest.approx([0.398942, 0.398942 * math.exp(-2), 0.5, 0.5], rel=1e-5)
    both = weights_of(torch.tensor([[1.0, 3.0]]), torch.tensor([1]), codes.repeat(1, 2), y, torch.tensor(0.5), 3)
    assert both.item() == pytest.approx(0.398942 * (1 + math.exp(-2)) / 2, rel=1e-5)


def test_the_distance_of_outputs_compares_square_roots():
    """p = (.8, .2) has the roots 2 : 1, so (2/3, 1/3); of (.5, .5) they are equal: -ln(2/9) / 2 = .752039."""
    old, new = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.8, 0.2]]).log()
    assert distillation_loss(old, new, 2.0).item() == pytest.approx(0.752039, rel=1e-6)


def test_a_drawn_feature_far_from_all_others_changes_nothing():
    """A probability of 0 costs -ln 1e-30 = 69.08 at most, and the loss has no slope; at (.8, .2) it is -ln .2 = 1.609.

    The slope of -ln p_1 at (.8, .2) is (.8, -.8). A logit of 1e9 leaves the others the probability 0.
    """
    logits = torch.tensor([[1e9, 0.0], [math.log(4), 0.0]], requires_grad=True)
    losses = capped_losses(logits)[:, 1]
    assert losses.tolist() == pytest.approx([69.0776, 1.609438], rel=1e-5)
    (slopes,) = torch.autograd.grad(losses.sum(), logits)
    assert slopes[0].tolist() == [0.0, 0.0]
    assert slopes[1].tolist() == pytest.approx([0.8, -0.8], rel=1e-5)


@pytest.mark.parametrize("last", [True, False])
def test_a_replay_of_exploded_features_leaves_the_layer(last, monkeypatch):
    """Features of 1e12 before the head make every probability 0 or 1, so that no loss on them has a gradient."""
    made = learner(last, tail=1)
    before = made.model.parameters.clone()
    far = torch.full((6, 5), 1e12, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1, 2])
    monkeypatch.setattr("raysim.algorithms.af_fcl.draw", lambda *_: (*far, torch.zeros(6, 5, dtype=torch.float64)))
    made.step_replay(X, Y)
    assert torch.equal(made.model.parameters, before)


class Sgd:
    """Makes a step show its gradient: rate 1, no state."""

    def step(self, parameters, gradient, lr):
        parameters.sub_(gradient, alpha=lr)


class FakeClient:
    """A client with a learning rate of 1 and a model of layers 4-6-5-3. The last two are h_b."""

    classes, lr = 3, 1.0

    def __init__(self):
        torch.manual_seed(0)
        self.model = FlatModel(
            nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).double()
        )
        self.model.head = ("4.weight", "4.bias")
        self.networks = {}
        self.loss = nn.functional.cross_entropy

    def from_server(self, name):
        return None

    def new_optimizer(self):
        return Sgd()

    def auxiliary_network(self, name, build, weights):
        if name not in self.networks:
            self.networks[name] = FlatModel(build())
        return self.networks[name]

    def rng_scope(self, name):
        return torch.random.fork_rng()

    def record(self, name, value):
        self.recorded = {name: float(value)}


X, Y = torch.linspace(-1, 1, 24, dtype=torch.float64).view(6, 4), torch.tensor([0, 0, 1, 0, 1, 2])


def learner(last=True, **keys):
    """A learner at the second task, with other weights at the last boundary."""
    half = AfFcl.Client("af_fcl", AfFcl(width=5, flow_lr=1.0, **keys))
    client = FakeClient()
    half.past, half.so_far = torch.tensor([0, 2]), torch.tensor([0, 1, 2])
    if last:
        half.last = torch.cos(client.model.parameters), client.model.buffers
        half.last_flow = (torch.zeros(0),) * 3
    made = Learner(half, client)
    made.optimizers["flow"] = Sgd()
    return made


def numpy_model(vector, x, features=None):
    """x_a, the input of the head, and the logits, of the weights [P] in the model's order."""
    sizes = [24, 6, 30, 5, 15, 3]
    w0, b0, w1, b1, w2, b2 = np.split(vector, np.cumsum(sizes)[:-1])
    x_a = np.tanh(x @ w0.reshape(6, 4).T + b0) if features is None else features
    hidden = np.tanh(x_a @ w1.reshape(5, 6).T + b1)
    return x_a, hidden, hidden @ w2.reshape(3, 5).T + b2


def log_softmax(z):
    z = z - z.max(1, keepdims=True)
    return z - np.log(np.exp(z).sum(1, keepdims=True))


def numerically(function, at, places):
    """Central differences of a function of a vector, at these places."""
    step, slopes = 1e-6, []
    for place in places:
        moved = [at.copy(), at.copy()]
        moved[0][place] += step
        moved[1][place] -= step
        slopes.append((function(moved[0]) - function(moved[1])) / (2 * step))
    return np.array(slopes)


def test_the_flows_step_descends_both_likelihoods():
    """L_g = -mean ln q(x_a | y) - .4 mean ln q(u | y_u), u and y_u drawn from the last flow; all in NumPy."""
    made = learner()
    before = made.flow.parameters.numpy().copy()
    x_a, _, _ = numpy_model(made.model.parameters.numpy(), X.numpy())
    torch.manual_seed(5)
    drawn, labels, _ = draw(made.last_flow, torch.tensor([0, 2]), 6)
    assert {*labels.tolist()} == {0, 2}

    def loss(vector):
        made.flow.parameters.copy_(torch.from_numpy(vector))
        ours, theirs = (
            numpy_flow(made.flow.module, *pair)[1].mean()
            for pair in ((x_a, Y.numpy()), (drawn.numpy(), labels.numpy()))
        )
        return -ours - 0.4 * theirs

    places = [0, 7, 40, 100, len(before) - 1]
    slopes, expected = numerically(loss, before, places), loss(before)
    made.flow.parameters.copy_(torch.from_numpy(before))
    torch.manual_seed(5)
    made.step_flow(X, Y)
    assert made.client.recorded["flow_loss"] == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(before[places] - made.flow.parameters.numpy()[places], slopes, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("density", ["latent", "as_published"])
@pytest.mark.parametrize("last", [True, False])
def test_the_replays_step_is_of_one_layer(density, last):
    """L_f = k_flow {[(1 - theta) w + theta] mean_i w_i (-ln p_i) + k_out k_kdlast KD}, only along h_b's first layer."""
    made = learner(last, density=density, k_flow=0.3, theta=0.25)
    before, old = made.model.parameters.numpy().copy(), np.cos(made.model.parameters.numpy())
    torch.manual_seed(6)
    drawn, labels, code = (part.numpy() for part in draw(made.flow, torch.tensor([0, 1, 2]), 6))
    codes, likelihood = numpy_flow(made.flow.module, numpy_model(before, X.numpy())[0], Y.numpy())
    usual, at = np.exp(likelihood / 6).mean(), code if density == "latent" else drawn
    weights = []
    for one, label in zip(at, labels, strict=True):
        members = codes[Y.numpy() == label]
        spread = members.var(0)
        inside = np.exp(-((one - members.mean(0)) ** 2) / 2 / np.maximum(spread, 1e-30)) / np.sqrt(
            2 * np.pi * np.maximum(spread, 1e-30)
        )
        weights.append(inside.mean() if len(members) > 1 else usual)

    def loss(vector):
        logits = numpy_model(vector, None, drawn)[2]
        fit = (np.array(weights) * -log_softmax(logits)[np.arange(6), labels]).mean()
        total = (0.75 * usual + 0.25) * fit
        if last:
            teacher = np.exp(log_softmax(numpy_model(old, None, drawn)[2] / 2))
            total += 0.1 * 0.2 * -(teacher * log_softmax(logits / 2)).sum(1).mean()
        return 0.3 * total

    slopes = numerically(loss, before, range(30, 65))
    torch.manual_seed(6)
    made.step_replay(X, Y)
    after = made.model.parameters.numpy()
    np.testing.assert_allclose(before[30:65] - after[30:65], slopes, rtol=1e-5, atol=1e-8)
    assert np.array_equal(np.delete(after, range(30, 65)), np.delete(before, range(30, 65)))


@pytest.mark.parametrize("last", [True, False])
def test_the_models_step_is_of_the_cross_entropy_and_both_distances(last):
    """CE + .2 [.5 mean (x_a - last x_a)^2 + .1 KD(last, model)] from the second task on, before it CE alone."""
    made = learner(last)
    before, old = made.model.parameters.numpy().copy(), np.cos(made.model.parameters.numpy())

    def loss(vector):
        x_a, _, logits = numpy_model(vector, X.numpy())
        total = -log_softmax(logits)[np.arange(6), Y.numpy()].mean()
        if last:
            old_x_a, _, teacher = numpy_model(old, X.numpy())
            distance = -(np.exp(log_softmax(teacher / 2)) * log_softmax(logits / 2)).sum(1).mean()
            total += 0.2 * (0.5 * ((x_a - old_x_a) ** 2).mean() + 0.1 * distance)
        return total

    slopes, expected = numerically(loss, before, range(83)), loss(before)
    assert made.step_model(X, Y).item() == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(before - made.model.parameters.numpy(), slopes, rtol=1e-5, atol=1e-8)


def test_features_enter_the_last_linear_layers():
    """With tail 2, those before the last hidden layer; with tail 1, those before the head."""
    model = FakeClient().model
    assert [FeatureLayer(model, tail).name for tail in (2, 1)] == ["2.weight", "4.weight"]


def test_at_the_neutral_setting_it_is_fedavg_with_adam(tiny, simulate):
    adam = {"training__optimizer": {"name": "adam", "lr": 0.01}, "scenario": CLASSES}
    plain = simulate(tiny(**adam))
    off = simulate(tiny(**adam, methods={"af_fcl": SMALL | OFF}))
    kept = simulate(tiny(**adam, methods={"af_fcl": SMALL | OFF | {"keep_moments": True}}))
    assert off.sha256 == plain.sha256 != kept.sha256


def test_clients_keep_the_averages_of_the_last_task_and_the_server_averages_flows(tiny, simulate, monkeypatch):
    """Three clients of 12 samples, 2 rounds per task: what the server sends in round 3 is `last` in rounds 3 and 4."""
    started, changes = [], []
    start, finish = AfFcl.Client.start, AfFcl.Client.finish

    def see_start(half, client, message):
        start(half, client, message)
        sent = client.from_server("model").parameters.clone(), client.from_server("af_fcl").parameters.clone()
        kept = None if half.last is None else (half.last[0], half.last_flow[0])
        started.append((client.round, sent, kept, half.past.tolist(), half.so_far.tolist()))

    def see_finish(half, client, delta):
        found = finish(half, client, delta)
        changes.append((client.round, found[1]["flow"].value))
        assert set(half.moments) == {"model", "layer", "flow"}
        return found

    monkeypatch.setattr(AfFcl.Client, "start", see_start)
    monkeypatch.setattr(AfFcl.Client, "finish", see_finish)
    run = simulate(tiny(scenario=CLASSES, methods={"af_fcl": SMALL}))
    first, second = (sorted(task.classes) for task in run.simulation.federation.tasks)
    sent = {number: pair for number, pair, *_ in started}
    for number, _, kept, past, so_far in started:
        assert (past, so_far) == (([], first) if number < 3 else (first, sorted(first + second)))
        assert (kept is None) == (number < 3)
        assert kept is None or all(map(torch.equal, kept, sent[3]))
    for number in (1, 2, 3):
        mean = torch.stack([change for when, change in changes if when == number]).double().mean(0)
        torch.testing.assert_close(sent[number + 1][1].double(), sent[number][1] + mean, rtol=1e-5, atol=1e-7)
        assert mean.abs().max() > 1e-3


def test_runs_with_unfit_models_are_refused(tiny):
    """A model without a hidden layer has one linear layer, and its features are the inputs."""

    def check(**changes):
        config = tiny(model__hidden=[], methods={"af_fcl": changes})
        federation = build_federation(config)
        check_fit(config, check_model(config, federation.shape, federation.classes), federation.classes)

    with pytest.raises(ConfigError, match=r"^methods\.af_fcl: found no vector of 2 or more features before the last 2"):
        check()
    check(tail=1)


def test_a_way_around_the_layer_is_refused(tiny):
    """An adapter's B reads features of A, and the frozen layer below reads the inputs, too."""
    config = tiny(model__adapters={"rank": 2, "where": ["1"]}, methods={"af_fcl": SMALL})
    federation = build_federation(config)
    with pytest.raises(ConfigError, match=r"^methods\.af_fcl: found no vector of 2 or more features "):
        check_fit(config, check_model(config, federation.shape, federation.classes), federation.classes)


@pytest.mark.parametrize("frozen", ["1.bias", "3.bias"])
def test_frozen_biases_stay(tiny, simulate, frozen):
    """Those of h_b's first layer and of the head. All other parameters move. The last task's model has them, too."""
    run = simulate(tiny(model__freeze=[frozen], methods={"af_fcl": SMALL}))
    first = build_model(tiny(model__freeze=[frozen]), (6,), 4).state_dict()
    assert [name for name, value in run.state.items() if torch.equal(value, first[name])] == [frozen]


def test_the_last_tasks_model_has_the_parts_that_stay_at_the_client(tiny, simulate, monkeypatch):
    """With FedPer, it has the client's own head, as its training in round 2 left it: 4 x 5 weights and 4 biases."""
    heads, begin = {}, AfFcl.Client.begin_task

    def see_begin(half, client):
        heads[client.id, client.round] = client.halves["fedper"].own
        begin(half, client)

    monkeypatch.setattr(AfFcl.Client, "begin_task", see_begin)
    run = simulate(tiny(methods={"fedper": {}, "af_fcl": SMALL}))
    for k, client in run.simulation.runner.host.clients.items():
        assert torch.equal(client.halves["af_fcl"].last[0][-24:], heads[k, 3][0])
