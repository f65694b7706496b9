"""The blocks of a body of transformers, and passes over some of them only, for `model.cache`.

The body's own forward pass calls its blocks. In a pass that begins late, the blocks that are left out return the given
hidden states instead of computing them. In a pass that ends early, later blocks return their inputs. Masks and
positions remain the body's own work, so no architecture needs code of its own.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn


@dataclass
class Pass:
    """A forward pass in which blocks `first` to `last - 1` compute.

    Attributes:
        given: the hidden states [B, L, W] before the first of these; None if they are all computed.
        reached: the hidden states after the last of these.
        in_tuple: whether blocks return a tuple that begins with the hidden states.
    """

    first: int
    last: int
    given: Tensor | None = None
    reached: Tensor | None = None
    in_tuple: bool = False


_PASS: ContextVar[Pass | None] = ContextVar("pass", default=None)
"""The pass of this thread: several threads compute features with one module."""


class _Skipping:
    """The forward function of a block: it computes if the pass has this block.

    It is a class, as a copy of a module (copy.deepcopy) must call the copy's own block.
    """

    def __init__(self, run: Callable[..., Any], number: int) -> None:
        self._run, self._number = run, number

    def __call__(self, hidden_states: Tensor, *args: Any, **keys: Any) -> Any:
        """Return what the block or the pass returns for hidden states [B, L, W]."""
        now = _PASS.get()
        if now is None or now.first <= self._number < now.last:
            output = self._run(hidden_states, *args, **keys)
            if now is not None and self._number == now.last - 1:
                now.in_tuple = isinstance(output, tuple)
                now.reached = output[0] if now.in_tuple else output
            return output
        states = hidden_states if now.given is None else now.given
        return (states,) if now.in_tuple else states


class Blocks(Sequence[nn.Module]):
    """The blocks of a body in order, if it has a list of `num_hidden_layers` modules, and else none."""

    def __init__(self, body: nn.Module) -> None:
        self._body, self._in_tuple = body, False
        count = getattr(body.config, "num_hidden_layers", None)
        lists = {name: part for name, part in body.named_modules() if isinstance(part, nn.ModuleList)}
        self._name = next((name for name, part in lists.items() if len(part) == count), "")
        self._list = lists.get(self._name, nn.ModuleList())

    def __len__(self) -> int:
        """Return the number of blocks."""
        return len(self._list)

    def __getitem__(self, number: Any) -> Any:
        """Return a block."""
        return self._list[number]

    def around(self, head: nn.Module | None) -> tuple[list[nn.Module | nn.Parameter], list[nn.Module | nn.Parameter]]:
        """Return what the body has before its blocks and after them, without the head: embeddings, and the last norm.

        The order is that of the body's attributes.
        """
        before, after = list[nn.Module | nn.Parameter](), list[nn.Module | nn.Parameter]()
        owner = self._body
        for name in self._name.split("."):
            before += owner.parameters(recurse=False)
            found = before
            for child_name, child in owner.named_children():
                if child_name == name:
                    found = after
                elif child is not head:
                    found.append(child)
            if not len(self):
                break
            owner = owner.get_submodule(name)
        return before, after

    def install(self) -> None:
        """Let passes leave blocks out. Outside of `beginning_at` and `ending_at` all blocks compute."""
        for number, block in enumerate(self._list):
            if not isinstance(vars(block).get("forward"), _Skipping):
                vars(block)["forward"] = _Skipping(block.forward, number)

    @contextmanager
    def beginning_at(self, first: int, given: Tensor | None) -> Iterator[None]:
        """Have the body's pass in this context begin with these hidden states at block `first`."""
        token = _PASS.set(Pass(first, len(self), given, in_tuple=self._in_tuple) if first else None)
        try:
            yield
        finally:
            _PASS.reset(token)

    @contextmanager
    def ending_at(self, last: int) -> Iterator[Pass]:
        """Have the body's pass in this context end before block `last`; its result is `reached`."""
        now = Pass(0, last)
        token = _PASS.set(now)
        try:
            yield now
        finally:
            _PASS.reset(token)
        self._in_tuple = now.in_tuple
