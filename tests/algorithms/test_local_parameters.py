"""The config's model.local: parameters that stay at the clients by name, against FedPer, and BatchNorm's (FedBN)."""

import pytest
import torch
from costs import cost_of

from raysim.config import ConfigError
from raysim.engine.compatibility import check_fit
from raysim.federation.federation import build_federation
from raysim.models.building import check_model

LOCAL = {"evaluation": {"model": "local"}}


def sent(run):
    return [(done.bytes_up, done.bytes_down) for done in run.rounds]


@pytest.mark.parametrize("batch_norm", [False, True])
def test_the_last_layer_by_name_is_fedper(tiny, simulate, batch_norm):
    """The mlp's head is its last layer: the same bits, accuracies and bytes as fedper with one layer."""
    model = {"name": "mlp", "hidden": [5], "batch_norm": batch_norm}
    head = f"{4 if batch_norm else 3}.*"
    named = simulate(tiny(**LOCAL, model={**model, "local": [head]}))
    layers = simulate(tiny(**LOCAL, model=model, methods={"fedper": {"layers": 1}}))
    assert named.sha256 == layers.sha256
    assert sent(named) == sent(layers)
    assert [done.evaluation for done in named.rounds] == [done.evaluation for done in layers.rounds]


def test_batch_norm_stays_with_its_statistics(tiny, simulate):
    """FedBN: weight, bias and two statistics of 5 channels (float32) and a count (int64) are not sent: 88 bytes."""
    model = {"name": "mlp", "hidden": [5], "batch_norm": True}
    config = tiny(model={**model, "local": ["2.*"]})
    run, whole = simulate(config), simulate(tiny(model=model))
    saved = 4 * 5 * 4 + 8
    assert run.rounds[0].bytes_up == whole.rounds[0].bytes_up - 3 * saved
    assert run.rounds[0].bytes_down == whole.rounds[0].bytes_down - 3 * saved
    cost = cost_of(config)
    assert cost.up["model"] == sum(done.bytes_up for done in run.rounds)
    assert torch.equal(run.state["2.running_mean"], torch.zeros(5))
    clients = run.simulation.runner.host.clients
    means = [client.halves["local_parameters"].own[1] for client in clients.values()]
    assert not torch.equal(means[0], means[1])


@pytest.mark.parametrize(
    ("local", "words"),
    [
        (
            ["head.*"],
            r"^model.local: found 'head.\*', which matches no parameter, allowed: a pattern for names such as",
        ),
        (["*"], "^model.local: found all trained parameters, allowed: patterns that leave some to the server"),
    ],
)
def test_what_does_not_fit_is_one_line(tiny, local, words):
    config = tiny(model={"name": "mlp", "local": local})
    federation = build_federation(config)
    model = check_model(config, federation.shape, federation.classes)
    with pytest.raises(ConfigError, match=words):
        check_fit(config, model, federation.classes)


def test_an_encoding_of_the_whole_update_is_refused(tiny):
    config = tiny(model={"name": "mlp", "local": ["1.*"]}, methods={"top_k": {}})
    federation = build_federation(config)
    model = check_model(config, federation.shape, federation.classes)
    with pytest.raises(ConfigError, match=r"^model.local: found layers that stay at the client, but top_k encodes"):
        check_fit(config, model, federation.classes)
