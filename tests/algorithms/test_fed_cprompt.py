"""Fed-CPrompt (Bagwe et al., 2023): the contrastive loss by hand and in runs, the model that is sent, the refusals."""

import pytest
import torch

import raysim
from raysim.algorithms.fed_cprompt import FedCPrompt
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
        "prompts": {
            "kind": "coda",
            "blocks": [0, 1],
            "pool": 8,
            "per_task": 2,
            "length": 2,
            "attention": "softmax",
            "initial": "orthogonal",
        },
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


def doubles(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def test_the_loss_by_hand():
    """Two images, z - z_g = .1 in one number of one of them.

    With z_p = z_g: 1000 * .01 - 10 * .01 + 1 = 10.9, with means (10 - .1) / 2 + 1 = 5.95. Without a last task: 10. All
    equal: the margin. Where z_p is 1.1 away in two images, 10 - 10 * 2.42 + 1 < 0: 0, without a gradient.
    """
    method, received = FedCPrompt(), doubles([0.0, 2.0], [1.0, 1.0])
    z = doubles([0.1, 2.0], [1.0, 1.0])
    assert method.contrast(z, received, received).item() == pytest.approx(10.9)
    assert FedCPrompt(reduction="mean").contrast(z, received, received).item() == pytest.approx(5.95)
    assert method.contrast(z, received, None).item() == pytest.approx(10)
    assert method.contrast(received, received, received).item() == 1
    z.requires_grad_()
    loss = method.contrast(z, received, z.detach() + doubles([1.1, 0.0], [0.0, 1.1]))
    assert loss.item() == 0
    (slope,) = torch.autograd.grad(loss, z)
    assert not slope.any()


def test_the_gradient_by_hand():
    """2 (1000 (z - z_g) - 10 (z - z_p)) = 2 (1000 * .1 - 10 * -.2) = 204 where the loss is above 0."""
    z = doubles([0.1]).requires_grad_()
    loss = FedCPrompt().contrast(z, doubles([0.0]), doubles([0.3]))
    (slope,) = torch.autograd.grad(loss, z)
    assert slope.item() == pytest.approx(204)


def test_in_a_step_the_features_are_those_of_three_models(tiny, simulate, monkeypatch):
    """The arguments of `contrast`, from the model's vectors, by a module that is built anew.

    All three are of the components of the tasks so far: in task 2, of the last task's model, too.
    """
    steps, real, penalty = [], FedCPrompt.contrast, FedCPrompt.Client.penalty

    def seen(half, step):
        vectors = [step.client.model.parameters, step.client.received]
        if half.has_previous:
            vectors.append(step.client.from_server("fed_cprompt")[0])
        steps.append([step.x, [vector.clone() for vector in vectors], step.client.task])
        return penalty(half, step)

    def contrast(method, *features):
        steps[-1].append(features)
        return real(method, *features)

    monkeypatch.setattr(FedCPrompt.Client, "penalty", seen)
    monkeypatch.setattr(FedCPrompt, "contrast", contrast)
    config = tiny(**TINY, training__rounds_per_task=1, clients__count=1, methods={"fed_cprompt": {}})
    run = simulate(config)
    module = build_model(config, (1, 8, 8), 6).eval()
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    previous = None
    for x, vectors, task, features in steps:
        module.prompts.at_task(task, task + 1)
        for vector, found in zip(vectors, features, strict=False):
            torch.nn.utils.vector_to_parameters(vector, trained)
            with torch.no_grad():
                torch.testing.assert_close(found, module.features(x), rtol=1e-5, atol=1e-6)
        assert [f is not None and f.requires_grad for f in features] == [True, False, False]
        assert (features[2] is None) == (task == 0)
        previous = vectors[-1]
    assert torch.equal(previous, steps[-1][1][2])
    assert {task for _, _, task, _ in steps} == {0, 1, 2}
    assert len(run.rounds) == 3


def test_the_first_step_of_task_1_is_fedavgs(tiny, simulate):
    """There z = z_g, so loss and gradient are 0; not so in a second step."""
    for count, same in ((1, True), (2, False)):
        more = {"training__local_epochs": None, "training__local_steps": count, "training__rounds_per_task": 1}
        one = {**TINY, **more, "scenario": {"kind": "class_incremental", "tasks": 1}}
        runs = [simulate(tiny(**one, methods=methods)).sha256 for methods in ({}, {"fed_cprompt": {}})]
        assert (runs[0] == runs[1]) == same


def test_the_model_that_ended_a_task_is_sent_once_per_client(tiny, simulate, monkeypatch):
    """It is the model that began the next task. It takes as many bytes as a model, in the first round of that task."""
    seen, real = [], FedCPrompt.Server.announce

    def spy(half, server):
        said = real(half, server)
        seen.append((server.parameters, None if half.previous is None else half.previous[0]))
        return said

    monkeypatch.setattr(FedCPrompt.Server, "announce", spy)
    run = simulate(tiny(**TINY, methods={"fed_cprompt": {}}))
    models, previous = zip(*seen, strict=True)
    expected = [None] * 2 + [models[2]] * 2 + [models[4]] * 2
    assert [a is b or torch.equal(a, b) for a, b in zip(previous, expected, strict=True)] == [True] * 6
    size = 3 * models[0].nbytes
    assert [done.bytes_down for done in run.rounds] == [size, size, 2 * size, size, 2 * size, size]
    assert {done.bytes_up for done in run.rounds} == {size}


def test_clients_may_be_at_different_tasks(tiny, simulate, monkeypatch):
    """With jittered boundaries each client trains the components of its own task, and all have one last model."""
    heard, real = [], FedCPrompt.Client.start

    def spy(half, client, message):
        heard.append((client.round, client.task, message, int(prompts(client).earlier.sum())))
        real(half, client, message)

    def prompts(client):
        return client.model.module.prompts

    monkeypatch.setattr(FedCPrompt.Client, "start", spy)
    jitter = {"scenario__boundaries": {"jittered": {"rounds": 1}}, "training__rounds_per_task": 3}
    run = simulate(tiny(**TINY | jitter, methods={"fed_cprompt": {}}))
    assert all(value.isfinite().all() for value in run.state.values())
    assert any(len({task for r, task, _, _ in heard if r == round}) > 1 for round in range(1, 10))
    assert all(earlier == 2 * task for _, task, _, earlier in heard)
    for round in range(1, 10):
        assert len({message for r, _, message, _ in heard if r == round}) == 1


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"model": {"name": "mlp"}}, "found no prompts in the model, allowed: a model with prompts of the kind coda; "),
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
    config = tiny(**TINY | overrides, methods={"fed_cprompt": {}})
    with pytest.raises(ConfigError, match=rf"^methods\.fed_cprompt: {words}") as caught:
        raysim.run(config, out=tmp_path / "run", local=True)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()
