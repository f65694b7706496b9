"""ER (Chaudhry et al., 2019, arXiv 1902.10486): one mean loss over a batch and a replayed one, in NumPy, in float64."""

import numpy as np
import pytest
import torch
from replay_oracle import LIVELY, LR, SOFTMAX, gradient, recorded, stream_of

from raysim.engine.compatibility import check_methods
from raysim.system.errors import ConfigError

NORMALISED = {"name": "probes:normalised"}
RAGGED = {"train": 42, "name": "synthetic", "classes": 4, "shape": [6], "test": 20}  # 14 samples: 4, 4, 4, 2


@pytest.mark.parametrize("sample_size", [None, 3])
@pytest.mark.parametrize("capacity", [3, 100])
def test_every_step_takes_the_gradient_of_one_mean_over_batch_and_replay(
    tiny, simulate, monkeypatch, sample_size, capacity
):
    """Over n new and m replayed rows the mean loss has the gradient (n g + m r) / (n + m), not g + r.

    By default m = n, of what the memory has: each row once, and only such as an earlier step trained on.
    """
    steps = recorded(monkeypatch)
    knobs = {"er": {} if sample_size is None else {"sample_size": sample_size}}
    run = simulate(tiny(model=SOFTMAX, methods=knobs, memory={"capacity": capacity}, dataset=RAGGED))
    trained, sizes = {}, set()
    for step in steps:
        x, y = stream_of(run.simulation.federation, step.client)
        before, n = trained.setdefault(step.client, set()), len(step.positions)
        (entries,) = step.drawn
        replayed = [] if entries is None else entries.positions.tolist()
        m = len(replayed)
        assert m == len(set(replayed)) == min(sample_size or n, capacity, len(before))
        assert set(replayed) <= before
        expected = n / (n + m) * gradient(step.before, x[step.positions], y[step.positions])
        if m:
            expected += m / (n + m) * gradient(step.before, x[replayed], y[replayed])
        np.testing.assert_allclose(step.after, step.before - LR * expected, rtol=0, atol=1e-14)
        sizes.add((n, m))
        before |= set(step.positions)
    assert sizes == {(4, 0), (4, min(sample_size or 4, capacity)), (2, min(sample_size or 2, capacity))}


def test_new_and_replayed_rows_are_one_batch_of_batchnorm(tiny, simulate, monkeypatch):
    """One forward pass per step, so the count of batches is FedAvg's, 12 of a client's 4 phases of 3 steps.

    With momentum 0.1 a step moves the running mean to 0.9 mean + 0.1 (mean of A x + a over both). `probes:normalised`
    begins with that linear layer, 4 units of 6 weights, and its statistics begin with the running mean.
    """
    steps = recorded(monkeypatch)
    run = simulate(tiny(model=NORMALISED, methods={"er": {}}))
    assert run.state["1.num_batches_tracked"] == 12
    for step in steps:
        (entries,) = step.drawn
        x, _ = stream_of(run.simulation.federation, step.client)
        both = x[step.positions + ([] if entries is None else entries.positions.tolist())]
        units = both @ step.before[:24].reshape(4, 6).T + step.before[24:28]
        expected = 0.9 * step.buffers[:4] + 0.1 * units.mean(0)
        np.testing.assert_allclose(step.buffers_after[:4], expected, rtol=0, atol=1e-14)
    assert {len(step.x_and_replayed) for step in steps} == {4, 8}


@pytest.mark.parametrize("empty", [{"memory__fill": "boundary"}, {"training": {"rounds_per_task": 1}}])
def test_with_an_empty_memory_it_is_fedavg_bit_for_bit(tiny, simulate, empty):
    """Filled at boundaries, it is empty throughout task 1; filled on arrival, in a client's first step (of 32 rows)."""
    shared = {"model": LIVELY, "scenario__tasks": 1, **empty}
    assert simulate(tiny(methods={"er": {}}, **shared)).sha256 == simulate(tiny(**shared)).sha256
    assert simulate(tiny(methods={"er": {}}, model=LIVELY)).sha256 != simulate(tiny(model=LIVELY)).sha256


def test_exchanges_do_not_change_a_memory_that_is_filled_at_boundaries(tiny, simulate):
    """One client of three trains per task, so others miss whole tasks. EWC asks all clients at each task's end, which

    delivers their data early. With strength 0 it changes nothing else.
    """
    scenario = {"kind": "domain_incremental", "tasks": 5, "shift": "permutation"}
    partial = {"participation__count": 1, "training__rounds_per_task": 1}
    config = {"scenario": scenario, **partial, "memory": {"fill": "boundary", "capacity": 5}, "model": LIVELY}
    alone = simulate(tiny(methods={"er": {}}, **config))
    assert simulate(tiny(methods={"er": {}, "ewc": {"strength": 0.0}}, **config)).sha256 == alone.sha256
    clients = alone.simulation.runner.host.clients.values()
    assert any(len({*(client.memory.entries().positions // 12).tolist()}) > 1 for client in clients)  # 12 of each task


@pytest.mark.parametrize(("model", "rows"), [(SOFTMAX, {5}), (NORMALISED, {4})])
def test_a_memory_of_one_row_is_replayed_unless_the_model_has_batchnorm(tiny, simulate, monkeypatch, model, rows):
    """Beside 4 new rows. The rule is for all draws, as most are a batch by themselves: one row has no variance."""
    steps = recorded(monkeypatch)
    simulate(tiny(model=model, methods={"er": {}}, memory={"capacity": 1}))
    assert {len(step.x_and_replayed) for step in steps if step.phase > 1} == rows


@pytest.mark.parametrize("methods", [{"er": {}}, {"fed_a_gem": {}}])
def test_each_sample_is_offered_once_after_the_first_step_that_trained_on_it(tiny, simulate, monkeypatch, methods):
    """Two tasks of two rounds of two epochs, two of three clients a round; trained on or replayed again, not offered.

    A memory with room for all then holds the samples in the order in which the steps took them.
    """
    steps = recorded(monkeypatch)
    more = {"training__local_epochs": 2, "participation": {"count": 2}, "memory": {"capacity": 100}}
    run = simulate(tiny(methods=methods, **more))
    for number, client in run.simulation.runner.host.clients.items():
        taken = [position for step in steps if step.client == number for position in step.positions]
        assert client.memory.entries().positions.tolist() == list(dict.fromkeys(taken))
        assert client.memory.seen == len(client.memory)
        assert len(taken) > client.memory.seen
    assert [step.held for step in steps if step.phase == 1 and step.client == 1] == [0, 4, 8, 12, 12, 12]


def test_an_augmented_row_is_replayed_as_it_was_trained_on(tiny, simulate, monkeypatch):
    """The pixels of the first step that trained on it, which the memory took it from; later ones crop it anew."""
    steps = recorded(monkeypatch)
    dataset = {"name": "synthetic", "classes": 4, "shape": [1, 6, 6], "train": 36, "test": 4}
    config = tiny(dataset={**dataset, "augment": ["crop", "flip"]}, methods={"er": {}}, training__local_epochs=2)
    simulate(config)
    first, again = {}, 0
    for step in steps:
        for position, pixels in zip(step.positions, step.x, strict=True):
            kept = first.setdefault((step.client, position), pixels)
            again += not torch.equal(kept, pixels)
        (entries,) = step.drawn
        for position, pixels in zip([] if entries is None else entries.positions.tolist(), step.x_and_replayed[4:],
                                    strict=True):  # fmt: skip
            assert torch.equal(pixels, first[step.client, position])
    assert again > 0


def test_the_wire_is_fedavgs(tiny, simulate):
    plain, ours = simulate(tiny()), simulate(tiny(methods={"er": {}}))
    assert [(r.bytes_up, r.bytes_down) for r in ours.rounds] == [(r.bytes_up, r.bytes_down) for r in plain.rounds]


def test_logits_of_the_task_alone_are_refused(tiny):
    """A replayed label of an earlier task would have a logit of -inf, an infinite loss."""
    config = tiny(methods={"er": {}}, scenario={"kind": "class_incremental", "tasks": 2}, training__logits="task")
    with pytest.raises(ConfigError, match=r"^methods\.er: trains on earlier tasks, .* seen or all$"):
        check_methods(config)
