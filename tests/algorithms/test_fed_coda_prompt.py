"""Fed-CODA-P (Smith et al., CVPR 2023): the penalty in NumPy, what a task draws and keeps, what is refused."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import raysim
from raysim.algorithms.fed_coda_prompt import FedCodaPrompt
from raysim.algorithms.parts.prompt_slots import components_in, prompts_of
from raysim.models.building import check_model
from raysim.models.prompts import CodaPrompts
from raysim.system.errors import ConfigError

SMALL_RUN = {
    "model": {
        "name": "vit",
        "width": 8,
        "depth": 2,
        "heads": 2,
        "patch": 4,
        "input_size": None,
        "prompts": {"kind": "coda", "blocks": [0, 1], "pool": 8, "per_task": 2, "length": 2},
    },
    "dataset__shape": [1, 8, 8],
}

MODEL = SMALL_RUN["model"]
IMAGES = {"name": "synthetic", "classes": 6, "shape": [1, 8, 8], "train": 24, "test": 12}
TINY = {
    "dataset": IMAGES,
    "scenario": {"kind": "class_incremental", "tasks": 3},
    "model": MODEL,
    "training__logits": "task",
}
ADAM = {"training__optimizer": {"name": "adam", "lr": 0.005}}


def test_the_penalty_is_the_papers(tiny):
    """mu times the sum over tables M of the mean square of M M^T - I; gradient mu 4 (M M^T - I) M / n^2.

    In task 2 of two components each, M has four rows. The first two have no gradient, and later ones are not in M.
    """
    model = check_model(tiny(**TINY), (1, 8, 8), 6)
    prompts = prompts_of(model, CodaPrompts)
    prompts.at_task(1, 2)
    draws, tables, total = np.random.default_rng(0), [], 0.0
    for table in prompts.tables:
        tables.append(draws.normal(size=(8, table[0].numel())))
        with torch.no_grad():
            table.copy_(torch.from_numpy(tables[-1]).view_as(table))
        rows = tables[-1][:4]
        total += np.mean((rows @ rows.T - np.eye(4)) ** 2)
    method = FedCodaPrompt(mu=0.3)
    penalty = method.Client("fed_coda_prompt", method).penalty(SimpleNamespace(client=SimpleNamespace(model=model)))
    assert penalty.item() == pytest.approx(0.3 * total, rel=1e-5)
    gradient = model.gradient_of(penalty)
    assert len(tables) == 6
    for slope, table in zip(components_in(model, gradient), tables, strict=True):
        rows = table[:4]
        expected = 0.3 * 4 * (rows @ rows.T - np.eye(4)) @ rows / 4**2
        np.testing.assert_allclose(slope.detach().flatten(1)[2:4], expected[2:], rtol=1e-4, atol=1e-5)
        assert not slope[:2].any()
        assert not slope[4:].any()


@pytest.fixture
def begun(tiny, simulate, monkeypatch):
    """A function: by round and at the end, the tables [pool, d] of the server's model, float64."""

    def run(**overrides):
        seen, real = [], FedCodaPrompt.Server.update

        def tables(server):
            return [rows.flatten(1).double().clone() for rows in components_in(server.network, server.parameters)]

        def spy(half, server, delta, reply):
            seen.append(tables(server))
            return real(half, server, delta, reply)

        monkeypatch.setattr(FedCodaPrompt.Server, "update", spy)
        done = simulate(tiny(**TINY | {"methods": {"fed_coda_prompt": {}}} | overrides))
        return [*seen, tables(done.simulation.server)]

    return run


def test_a_task_draws_its_components_and_keeps_those_of_earlier_tasks(begun):
    """Rounds 1, 3 and 5 begin tasks of two components. Their rows are orthonormal and orthogonal to the earlier ones.

    In later tasks they are so as far as the trained ones are, which move little here. These keep their bits under plain
    Adam. The two rows of no task are 0.
    """
    seen = begun(**ADAM)
    assert len(seen) == 7
    for table in range(6):
        for task in range(3):
            first, stop = seen[2 * task][table], 2 * task + 2
            new, old = first[stop - 2 : stop], first[: stop - 2]
            torch.testing.assert_close(new @ new.T, torch.eye(2).double(), rtol=0, atol=0.02 if task else 1e-6)
            torch.testing.assert_close(new @ old.T, torch.zeros(2, 2 * task).double(), rtol=0, atol=0.1)
            assert not first[stop:].any()
            last = seen[2 * task + 2][table]
            assert torch.equal(last[: stop - 2], old)
            assert not torch.equal(last[stop - 2 : stop], new)


def test_blurry_boundaries_do_not_change_the_components_of_a_round(begun, monkeypatch):
    """With blur, clients of task 2 also have samples of tasks 1 and 3. They train the components of task 2 alone."""
    told = []
    at_task = CodaPrompts.at_task

    def spy(prompts, task, so_far):
        if task is not None:
            told.append((task, so_far))
        at_task(prompts, task, so_far)

    monkeypatch.setattr(CodaPrompts, "at_task", spy)
    begun(scenario__blur=0.5)
    assert sorted({*told}) == [(0, 1), (1, 2), (2, 3)]


def test_earlier_components_stay_whatever_moves_the_model(begun):
    """Weight decay at the clients, and momentum at the server, which still has the last task's movement."""
    decayed = {"training__optimizer": {"name": "sgd", "lr": 0.1, "weight_decay": 0.1}}
    seen = begun(**decayed, methods={"fedavgm": {"beta": 0.9}, "fed_coda_prompt": {}})
    for table in range(6):
        assert torch.equal(seen[6][table][:2], seen[2][table][:2])
        assert torch.equal(seen[6][table][2:4], seen[4][table][2:4])


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            {"model": MODEL | {"prompts": MODEL["prompts"] | {"pool": 5}}},
            r"^model\.prompts\.pool: found 5, allowed for task 3: at least 6, per_task \(2\) for each task$",
        ),
        (
            {"model": {"name": "mlp"}},
            r"^methods\.fed_coda_prompt: found no prompts in the model, allowed: .* kind coda",
        ),
        (
            {"scenario__boundaries": {"jittered": {"rounds": 1}}, "training__rounds_per_task": 3},
            r"^methods\.fed_coda_prompt: needs boundaries that all clients have at the same time",
        ),
        (
            {"scenario__order": "per_client"},
            r"^methods\.fed_coda_prompt: adds parts to the model task by task, .*; set scenario\.order=same$",
        ),
    ],
)
def test_what_does_not_suit_it_is_refused_before_anything_starts(tiny, tmp_path, overrides, words):
    config = tiny(**TINY | overrides, methods={"fed_coda_prompt": {}})
    with pytest.raises(ConfigError, match=words) as caught:
        raysim.run(config, out=tmp_path / "run", local=True)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()
