"""Fed-DualPrompt (Wang et al., ECCV 2022): a step on the task's key in NumPy, what a task trains, and the refusals."""

import numpy as np
import pytest
import torch
from small_runs import MODELS

import raysim
from raysim.algorithms.fed_dualprompt import FedDualPrompt
from raysim.models.building import build_model
from raysim.system.errors import ConfigError

SMALL_RUN = {
    "model": {
        "name": "vit",
        "width": 8,
        "depth": 2,
        "heads": 2,
        "patch": 4,
        "input_size": None,
        "prompts": {"kind": "dual", "general_blocks": [0], "blocks": [1], "length": 2, "pool": 3},
    },
    "dataset__shape": [1, 8, 8],
}

MODEL = SMALL_RUN["model"]
IMAGES = {"name": "synthetic", "classes": 4, "shape": [1, 8, 8], "train": 24, "test": 8}
TINY = {
    "dataset": IMAGES,
    "scenario": {"kind": "class_incremental", "tasks": 2},
    "model": MODEL,
    "training__logits": "task",
}
ONE_STEP = {"training__rounds_per_task": 1, "training__local_epochs": None, "training__local_steps": 1}


def test_a_step_pulls_the_tasks_key_to_the_queries(tiny, simulate, monkeypatch):
    """One client, one step of SGD at rate .1 in each task.

    d cos(q, k) / dk = (q / |q| - cos k / |k|) / |k|. The step adds .1 * .7 times its mean over the batch to the key of
    the task, however near the other keys are. The query is the class token of the trunk without prompts.
    """
    batches, real = [], FedDualPrompt.Client.penalty
    monkeypatch.setattr(FedDualPrompt.Client, "penalty", lambda half, s: (batches.append(s.x), real(half, s))[1])
    config = tiny(**TINY | ONE_STEP, clients__count=1, methods={"fed_dualprompt": {"pull": 0.7}})
    after = simulate(config).state["prompts.keys"]
    plain, initial = (
        build_model(tiny(**TINY | {"model": model}), (1, 8, 8), 4) for model in (MODEL | {"prompts": None}, MODEL)
    )
    expected = initial.prompts.keys.detach().double().numpy()
    before = expected.copy()
    for task, x in enumerate(batches):
        with torch.no_grad():
            queries = plain.features(x).double().numpy()
        key, slope = before[task], 0
        for q in queries / np.linalg.norm(queries, axis=1, keepdims=True):
            size = np.linalg.norm(key)
            slope = slope + (q - key @ q / size * key / size) / size
        expected[task] += 0.1 * 0.7 * slope / len(queries)
    np.testing.assert_allclose(after, expected, rtol=0, atol=1e-6)
    assert [np.abs(row).max() > 1e-3 for row in expected - before] == [True, True, False]


@pytest.mark.parametrize("pull", [1.0, 0.0])
def test_a_task_trains_its_entry_and_key(tiny, simulate, pull):
    """Entries [blocks, 2, pool, length, W]. After two tasks of a pool of three, the third entry has its initial bits.

    Without the pull all keys have theirs, as in the code of LoRM.
    """
    before = build_model(tiny(**TINY), (1, 8, 8), 4).state_dict()
    after = simulate(tiny(**TINY, methods={"fed_dualprompt": {"pull": pull}})).state
    moved = [not torch.equal(after["prompts.entries"][:, :, t], before["prompts.entries"][:, :, t]) for t in range(3)]
    assert moved == [True, True, False]
    moved = [not torch.equal(after["prompts.keys"][t], before["prompts.keys"][t]) for t in range(3)]
    assert moved == [pull > 0, pull > 0, False]
    changed = {name.split(".")[1] for name, tensor in after.items() if not torch.equal(tensor, before[name])}
    assert changed == {"general", "entries", "weight", "bias"} | ({"keys"} if pull else set())


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"model": {"name": "mlp"}}, "found no prompts in the model, allowed: a model with prompts of the kind dual; "),
        ({"model": MODELS["fed_l2p"]}, "found prompts of the kind l2p, allowed: a model with prompts of the kind d"),
        (
            {
                "scenario__boundaries": {"asynchronous": {"window": 4, "rounds_per_window": 1}},
                "training__rounds_per_task": None,
                "training__logits": "all",
            },
            "needs to know when a client's task ends",
        ),
    ],
)
def test_what_does_not_suit_it_is_refused_before_anything_starts(tiny, tmp_path, overrides, words):
    config = tiny(**TINY | overrides, methods={"fed_dualprompt": {}})
    with pytest.raises(ConfigError, match=rf"^methods\.fed_dualprompt: {words}") as caught:
        raysim.run(config, out=tmp_path / "run", local=True)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()
