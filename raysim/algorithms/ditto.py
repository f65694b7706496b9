"""Ditto: each client trains a personalized model, pulled to the global one. Li et al., ICML 2021, arXiv 2012.04221.

It changes no message and no bit of the global model, so it combines with other methods. Evaluate the personalized
models with evaluation.model=local.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt, doc

from raysim.algorithms.parts.personalized_model import Vectors, in_place_of, step_with_pull
from raysim.api import Client, ClientHalf, Method, Step, Weights


@dataclass(frozen=True, kw_only=True)
class Ditto(Method):
    """Ditto: a personalized model per client, pulled to the global one (Li et al., ICML 2021, arXiv 2012.04221)."""

    lam: Annotated[float, Ge(0), doc("lambda: at 0 a client trains alone, a large one keeps to the global model")] = 1.0
    rate: Annotated[float | None, Gt(0), doc("eta of the personalized model; null is the round's learning rate")] = None

    neutral: ClassVar[Mapping[str, object]] = {}  # no setting changes the global model

    class Client(ClientHalf):
        """Keeps v_k, with its BatchNorm statistics, and trains it in addition to w_k, Algorithm 1."""

        method: Ditto
        own: Vectors | None = None  # v_k

        def start(self, client: Client, message: None) -> None:
            """Initialize v_k with the first model that the client receives."""
            if self.own is None:
                self.own = tuple(vector.clone() for vector in client.model.vectors)

        # As in the official code: one step of line 6 for each step of w_k, on the same batch.
        def observe(self, step: Step) -> None:
            """Take a step, v_k -= eta (gradient of F_k at v_k + lambda (v_k - w))."""
            if not len(step.positions):  # data without labels
                return
            client, model = step.client, step.client.model
            assert self.own is not None
            with client.rng_scope(self.name), in_place_of(model, self.own):
                gradient = model.gradient_of(client.loss(model(step.x), step.y))
                rate = client.lr if self.method.rate is None else self.method.rate
                step_with_pull(model.parameters, gradient, client.received, rate, self.method.lam)

        def personalize(self, client: Client, weights: Weights) -> Weights:
            """Return v_k."""
            assert self.own is not None
            return Weights(*self.own)
