"""An error that torch raises names the method and the hook that was active, though the failing frame is not theirs."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from raysim.api import ClientHalf, Method, Request, ServerHalf
from raysim.system.errors import RunError, convert_to_run_error, find_custom_frame

HERE = "test_named_hooks:"
ONE_ROUND = {"training__rounds_per_task": 1}


@dataclass(frozen=True, kw_only=True)
class Fails(Method):
    """Torch fails in one of its hooks, or in the backward pass of its loss."""

    where: str = "late"

    class Client(ClientHalf):
        method: "Fails"
        cache: Any = None

        def penalty(self, step):
            match self.method.where:
                case "late":  # kept where no look follows: the third step's, used in the fourth
                    if step.number == 2:
                        self.cache = step.logits.square().mean()
                        return self.cache
                    if self.cache is not None:
                        return self.cache
                case "in place":
                    penalty = step.logits.exp().mean()
                    step.logits.add_(1)  # harmless for the penalty's value, not for its gradient
                    hidden = step.logits.exp()
                    loss = hidden.mean()
                    hidden.zero_()
                    return penalty + loss
                case "penalty":
                    return (step.logits @ torch.ones(7, 1)).mean()
            return step.loss.new_zeros(())

        def ask(self, client, message):
            yield client.samples(client.arrived[:1])
            torch.ones(2) @ torch.ones(3)

    class Server(ServerHalf):
        method: "Fails"

        def conclude(self, server):
            if self.method.where == "ask":
                yield Request("ask")


def message_of(simulate, config):
    """The one line that a user sees."""
    with pytest.raises(RunError) as caught, convert_to_run_error("debug it"):
        simulate(config)
    return str(caught.value)


def test_a_graph_that_was_kept_is_the_reason_of_torchs_error(tiny, simulate):
    """Torch says "Trying to backward through the graph a second time"."""
    text = message_of(simulate, tiny(**ONE_ROUND, training__batch_size=3, methods={f"{HERE}Fails": {"where": "late"}}))
    assert "Fails: its client side's attribute cache, set by Fails.Client.penalty (" in text
    assert "holds a tensor that has autograd's graph" in text


def test_an_error_of_the_backward_pass_names_the_hooks_of_the_loss(tiny, simulate):
    text = message_of(simulate, tiny(**ONE_ROUND, methods={f"{HERE}Fails": {"where": "in place"}, "lwf": {}}))
    assert "modified by an inplace operation" in text
    assert f"; in the backward pass of the loss with Fails.Client.penalty ({__file__}:" in text
    assert "lwf" not in text  # custom code is likelier to be wrong
    assert "; client 0, round 1; debug it" in text


def test_an_error_in_a_custom_hook_has_its_place_once(tiny, simulate):
    text = message_of(simulate, tiny(**ONE_ROUND, methods={f"{HERE}Fails": {"where": "penalty"}}))
    assert text.count("Fails.Client.penalty") == 1
    text = message_of(simulate, tiny(**ONE_ROUND, methods={f"{HERE}Fails": {"where": "ask"}}))
    assert text.count("Fails.Client.ask") == 1


def test_an_error_in_a_built_in_hook_names_the_method_and_the_hook(tiny, simulate, monkeypatch):
    monkeypatch.setattr("raysim.algorithms.ewc.fisher_diagonal", lambda *_: torch.ones(2) @ torch.ones(3))
    text = message_of(simulate, tiny(**ONE_ROUND, methods={"ewc": {}}))
    assert "; in ewc.need; client 0, round 1; debug it" in text


def test_a_link_to_an_environment_is_not_custom_code():
    """Frames of installed packages are not the user's, also if the environment is a link."""
    with pytest.raises(RuntimeError) as caught:
        nn.Linear(2, 2)(torch.ones(3))
    function, place = find_custom_frame(caught.value)
    assert function == "test_a_link_to_an_environment_is_not_custom_code"
    assert place.startswith(f"{__file__}:")
