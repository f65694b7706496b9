"""One client's call of an op. The op may be a generator: it yields batches, and receives the gradients there."""

from collections.abc import Generator
from typing import Any

from torch import Tensor

from raysim.api.messages import Terms
from raysim.engine.hook_calls import HookCalls
from raysim.engine.hook_checks import check_inputs, check_terms, wrong_result
from raysim.engine.hosted_client import HostedClient
from raysim.engine.orders import Call


class Op:
    """A call that ends with terms, perhaps after gradients.

    Attributes:
        wanted: the batch x [n, ...] and y [n] at which the op wants the gradient, or None once it has ended.
        terms: the terms that the op has returned.
    """

    def __init__(self, calls: HookCalls, client: HostedClient, call: Call, message: Any) -> None:
        self._op = call.op
        self.half = client.halves[call.method]
        self.wanted: tuple[Tensor, Tensor] | None = None
        self.terms: Terms = {}
        self._calls, self._client = calls, client
        with client.rng_scope(call.method):
            returned = calls(self.half, self._op, client, message)
        self._generator = returned if isinstance(returned, Generator) else None
        if self._generator is None:
            self.terms = check_terms(self.half, self._op, {} if returned is None else returned)
        else:
            self.answer(None)

    def answer(self, gradient: Tensor | None) -> None:
        """Continue with the gradient [P] of the mean loss at `wanted`, or begin with None."""
        assert self._generator is not None
        try:
            with self._client.rng_scope(self.half.name), self._calls.inside(self.half, self._op):
                self.wanted = self._generator.send(gradient)
        except StopIteration as end:
            self.wanted = None
            self._calls.check(self.half, self._op)
            self.terms = check_terms(self.half, self._op, {} if end.value is None else end.value)
            return
        self._calls.check(self.half, self._op)
        if not (isinstance(self.wanted, tuple) and [*map(type, self.wanted)] == [Tensor, Tensor]):
            raise wrong_result(self.half, self._op, self.wanted, "batches x [n, ...] and y [n]", "yielded")
        check_inputs(self.half, self._op, self.wanted[0], self._client.model)
