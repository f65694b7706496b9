"""`ServerHalf.evaluated` may replace frozen parameters, such as a frozen layer with merged adapters."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn

from raysim.api import Method, Server, ServerHalf, Weights
from raysim.system.errors import RunError


def frozen_body(shape, classes):
    """A frozen layer, then a trained head."""
    return nn.Sequential(nn.Linear(*shape, 5).requires_grad_(False), nn.ReLU(), nn.Linear(5, classes))


@dataclass(frozen=True, kw_only=True)
class Merged(Method):
    """Evaluates with another value of one frozen parameter."""

    name: str = "0.weight"
    value: float = 0.0
    width: int = 5

    class Server(ServerHalf):
        def evaluated(self, server: Server) -> Weights:
            value = torch.full((self.method.width, *server.shape), self.method.value)
            frozen = {self.method.name: value}
            return Weights(server.parameters, server.buffers, server.integers, frozen=frozen)


KEYS = {"model": {"name": "test_frozen_values:frozen_body"}, "evaluation__every_rounds": 1}


def merged(**keys):
    return {"methods": {"test_frozen_values:Merged": keys}}


def test_values_are_used_in_evaluations_and_nowhere_else(tiny, simulate):
    """With a frozen weight of zeros, all samples have the same logits: one class, 5 of 20 test samples. Training is
    FedAvg's: only the frozen weight differs in the file of the model.
    """
    run, plain = simulate(tiny(**KEYS, **merged())), simulate(tiny(**KEYS))
    assert {accuracy for done in run.rounds for accuracy in next(iter(done.evaluation.values()))} <= {5 / 20}
    assert max(accuracy for done in plain.rounds for accuracy in next(iter(done.evaluation.values()))) > 5 / 20
    assert [done.loss for done in run.rounds] == [done.loss for done in plain.rounds]
    assert run.state["0.weight"].abs().max() == 0
    assert all(torch.equal(run.state[name], plain.state[name]) for name in run.state if name != "0.weight")


@pytest.mark.parametrize("keys", [{"name": "2.weight"}, {"name": "0.other"}, {"width": 4}])
def test_only_frozen_parameters_have_other_values(tiny, simulate, keys):
    with pytest.raises(RunError, match="with frozen parameters of the model by name, or None for the model"):
        simulate(tiny(**KEYS, **merged(**keys)))
