"""Fed-LoRA: merged weights by hand, from the A and B that a run's tasks ended with."""

import pytest
import torch

import raysim
from raysim.algorithms.lora import FedLora
from raysim.engine.compatibility import check_fit
from raysim.evaluation.finished_run import evaluate
from raysim.federation.federation import build_federation
from raysim.models.building import build_model, check_model
from raysim.system.errors import ConfigError

SMALL_RUN = {"model": {"name": "mlp", "hidden": [5], "adapters": {"rank": 2, "where": ["*"]}}}

LORA = {"name": "probes:stacked", "adapters": {"rank": 2, "where": ["1"], "scale": 0.5}}
"""In float64, a layer from 6 inputs to 3 outputs with adapters, and a head."""
A, B, BASE = "1.lora_a.weight", "1.lora_b.weight", "1.base.weight"


@pytest.fixture
def watched(tiny, simulate, monkeypatch):
    """A function: a run, what ended each task by name, and by round the weights of evaluations and the server's."""

    def run(**overrides):
        ends, tested = [], {}
        of_end, of_test = FedLora.Server.end_task, FedLora.Server.evaluated

        def end_task(self, server):
            ends.append({k: v.clone() for k, v in server.network.named(server.parameters).items()})
            of_end(self, server)

        def evaluated(self, server):
            weights = of_test(self, server)
            tested[server.round] = weights, server.parameters.clone()
            return weights

        monkeypatch.setattr(FedLora.Server, "end_task", end_task)
        monkeypatch.setattr(FedLora.Server, "evaluated", evaluated)
        return simulate(tiny(**{"model": LORA, "evaluation__every_rounds": 1, **overrides})), ends, tested

    return run


def initial(tiny):
    config = tiny(model=LORA)
    federation = build_federation(config)
    return build_model(config, federation.shape, federation.classes).state_dict()


@pytest.mark.parametrize(("merge", "divisor"), [("individual_mean", 3), ("individual_sum", 1)])
def test_the_model_is_w0_and_the_tasks_additions(watched, tiny, merge, divisor):
    """D_t = s B A with s = 1/2. Only the head and a new A, with B = 0, are left of the trained part."""
    run, ends, _ = watched(scenario__tasks=3, methods={"lora": {"merge": merge}})
    total = sum(0.5 * end[B] @ end[A] for end in ends) / divisor
    torch.testing.assert_close(run.state[BASE], initial(tiny)[BASE] + total, atol=1e-14, rtol=0)
    assert not run.state[B].any()
    drawn = [end[A] for end in ends]
    assert 0 < run.state[A].abs().max() <= 6**-0.5
    assert all((a - b).abs().max() > 0.05 for a, b in zip([*drawn, run.state[A]], drawn[1:], strict=False))
    assert all(end[B].abs().max() > 1e-3 for end in ends)
    assert torch.equal(run.state["2.weight"], ends[-1]["2.weight"])


@pytest.mark.parametrize(("merge", "divisor"), [("individual_mean", 2), ("individual_sum", 1)])
def test_within_a_task_its_addition_counts(watched, tiny, merge, divisor):
    """In round 3, the first of task 2: W0 + (D_1 + s B A) / t. In task 1 it is the model itself."""
    run, ends, tested = watched(methods={"lora": {"merge": merge}})
    assert tested[1][0] is None
    (weights, parameters), network = tested[3], run.simulation.model
    used, trained = network.named(weights.parameters), network.named(parameters)
    added = (0.5 * ends[0][B] @ ends[0][A] + 0.5 * trained[B] @ trained[A]) / divisor
    found = weights.frozen[BASE] + 0.5 * used[B] @ used[A] - initial(tiny)[BASE]
    assert trained[B].abs().max() > 1e-3
    torch.testing.assert_close(found, added, atol=1e-14, rtol=0)


def test_training_is_fedavg_s_on_w0_alone(watched, tiny, simulate):
    """In task 1 the losses are equal. Later tasks begin with B = 0, so they are not. Without merging, all bits are."""
    run, _, _ = watched(methods={"lora": {}})
    plain = simulate(tiny(model=LORA))
    losses = [[done.loss for done in one.rounds] for one in (run, plain)]
    assert losses[0][:2] == losses[1][:2]
    assert losses[0][2:] != losses[1][2:]
    assert simulate(tiny(model=LORA, methods={"lora": {"merge": "none"}})).sha256 == plain.sha256


def test_the_model_of_a_run_can_be_evaluated(tiny, tmp_path):
    """The file of the model has adapters, and the merged weights in place of the frozen ones."""
    config = tiny(model=LORA, methods={"lora": {}}, logging__tensorboard=False)
    result = raysim.run(config, out=tmp_path / "r", local=True)
    found = evaluate(tmp_path / "r", trust=True).evaluation["domain_il"]["accuracy"]
    assert found == pytest.approx(result.evaluation["domain_il"]["accuracy"][-1])


TWO = {"name": "mlp", "hidden": [4, 4], "adapters": {"rank": 2, "where": ["*"]}}


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ({"name": "mlp"}, "found no adapters in the model"),
        ({**LORA, "freeze": ["*.lora_a.*"]}, "found adapters with a frozen part in the model"),
        ({**TWO, "freeze": ["1.lora_a.*"]}, "found adapters with a frozen part in the model"),
        ({"name": "mlp", "adapters": {"rank": 0, "where": ["*"]}}, "found no adapters in the model"),
    ],
)
@pytest.mark.parametrize("name", ["lora", "ffa_lora", "lorm", "pilora"])
def test_a_model_without_adapters_is_refused(tiny, name, model, words):
    config = tiny(model=model, methods={name: {}})
    federation = build_federation(config)
    with pytest.raises(ConfigError) as caught:
        check_fit(config, check_model(config, federation.shape, 4), 4)
    allowed = "allowed: trained LoRA layers; set model.adapters={rank: 4, where: [LAYER]}"
    assert str(caught.value) == f"methods.{name}: {words}, {allowed}"
