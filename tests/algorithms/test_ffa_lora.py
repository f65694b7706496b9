"""FFA-LoRA: with a fixed A, the mean of B A is mean(B) A."""

import pytest
import torch
from test_lora import BASE, LORA, A, B

from raysim.algorithms.ffa_lora import FfaLora

# without A of rank 2 for 6 inputs; both ways
SMALL_RUN = {
    "model": {"name": "mlp", "hidden": [5], "adapters": {"rank": 2, "where": ["*"]}},
    "bytes_up": -4 * 2 * 6,
    "bytes_down": -4 * 2 * 6,
}

DECAYED = {"training__optimizer": {"name": "adamw", "lr": 0.01, "weight_decay": 0.3}}


def test_the_aggregate_is_the_mean_of_the_clients_models(tiny, simulate, monkeypatch):
    """Also with a decay, which would shrink A. The sum of the clients' products is taken before aggregation."""
    products, sent, real = [], [], FfaLora.Client.finish

    def finish(self, client, delta):
        named = client.model.named(client.model.parameters)
        products.append(client.share * named[B] @ named[A])
        sent.append(named[A].clone())
        return real(self, client, delta)

    monkeypatch.setattr(FfaLora.Client, "finish", finish)
    config = tiny(model=LORA, methods={"ffa_lora": {"merge": "none"}}, scenario__tasks=1, **DECAYED)
    run = simulate(config.model_copy(update={"training": config.training.model_copy(update={"rounds_per_task": 1})}))
    assert all(torch.equal(a, run.state[A]) for a in sent)
    assert sum(products).abs().max() > 1e-3
    torch.testing.assert_close(run.state[B] @ run.state[A], sum(products), atol=1e-12, rtol=0)


def test_it_is_fedavg_with_frozen_a(tiny, simulate):
    """Bit for bit, also with a decay: `model.freeze` leaves A out of the vector."""
    ours = simulate(tiny(model=LORA, methods={"ffa_lora": {"merge": "none"}}, **DECAYED))
    frozen = simulate(tiny(model={**LORA, "freeze": ["*.lora_a.*"]}, **DECAYED))
    assert ours.sha256 == frozen.sha256
    assert ours.sha256 != simulate(tiny(model=LORA, **DECAYED)).sha256


def test_a_is_drawn_and_sent_once_for_each_task(tiny, simulate):
    """A has 2 x 6 numbers, B 3 x 2 and the head 4 x 4, of 8 bytes. Three clients."""
    run = simulate(tiny(model=LORA, methods={"ffa_lora": {}}))
    model, a = 3 * 8 * (6 + 16), 3 * 8 * 12
    assert [done.bytes_up for done in run.rounds] == [model] * 4
    assert [done.bytes_down for done in run.rounds] == [model + a, model, model + a, model]
    first, second = (simulate(tiny(model=LORA, scenario__tasks=t, methods={"ffa_lora": {}})).state for t in (1, 2))
    assert not torch.equal(first[A], second[A])
    assert not second[B].any()
    assert not torch.equal(first[BASE], second[BASE])


@pytest.mark.parametrize("keep", [True, False])
def test_momentum_leaves_a_as_it_is(tiny, simulate, keep):
    keys = {"training__optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}}
    config = tiny(model=LORA, methods={"ffa_lora": {"merge": "none"}}, training__keep_optimizer=keep, **keys)
    frozen = tiny(model={**LORA, "freeze": ["*.lora_a.*"]}, training__keep_optimizer=keep, **keys)
    assert simulate(config).sha256 == simulate(frozen).sha256
