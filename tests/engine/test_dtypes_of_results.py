"""A hook's result in another dtype would be cast without a word and move bits: it is refused, and the hook named."""

from dataclasses import dataclass, replace

import pytest
import torch

from raysim.api import ClientHalf, Delta, Method, Request, ServerHalf, Weights
from raysim.system.errors import RunError, WrongResult

HERE = "test_dtypes_of_results:"


def doubled(weights):
    return Weights(*(v.double() if v.is_floating_point() else v for v in weights.vectors))


@dataclass(frozen=True, kw_only=True)
class Doubles(Method):
    """One of its hooks returns float64, or another shape."""

    hook: str = "nothing"

    class Client(ClientHalf):
        method: "Doubles"

        def batch(self, step):
            if self.method.hook == "batch":
                step.x = step.x.double()

        def batches(self, client):
            if self.method.hook == "batches":
                return [(x.double(), y) for x, y in [client.samples(client.arrived)]]
            return None

        def task_loss(self, step):
            loss = super().task_loss(step)
            return loss.double() if self.method.hook == "task_loss" else loss

        def penalty(self, step):
            penalty = step.logits.square().mean()
            return penalty.double() if self.method.hook == "penalty" else penalty

        def gradient(self, step, gradient):
            if self.method.hook == "halved":
                return gradient[::2]
            return gradient.double() if self.method.hook == "gradient" else gradient

        def finish(self, client, delta):
            return Delta(delta.parameters.double(), delta.buffers) if self.method.hook == "finish" else delta, {}

        def personalize(self, client, weights):
            match self.method.hook:
                case "personalize":
                    return doubled(weights)
                case "vectors":
                    return weights.vectors
                case "short":
                    return replace(weights, parameters=weights.parameters[1:])
            return weights

        def ask(self, client, message):
            x, y = client.samples(client.arrived[:2])
            yield x.double() if self.method.hook == "ask" else x, y

    class Server(ServerHalf):
        method: "Doubles"

        def update(self, server, delta, reply):
            return Delta(delta.parameters.double(), delta.buffers) if self.method.hook == "update" else delta

        def conclude(self, server):
            yield Request("ask")

        def end_task(self, server):
            if self.method.hook == "replace":
                server.replace_model(doubled(server.network.weights()))

        def evaluated(self, server):
            return doubled(server.network.weights()) if self.method.hook == "evaluated" else None


# of the model Flatten, Linear(6, 5), ReLU, Linear(5, 4): 6 * 5 + 5 + 5 * 4 + 4 = 59 parameters
@pytest.mark.parametrize(
    ("hook", "words"),
    [
        ("batch", r"Client.batch \(.*\) left step.x float64 \[4, 6\], allowed: float32, or ids"),
        ("batches", r"Client.batches \(.*\) yielded x float64 \[12, 6\], allowed: float32, or ids"),
        ("task_loss", r"Client.task_loss \(.*\) returned float64 \[\], allowed: a tensor float32 \[\]"),
        ("penalty", r"Client.penalty \(.*\) returned float64 \[\], allowed: a tensor float32 \[\]"),
        ("gradient", r"Client.gradient \(.*\) returned float64 \[59\], allowed: a tensor float32 \[59\]"),
        ("halved", r"Client.gradient \(.*\) returned float32 \[30\], allowed: a tensor float32 \[59\]"),
        ("finish", r"Client.finish \(.*\) returned Delta\(float64 \[59\], float32 \[0\]\), allowed: Delta\(float32 "),
        (
            "personalize",
            r"Client.personalize \(.*\) returned Weights\(float64 \[59\], .*\), allowed: Weights\(float32 ",
        ),
        ("vectors", r"Client.personalize \(.*\) returned \(float32 \[59\], .*\), allowed: Weights\(float32 \[59\]"),
        (
            "short",
            r"Client.personalize \(.*\) returned Weights\(float32 \[58\], .*\), allowed: Weights\(float32 \[59\]",
        ),
        ("ask", r"Client.ask \(.*\) yielded x float64 \[2, 6\], allowed: float32, or ids"),
        ("update", r"Server.update \(.*\) returned Delta\(float64 \[59\]"),
        ("replace", r"network model: found weights of float64 \[59\], .*, allowed: float32 \[59\]"),
        (
            "evaluated",
            r"Server.evaluated \(.*\) returned Weights\(float64 \[59\], .*\), allowed: Weights\(float32 \[59\]",
        ),
    ],
)
def test_a_result_of_another_dtype_or_shape_is_refused(tiny, simulate, hook, words):
    local = {"evaluation__model": "local"} if hook in ("personalize", "vectors", "short") else {}
    with pytest.raises(RunError, match=words):
        simulate(tiny(training__rounds_per_task=1, methods={f"{HERE}Doubles": {"hook": hook}}, **local))


def test_the_model_s_dtype_may_be_float64(tiny, simulate):
    run = simulate(
        tiny(training__rounds_per_task=1, model={"name": f"{HERE}double_model"}, methods={f"{HERE}Doubles": {}})
    )
    assert run.simulation.server.parameters.dtype == torch.float64


def double_model(shape, classes):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(shape[0], classes)).double()


def test_wrong_results_are_run_errors():
    assert issubclass(WrongResult, RunError)
