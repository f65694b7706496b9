"""Fed-L2P (Wang et al., CVPR 2022): a step on the keys in NumPy, what is trained and sent, and what is refused."""

import numpy as np
import pytest
import torch
from small_runs import hyperparameters

import raysim
from raysim.algorithms.fed_l2p import FedL2P
from raysim.algorithms.parts.prompt_slots import L2PPrompts, prompts_of
from raysim.engine.orders import Order, RoundInfo, Train
from raysim.models.building import build_model
from raysim.system.errors import ConfigError

SMALL_RUN = {
    "hyperparameters": {"pull": 0.5},
    "model": {
        "name": "vit",
        "width": 8,
        "depth": 2,
        "heads": 2,
        "patch": 4,
        "input_size": None,
        "prompts": {"kind": "l2p", "pool": 3, "length": 2, "top": 2},
    },
    "dataset__shape": [1, 8, 8],
}

MODEL = SMALL_RUN["model"]
IMAGES = {"name": "synthetic", "classes": 4, "shape": [1, 8, 8], "train": 24, "test": 8}
CLASSES = {"kind": "class_incremental", "tasks": 2}
TINY = {"dataset": IMAGES, "scenario": CLASSES, "model": MODEL, "training__logits": "task"}
ONE = {"clients__count": 1, "training__rounds_per_task": 1, "training__local_epochs": None, "training__local_steps": 1}


def test_a_step_pulls_the_chosen_keys_to_the_query(tiny, simulate, monkeypatch):
    """One client, one step of SGD at rate .1 (one client is centralized training).

    d cos(q, k) / dk = (q / |q| - cos k / |k|) / |k|. The step adds .1 * .7 times its mean over the batch, for the two
    nearest of three keys. The query is the class token of the trunk without prompts, which the same seed draws.
    """
    batches, real = [], FedL2P.Client.penalty
    monkeypatch.setattr(FedL2P.Client, "penalty", lambda half, step: (batches.append(step.x), real(half, step))[1])
    config = tiny(
        **TINY | ONE | {"scenario": {"kind": "domain_incremental", "tasks": 1}},
        training__batch_size=5,
        methods={"fed_l2p": {"pull": 0.7}},
    )
    after = simulate(config).state
    plain, initial = (
        build_model(tiny(**TINY | {"model": model}), (1, 8, 8), 4) for model in (MODEL | {"prompts": None}, MODEL)
    )
    with torch.no_grad():
        queries = plain.features(batches[0]).double().numpy()
    keys = initial.prompts.keys.detach().double().numpy()
    slope = np.zeros_like(keys)
    for q in queries:
        cosines = keys @ q / np.linalg.norm(keys, axis=1) / np.linalg.norm(q)
        for i in np.argsort(-cosines)[:2]:
            size = np.linalg.norm(keys[i])
            slope[i] += (q / np.linalg.norm(q) - cosines[i] * keys[i] / size) / size
    expected = keys + 0.1 * 0.7 * slope / len(queries)
    np.testing.assert_allclose(after["prompts.keys"], expected, rtol=0, atol=1e-6)
    assert np.abs(expected - keys).max() > 1e-3
    other = simulate(config.model_copy(update={"methods": {}})).state
    assert {name for name in after if not torch.equal(after[name], other[name])} == {"prompts.keys"}


def test_images_that_another_method_passes_do_not_pull(tiny, simulate, monkeypatch):
    """LANDER passes batches of 5 images in training mode before every penalty of task 2."""
    seen, real = [], FedL2P.Client.penalty

    def penalty(half, step):
        seen.append((len(prompts_of(step.client.model, L2PPrompts).query), len(step.x)))
        return real(half, step)

    monkeypatch.setattr(FedL2P.Client, "penalty", penalty)
    lander = {**hyperparameters("lander"), "bn": 0.0, "client_batch": 5}
    simulate(tiny(**TINY | {"training__logits": "all"}, methods={"lander": lander, "fed_l2p": {}}))
    assert len(seen) > 6
    assert 5 not in {rows for _, rows in seen}
    assert [queries for queries, _ in seen] == [rows for _, rows in seen]


def test_keys_prompts_and_head_are_trained_and_sent_and_nothing_else(tiny, simulate):
    """3 (8 + 2 * 8) numbers of the pool and 4 (8 + 1) of the head; without the pull, keys keep their bits."""
    initial = build_model(tiny(**TINY), (1, 8, 8), 4).state_dict()
    for pull, learned in ((0.1, {"prompts.keys"}), (0.0, set())):
        run = simulate(tiny(**TINY, methods={"fed_l2p": {"pull": pull}}))
        changed = {name for name, tensor in run.state.items() if not torch.equal(tensor, initial[name])}
        assert changed == learned | {"prompts.entries", "head.weight", "head.bias"}
        assert {r.bytes_up for r in run.rounds} == {3 * 4 * (72 + 36)}


def test_queries_are_noted_where_passes_would_be_graphs(tiny, host_of, quiet_torch, monkeypatch):
    """With CUDA graphs, `forward` is a graph, which replays no Python. The method's passes do not use it."""
    host = host_of(tiny(**TINY, methods={"fed_l2p": {}}))
    monkeypatch.setattr(host.model, "forward", None)
    host.perform(Order(Train(), (0,), {0: 1.0}, 1, RoundInfo(1, 0, 0.1)), {})


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"model": {"name": "mlp"}}, "found no prompts in the model, allowed: a model with prompts of the kind l2p; "),
        ({"model": MODEL | {"prompts": {"kind": "coda", "blocks": [0], "pool": 4, "per_task": 2}}}, "found prompts of"),
        (
            {"scenario": {"kind": "domain_incremental", "tasks": 2, "shift": "rotation"}},
            "distills .* reads what enters",
        ),
    ],
)
def test_what_does_not_suit_it_is_refused_before_anything_starts(tiny, tmp_path, overrides, words):
    config = tiny(**TINY | overrides, methods={"fed_l2p": {}})
    with pytest.raises(ConfigError, match=rf"^methods\.fed_l2p: {words}") as caught:
        raysim.run(config, out=tmp_path / "run", local=True)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()
