"""Clients that train together: the law of their bits, the numbers behind them, and what is refused."""

import json
from typing import ClassVar

import pytest
import torch
from torch import nn
from torch.nn import functional

import raysim
from raysim.api import ClientHalf, Delta, Method, Request, ServerHalf, Term
from raysim.engine.compatibility import check_fit, make_methods
from raysim.engine.events import RoundDone
from raysim.engine.exact_sum import DELTAS, WIDE, ExactSum
from raysim.engine.vectorised import support
from raysim.engine.vectorised.layers import Layers, inner, key_of_step, uniform
from raysim.engine.vectorised.support import advise, check_vectorised, clients_together, hooks_of_one_client
from raysim.models.building import check_model
from raysim.system.errors import ConfigError, RunError

UNEQUAL = {
    "clients.count": 5,
    "dataset.train": 90,
    "partition": {"kind": "dirichlet", "alpha": 0.5, "min_samples": 1},
    "training.local_epochs": 2,
}
IMAGES = {"name": "synthetic", "classes": 4, "shape": [1, 28, 28], "train": 60, "test": 20, "augment": ["crop"]}
RUNS = {
    "nothing": {},
    "clipped Adam": {"training.clip_norm": 0.3, "training.optimizer": {"name": "adam", "lr": 0.01}},
    "momentum, local steps": {
        "training.local_epochs": None,
        "training.local_steps": 7,
        "training.optimizer": {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01},
    },
    "masked classes": {
        "scenario": {"kind": "class_incremental", "tasks": 2},
        "training.logits": "seen",
        "methods": {"fedprox": {"mu": 0.3}},
    },
    "rows that stay": {
        "scenario": {"kind": "class_incremental", "tasks": 2},
        "training.logits": "task",
        "training.optimizer": {"lr": 0.1, "weight_decay": 0.5},
    },
    "scaffold": {"methods": {"scaffold": {}}, "participation": {"count": 3}},
    "special": {"methods": {"special": {}}},
    "er": {"methods": {"er": {}}, "memory.capacity": 6},
    "three": {"methods": {"scaffold": {}, "er": {"sample_size": 3}, "fed_a_gem": {}}, "memory.capacity": 6},
    "a model's own parameters": {"methods": {"fedper": {"layers": 1}}, "model": {"name": "mlp", "hidden": [5]}},
    "windows": {
        "methods": {"fed_a_gem": {"sample_size": 3}},
        "scenario.boundaries": {"jittered": {"rounds": 1}},
        "training.rounds_per_task": 4,
        "memory.capacity": 5,
    },
    "BatchNorm and dropout": {
        "methods": {"er": {}, "fed_a_gem": {}},
        "memory.capacity": 5,
        "model": {"name": "mlp", "hidden": [5], "dropout": 0.3, "batch_norm": True},
    },
    "convolutions": {
        "methods": {"fed_a_gem": {}},
        "memory.capacity": 5,
        "dataset": IMAGES,
        "model": {"name": "mnist_cnn"},
    },
}


def config_of(tiny, together, **more):
    chosen = {**UNEQUAL, **more, "training.vectorise": together}
    if chosen.get("training.rounds_per_task") is None:
        chosen.pop("training.rounds_per_task", None)
    return tiny(**{key.replace(".", "__"): value for key, value in chosen.items()})


SOAKED = ("convolutions", "windows")  # 3 to 4 s each


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.soak) if name in SOAKED else name for name in RUNS]
)
def test_the_bits_depend_neither_on_the_block_nor_on_the_hosts(tiny, simulate, name):
    """Blocks of 2, 3 and 5 clients, and a host of one client, give the same bits, which are not those of null."""
    alone = simulate(config_of(tiny, None, **RUNS[name]))
    together = simulate(config_of(tiny, 2, **RUNS[name]))
    assert together.sha256 != alone.sha256
    for count, places in ((2, [[3], [0, 1, 2, 4]]), (3, [[0, 4, 2], [1, 3]]), (5, [[0, 1, 2, 3, 4]])):
        assert simulate(config_of(tiny, count, **RUNS[name]), places=places).sha256 == together.sha256
    if name not in ("BatchNorm and dropout", "convolutions"):  # where dropout draws other numbers
        for key, value in alone.state.items():
            torch.testing.assert_close(together.state[key], value, rtol=1e-3, atol=1e-5)
        assert [r.loss for r in together.rounds] == pytest.approx([r.loss for r in alone.rounds], rel=1e-4)
    assert [r.bytes_up for r in together.rounds] == [r.bytes_up for r in alone.rounds]
    assert [r.steps for r in together.rounds] == [r.steps for r in alone.rounds]


def test_the_random_numbers_of_dropout_are_splitmix64():
    """The generator's own first outputs for the seed 1234567, and a later one by Python's integers."""
    known = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]
    found = uniform(torch.tensor(1234567), 0, 5)
    assert found.tolist() == [(number >> 40) / 2**24 for number in known]
    key, step, call, index = -(2**62) + 12345, 3, 2, 7
    z = (key + (step * 2**10 * 2**32 + call * 2**32 + index + 1) * 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    z ^= z >> 31
    assert float(uniform(key_of_step(torch.tensor(key), step), call, 8)[index]) == (z >> 40) / 2**24


def test_dropout_drops_with_its_probability_and_keeps_the_mean():
    x = torch.ones(40, 50, 10)
    with Layers(torch.tensor(5)):
        once, again = functional.dropout(x, 0.3), functional.dropout(x, 0.3)
        channels, off = functional.dropout2d(x[..., None], 0.3), functional.dropout(x, 0.3, training=False)
    assert off is x
    assert not torch.equal(once, again)
    assert set(once.unique().tolist()) == {0.0, float(torch.tensor(1.0) / 0.7)}
    assert abs(float((once == 0).float().mean()) - 0.3) < 4 * (0.21 / 20_000) ** 0.5
    assert ((channels == 0).float().mean((2, 3)) % 1 == 0).all()


class Masked(nn.Sequential):
    """A column of the weights changes in a step if its input is not dropped."""

    def __init__(self, shape, classes):
        super().__init__(nn.Dropout(0.5), nn.Linear(shape[0], classes))


def test_each_step_and_each_client_drops_others(tiny, simulate):
    """Of 400 columns a step of one sample changes half, 200 with a deviation of 10, and two steps three quarters."""

    def changed(steps):
        keys = {"dataset": {"name": "synthetic", "classes": 4, "shape": [400], "train": 20, "test": 4}}
        keys |= {"model": {"name": f"{__name__}:Masked"}, "training": {"rounds_per_task": 1, "batch_size": 1}}
        keys |= {"scenario": {"kind": "class_incremental", "tasks": 1}, "clients": {"count": 2}}
        training = {**keys["training"], "local_steps": steps, "local_epochs": None, "vectorise": 2}
        config = tiny(**{**keys, "training": training})
        start = check_model(config, (400,), 4).module[1].weight.detach()
        return int((simulate(config).state["1.weight"] != start).any(0).sum())

    assert abs(changed(1) - 300) < 40  # either of two clients
    assert abs(changed(2) - 375) < 25


class AskingAgain(Method):
    """An op that asks for the gradient of one batch twice, between which only dropout differs."""

    replies: ClassVar = {"gap": "mean"}

    class Client(ClientHalf):
        def compare(self, client, message):
            batch = client.samples(client.arrived[:1])
            first = yield batch
            second = yield batch
            return {"gap": Term((first - second).abs().max())}

    class Server(ServerHalf):
        gap: float = 0.0

        def conclude(self, server):
            self.gap = float((yield Request("compare"))["gap"])

        def update(self, server, delta, reply):
            assert server.round == 1 or self.gap > 0
            return delta


def test_each_request_for_a_gradient_drops_others(tiny, simulate):
    simulate(config_of(tiny, 2, methods={f"{__name__}:AskingAgain": {}}, model={"name": f"{__name__}:Masked"}))


@pytest.mark.parametrize(("stride", "pad", "bias"), [(1, 0, True), ((2, 1), (1, 2), False), (3, 1, True)])
def test_a_convolution_as_a_product_is_torchs(stride, pad, bias):
    draws = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(s, generator=draws, dtype=torch.float64) for s in ((3, 2, 9, 8), (5, 2, 3, 2)))
    of_channels = torch.randn(5, generator=draws, dtype=torch.float64) if bias else None
    leaves = [part.requires_grad_() for part in (x, weight, of_channels) if part is not None]
    with Layers(torch.tensor(0)):
        found = functional.conv2d(x, weight, of_channels, stride, pad)
    expected = functional.conv2d(x, weight, of_channels, stride, pad)
    torch.testing.assert_close(found, expected)
    slope = torch.randn(expected.shape, generator=draws, dtype=torch.float64)
    for ours, theirs in zip(*(torch.autograd.grad(y, leaves, slope) for y in (found, expected)), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_batchnorm_is_torchs_with_its_statistics():
    x = torch.randn(6, 3, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    ours, theirs = (nn.BatchNorm2d(3, momentum=0.2).double() for _ in range(2))
    for training in (True, True, False):
        with Layers(torch.tensor(0)):
            found = ours.train(training)(x)
        torch.testing.assert_close(found, theirs.train(training)(x))
        for name, value in theirs.state_dict().items():
            torch.testing.assert_close(ours.state_dict()[name], value)


def test_an_inner_product_with_one_vector_for_all_is_each_clients_own():
    """Two clients, and the vector (1, 2, 3) of both: 1*1 + 0*2 + 2*3 = 7 and -1*1 + 1*2 + 0*3 = 1."""
    shared, own = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([[1.0, 0.0, 2.0], [-1.0, 1.0, 0.0]])
    assert torch.vmap(lambda vector: inner(vector, shared))(own).tolist() == [7, 1]


@pytest.mark.parametrize("grid", [DELTAS, WIDE])
def test_rows_are_summed_as_one_by_one(grid):
    values = torch.randn(7, 300_000 // 7 + 1, generator=torch.Generator().manual_seed(2))
    weights = [0.1, 0.2, 0.05, 0.15, 0.3, 0.1, 0.1]
    rows, one_by_one = ExactSum(grid), ExactSum(grid)
    rows.add_rows(values, weights)
    for value, weight in zip(values, weights, strict=True):
        one_by_one.add(value, weight)
    assert torch.equal(rows.limbs, one_by_one.limbs)
    assert rows.weight == one_by_one.weight


class Drawing(Method):
    """A method that claims to run under vmap, with a hook that cannot."""

    class Client(ClientHalf):
        vectorises: ClassVar = True

        def gradient(self, step, gradient):
            return gradient * step.client.generator("drawing").random()


class Deciding(Drawing):
    class Client(ClientHalf):
        vectorises: ClassVar = True

        def penalty(self, step):
            return step.loss if step.loss > 0 else step.loss * 2


class Keeping(Drawing):
    class Client(ClientHalf):
        vectorises: ClassVar = True
        count: int = 0

        def task_loss(self, step):
            self.count += 1
            return step.client.loss(step.logits, step.y)


class Reading(Drawing):
    class Client(ClientHalf):
        vectorises: ClassVar = True

        def gradient(self, step, gradient):
            return gradient * len(step.client.memory)


class Recording(Drawing):
    class Client(ClientHalf):
        vectorises: ClassVar = True

        def gradient(self, step, gradient):
            step.client.record("norm", gradient.norm())
            return gradient


class Looking(Drawing):
    class Client(ClientHalf):
        vectorises: ClassVar = True

        def penalty(self, step):
            return sum(p.pow(2).sum() for p in step.client.model.module.parameters())


@pytest.mark.parametrize(
    ("method", "why"),
    [
        ("Recording", r"Recording\.Client\.gradient .*: it records a number; allowed"),
        ("Looking", r"Looking\.Client\.penalty .*: it reads the client's data"),
        ("Drawing", r"Drawing\.Client\.gradient .*: it draws random numbers; allowed"),
        ("Deciding", r"Deciding\.Client\.penalty .*data-dependent control flow"),
        ("Keeping", r"Keeping\.Client\.task_loss .*: it changes the half's attributes; allowed"),
        ("Reading", r"Reading\.Client\.gradient .*: it reads the client's data, which differs from client to client"),
    ],
)
def test_a_hook_that_cannot_run_under_vmap_is_named(tiny, simulate, method, why):
    config = config_of(tiny, 2, methods={f"{__name__}:{method}": {}})
    with pytest.raises(RunError, match=rf"^training\.vectorise: methods\.{method}: {why}"):
        simulate(config)


class Growing(Method):
    """A half with a number that each client sets after its first phase, and notes that no hook in the loop reads."""

    class Client(ClientHalf):
        vectorises: ClassVar = True
        factor: float = 1.0
        notes: dict[str, int] | None = None

        def gradient(self, step, gradient):
            return gradient * self.factor

        def finish(self, client, delta):
            self.factor, self.notes = 0.5, {"id": client.id}
            return delta, {}


class Punishing(Method):
    """A penalty on the logits, which would count rows that only fill a batch."""

    class Client(ClientHalf):
        vectorises: ClassVar = True

        def penalty(self, step):
            return 0.3 * step.logits.pow(2).mean()


class Mixing(Method):
    """A batch in an order that torch draws."""

    class Client(ClientHalf):
        vectorises: ClassVar = True

        def batch(self, step):
            order = torch.randperm(len(step.y))
            step.x = 0.7 * step.x + 0.3 * step.x[order]


class Choosing(Method):
    """Samples by the client's own model, which a hook has put there; and a norm of the gradient."""

    class Client(ClientHalf):
        vectorises: ClassVar = True
        held: torch.Tensor | None = None

        def receive(self, client):
            if self.held is not None:
                client.model.parameters.copy_(self.held)

        def samples(self, client):
            return client.arrived[: 3 + int(client.model.parameters.abs().sum() * 10) % 4]

        def gradient(self, step, gradient):
            return gradient / (1 + gradient.norm()) + 0.01 * (torch.outer(gradient, gradient) @ step.client.received)

        def finish(self, client, delta):
            self.held = client.model.parameters.clone() * (1 + 0.1 * client.id)
            return delta, {}


class Asking(Method):
    """An op that moves the model before it asks, and asks twice."""

    replies: ClassVar = {"gradient": "mean"}

    class Client(ClientHalf):
        def slope(self, client, message):
            if not len(client.arrived):
                return {}
            client.model.parameters.mul_(0.5 + client.id)
            first = yield client.samples(client.arrived[:3])
            client.model.parameters.sub_(first)
            second = yield client.samples(client.arrived[:3])
            return {"gradient": Term(second)}

    class Server(ServerHalf):
        moved: torch.Tensor | None = None

        def conclude(self, server):
            self.moved = (yield Request("slope"))["gradient"]

        def update(self, server, delta, reply):
            return delta if self.moved is None else Delta(delta.parameters - 0.1 * self.moved, delta.buffers)


def test_a_number_that_differs_between_clients_is_refused_where_a_hook_reads_it(tiny, simulate):
    """The client that comes in round 2 has another factor than the others. With all from the start, none differs."""
    keys = {"methods": {f"{__name__}:Growing": {}}, "partition": {"kind": "iid"}}
    arrivals = {"clients.arrive": {"at": [{"round": 2, "clients": [0]}]}}
    with pytest.raises(
        RunError, match=r"Growing\.Client\.gradient .*: it reads Growing\.factor, which differs from client"
    ):
        simulate(config_of(tiny, 5, **keys, **arrivals))
    together = simulate(config_of(tiny, 2, **keys))
    assert simulate(config_of(tiny, 3, **keys), places=[[0, 4, 2], [1, 3]]).sha256 == together.sha256


class Ending(Method):
    """A batch that depends on whether the step ends an epoch, which differs between clients."""

    class Client(ClientHalf):
        vectorises: ClassVar = True

        def batch(self, step):
            step.x = 2 * step.x if step.ends_epoch else step.x


def test_the_end_of_an_epoch_is_refused_where_a_hook_reads_it(tiny, simulate):
    words = r"it reads whether the step ends an epoch, which differs from client to client"
    with pytest.raises(RunError, match=words):
        simulate(config_of(tiny, 2, methods={f"{__name__}:Ending": {}}))


def test_the_batches_of_the_run_are_tried(tiny, monkeypatch):
    """On a CPU, rows of a batched product may depend on the client's place from some number of rows on."""
    tried = []
    monkeypatch.setattr(
        support, "_try", lambda model, x, rows, clients: tried.append(rows) or [torch.zeros(3)[[*clients]]]
    )
    config = config_of(tiny, 2, **{"training.batch_size": 25})
    check_vectorised(config, check_model(config, (6,), 4))
    assert {3, 7, 13, 25} == {*tried}


@pytest.mark.parametrize("method", ["Punishing", "Mixing", "Choosing", "Asking"])
def test_methods_of_users_obey_the_law(tiny, simulate, method):
    """Clients that come later have not set their attributes yet."""
    keys = {"methods": {f"{__name__}:{method}": {}}, "clients.arrive": {"at": [{"round": 2, "clients": [0]}]}}
    keys |= {
        "partition": {"kind": "iid"},
        "model": {"name": "mlp", "hidden": [5], "dropout": 0.3 * (method == "Asking")},
    }
    together = simulate(config_of(tiny, 2, **keys)).sha256
    assert simulate(config_of(tiny, 3, **keys), places=[[0, 4, 2], [1, 3]]).sha256 == together
    assert simulate(config_of(tiny, 5, **keys), places=[[3, 1, 4, 0, 2]]).sha256 == together
    if method in ("Punishing", "Choosing"):
        alone = simulate(config_of(tiny, None, **keys)).state
        for key, value in simulate(config_of(tiny, 2, **keys)).state.items():
            torch.testing.assert_close(alone[key], value, rtol=1e-3, atol=1e-5)


def test_a_subclass_says_for_its_own_hooks_that_they_run_under_vmap():
    class Inheriting(Drawing):
        class Client(Punishing.Client):
            def gradient(self, step, gradient):
                return gradient

    assert hooks_of_one_client({"inheriting": Inheriting()}) == ["inheriting.gradient"]


class Smooth(nn.Sequential):
    """SiLU on a CPU rounds the last values of a row differently."""

    def __init__(self, shape, classes):
        super().__init__(nn.Linear(shape[0], 7), nn.SiLU(), nn.Linear(7, classes))


def test_a_model_that_rounds_by_its_neighbors_is_refused(tiny):
    config = config_of(tiny, 2, model={"name": f"{__name__}:Smooth"})
    with pytest.raises(ConfigError, match="rounds differently with other clients in a block"):
        check_fit(config, check_model(config, (6,), 4), 4)


def test_dropout_of_everything_leaves_zeros():
    with Layers(torch.tensor(5)):
        assert functional.dropout(torch.ones(3), 1.0).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("methods", "hooks"),
    [
        ({"der": {"beta": 0.5}}, ["der.penalty"]),
        ({"a_gem": {}, "scaffold": {}}, ["a_gem.gradient"]),
        ({"c_flag": {}}, ["c_flag.train"]),
        ({"dann": {}}, ["dann.features"]),
    ],
)
def test_other_methods_train_one_client_at_a_time(tiny, simulate, methods, hooks):
    config = config_of(tiny, 2, methods=methods)
    found = hooks_of_one_client(make_methods(config))
    assert set(hooks) <= set(found)
    assert clients_together(config, make_methods(config)) == 1
    assert simulate(config).sha256 == simulate(config_of(tiny, None, methods=methods)).sha256


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"schedule": {"kind": "asynchronous"}}, r"training\.vectorise=2: found 2, allowed: null with schedule\.kind"),
        ({"training.precision": "bf16"}, r"found 'bf16', allowed: 'full' with training\.vectorise"),
        ({"training.keep_optimizer": True}, r"found true, allowed: false with training\.vectorise"),
        ({"training.vectorise": 1}, r"training\.vectorise=1: found 1, allowed: a whole number >= 2"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tiny, more, message):
    with pytest.raises(ConfigError, match=message):
        config_of(tiny, 2, **more) if "training.vectorise" not in more else tiny(training__vectorise=1)


class Sequences(nn.Module):
    """A model with a layer that has no form for several clients."""

    def __init__(self, shape, classes):
        super().__init__()
        self.convolution, self.head = nn.Conv1d(1, 2, 3), nn.Linear(2 * (shape[0] - 2), classes)

    def forward(self, x):
        return self.head(self.convolution(x[:, None]).flatten(1))


def test_a_model_with_other_layers_is_refused(tiny):
    config = config_of(tiny, 2, model={"name": f"{__name__}:Sequences"})
    model = check_model(config, (6,), 4)
    with pytest.raises(ConfigError, match=r"^training\.vectorise: the model .*: RunError: found conv1d, allowed: two"):
        check_fit(config, model, 4)
    check_fit(config_of(tiny, None, model={"name": f"{__name__}:Sequences"}), model, 4)


@pytest.mark.parametrize(
    ("keys", "advice"),
    [
        ({}, None),
        ({"resources.clients_per_actor": 8}, "on a CPU, a model of 59 parameters may train several times as fast with"),
        ({"resources.clients_per_actor": 8, "methods": {"der": {}}}, None),
        ({"resources.clients_per_actor": 8, "schedule": {"kind": "asynchronous"}}, None),
        ({"training.vectorise": 4}, None),
        (
            {"training.vectorise": 4, "model": {"name": "mlp", "hidden": [5000]}},
            "on a CPU, a model of 55,004 parameters",
        ),
    ],
)
def test_advice_is_that_of_the_measurements(tiny, keys, advice):
    """6 * 5 + 5 + 5 * 4 + 4 = 59 parameters, and 6 * 5000 + 5000 + 5000 * 4 + 4 = 55,004."""
    config = tiny(clients__count=8, **{key.replace(".", "__"): value for key, value in keys.items()})
    found = advise(config, make_methods(config), check_model(config, (6,), 4))
    assert found is None if advice is None else (found or "").startswith(advice)
    assert found is None or ("=null" in found) == ("5,004" in found)


def test_a_run_says_how_many_clients_trained_together(tiny, tmp_path):
    together = raysim.run(tiny(training__vectorise=2), out=tmp_path / "together", local=True)
    assert together.clients_together == 2
    assert json.loads((tmp_path / "together/summary.json").read_text())["clients_together"] == 2
    with pytest.warns(UserWarning, match="clients train one at a time, as der.penalty cannot run for several at once"):
        alone = raysim.run(tiny(training__vectorise=2, methods={"der": {}}), out=tmp_path / "alone", local=True)
    assert alone.clients_together == 1
    assert "clients_together" not in json.loads((tmp_path / "alone/summary.json").read_text())


class Outage:
    """Ends a run after its third round as if the power had failed."""

    def take(self, event):
        if isinstance(event, RoundDone) and event.round == 3:
            raise KeyboardInterrupt

    def say(self, text):
        """Nothing."""


def test_a_resumed_run_has_the_bits_of_one_that_went_through(tiny, tmp_path):
    """Four rounds with a checkpoint after each."""
    keys = {"training__vectorise": 2, "methods": {"scaffold": {}, "er": {}}, "memory": {"capacity": 4}}
    config = tiny(**keys, checkpoint={"every_rounds": 1})
    whole = raysim.run(config, out=tmp_path / "whole", local=True)
    with pytest.raises(KeyboardInterrupt):
        raysim.run(config, out=tmp_path / "parts", local=True, display=Outage())
    resumed = raysim.run(None, out=tmp_path / "parts", local=True, resume=True)
    assert resumed.model_sha256 == whole.model_sha256
    with pytest.raises(ConfigError, match=r"training\.vectorise"):
        raysim.run(None, {"training.vectorise": 3}, out=tmp_path / "parts", local=True, resume=True)
