"""Calls of methods' hooks, with checks of their results, of the module and of the method's state.

A hook may move or convert the module, or store an object that no checkpoint can hold. Without the checks, this would
end a run hours later, or change its result without an error.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from raysim.api.method import INSIDE_THE_LOOP, Half, Method
from raysim.api.server import Server
from raysim.engine.hook_checks import CHECKS, place_of_hook, wrong_result
from raysim.engine.hook_errors import name_hook
from raysim.engine.kept_model import KeptModel
from raysim.engine.profile import Profile
from raysim.engine.received import Received
from raysim.models.flat import FlatModel, frozen_sums
from raysim.system.custom_code import is_custom
from raysim.system.device import compute_on
from raysim.system.errors import WrongResult
from raysim.system.shared_memory import memory_of

RETURN_NOTHING = ("receive", "begin_task", "start", "batch", "observe")
COPY = "a hook that leaves the module as it is; {}.network_at() returns a separate copy to move, convert or train"


class HookCalls:
    """Calls hooks, and checks what they return. Checks their side effects after user-defined hooks.

    These are changes of the module, of what was received from the server, of the server's model, and the half's state.

    All are checked on calls 1, 2, 4, 8, ... of a hook, because that takes as long as a step of a small model. They are
    also checked after every phase and exchange. The module and what was received are checked after every call of a hook
    outside the local loop, too.

    Args:
        model: the model. Hooks can change its module.
        profile: measures the seconds of each hook.
        threads: the number of threads of each hook; 0 leaves the current number.
        server: the server, of server halves.

    Attributes:
        received: what the halves have received.
        model: the server's model; None for client halves.
    """

    def __init__(self, model: FlatModel, profile: Profile, threads: int = 0, server: Server | None = None) -> None:
        self.profile = profile
        self.received = Received()
        self.model = None if server is None else KeptModel(server)
        self._threads = threads
        self._model = model
        self._module = model.module
        self._memory = memory_of([model.gradient, *model.vectors])
        self._expected = _describe_module(model.module)
        self._calls: Counter[tuple[str, str]] = Counter()  # (half, hook) -> the number of calls
        self._own: dict[tuple[type[Half], str], bool] = {}  # (half, hook) -> whether it is user-defined
        self._frozen: dict[str, int] | None = None  # checksums before the first user-defined hook
        self._unchecked: dict[tuple[str, str], Half] = {}  # the hooks since the last comparison of `received`

    def watch(self, methods: Mapping[str, Method]) -> None:
        """Watch the hyperparameters of custom methods: hooks must leave them as they are."""
        for name, method in methods.items():
            if is_custom(type(method)):
                self.received.take_hyperparameters(name, method)

    def __call__(self, half: Half, hook: str, *arguments: Any) -> Any:
        """Return the result of a hook or an op. A hook's result is checked; see `CHECKS`.

        Raises:
            RunError: the hook has stored something that a checkpoint cannot hold.
            WrongResult: the hook has changed the module, or its result is wrong.
        """
        watched = self._is_own(half, hook)
        if watched or self.profile.on or self._threads:
            result = self._call(half, hook, arguments, watched)
        else:
            try:
                result = getattr(half, hook)(*arguments)
            except Exception as error:
                name_hook(error, half, hook)
                raise
        check = CHECKS[half.side].get(hook)
        return result if check is None else check(half, result, self._model, *arguments)

    def _call(self, half: Half, hook: str, arguments: Sequence[Any], watched: bool) -> Any:
        """Return a hook's result: measured, with its threads, and if `watched` with the checks of its side effects."""
        if watched and self._frozen is None:
            self._frozen = frozen_sums(self._model)
        modes = self._modes() if watched and hook in INSIDE_THE_LOOP else None
        with self.inside(half, hook):
            result = getattr(half, hook)(*arguments)
        if watched:
            if hook in RETURN_NOTHING and result is not None:
                raise wrong_result(half, hook, result, "None; change what the hook is given")
            self.check(half, hook, modes)
        return result

    @contextmanager
    def inside(self, half: Half, hook: str) -> Iterator[None]:
        """Return the context in which a hook computes: it is measured, has its threads, and is named in errors."""
        threads = compute_on(self._threads) if self._threads else nullcontext()
        kept = nullcontext() if self.model is None or not self._is_own(half, hook) else self._model_kept(half, hook)
        with self.profile.part(f"{half.side}: {half.name}.{hook}"), threads, kept:
            try:
                yield
            except Exception as error:
                name_hook(error, half, hook)
                raise

    def _model_kept(self, half: Half, hook: str) -> AbstractContextManager[None]:
        assert self.model is not None
        return self.model.kept_by(lambda: f"methods.{half.name}: {place_of_hook(type(half), hook)}")

    def check(self, half: Half, hook: str, modes: list[bool] | None = None) -> None:
        """Check the module and the half after one call of a hook. Raises the errors of `__call__`.

        `modes` is the mode of each layer before the call. None ignores the modes.
        """
        if not self._is_own(half, hook):
            return
        self._calls[half.name, hook] += 1
        count = self._calls[half.name, hook]
        first_or_doubled = count & (count - 1) == 0
        self._unchecked[half.name, hook] = half
        if hook not in INSIDE_THE_LOOP or first_or_doubled:
            change = self._change()
            if modes is not None and modes != self._modes():
                change = "changed the mode of the model's layers (train or eval)"
            if change:
                raise wrong_result(half, hook, change, COPY.format(half.side), "has")
            self._check_received()
            if half.side == "server":
                self._check_frozen(half.name)
        if first_or_doubled:
            half.check_state(f", set by {place_of_hook(type(half), hook)}")
            for name, value in vars(half).items():
                if name not in half.transient and self._is_of_model(value):
                    words = f"the attribute {name}, which shares the model's memory and changes with it"
                    raise wrong_result(half, hook, words, "a copy, as from clone()", "kept")

    def check_phase(self, halves: Iterable[Half]) -> None:
        """Check the module, what was received and the halves after a phase or exchange, if a half is user-defined.

        The halves get copies of what they have kept of what was received.

        Raises:
            RunError: a half has stored something that a checkpoint cannot hold.
            WrongResult: a hook has changed the module, or what was received.
        """
        own = [half for half in halves if is_custom(type(half))]
        if not own:
            return
        if change := self._change():
            names = ", ".join(half.name for half in own)
            raise WrongResult(f"methods: a hook of {names} has {change}, allowed: {COPY.format('client')}")
        self._check_received()
        self._check_frozen(", ".join(half.name for half in own))
        for half in own:
            half.check_state()
        self.received.release(own)

    def _check_received(self) -> None:
        """Check that the hooks since the last comparison have left what was received as it is. Raises WrongResult."""
        if change := self.received.change():
            places = [place_of_hook(type(half), hook) for (_, hook), half in self._unchecked.items()]
            which = places[0] if len(places) == 1 else f"one of {', '.join([*places, 'the model and its parts'])}"
            names = "".join(f".{name}" for name in dict.fromkeys(name for name, _ in self._unchecked))
            words = f"{which} changed {change} in place, which all clients of a process share"
            raise WrongResult(f"methods{names}: {words}, allowed: a changed copy, as from clone()")
        self._unchecked.clear()

    def _check_frozen(self, methods: str) -> None:
        """Check that no hook has changed the model's frozen parameters since the first one. Raises WrongResult."""
        found = {} if self._frozen is None else frozen_sums(self._model)
        for name, number in found.items():
            if self._frozen is not None and self._frozen[name] != number:
                words = (
                    f"a hook of {methods} or the model changed the frozen parameter {name}, which no message carries"
                )
                raise WrongResult(f"methods: {words}, allowed: trained parameters and buffers, or network_at()")

    def _is_of_model(self, value: object) -> bool:
        """Return whether a tensor in a value shares memory with the model's vectors."""
        return not memory_of(value).isdisjoint(self._memory)

    def _is_own(self, half: Half, hook: str) -> bool:
        key = type(half), hook
        if key not in self._own:
            self._own[key] = is_custom(getattr(*key))
        return self._own[key]

    def _modes(self) -> list[bool]:
        return [layer.training for layer in self._module.modules()]

    def _change(self) -> str | None:
        """Return how the module differs from the one that raysim made, or None."""
        found = _describe_module(self._module)
        return next((what for what, value in found.items() if value != self._expected[what]), None)


def _describe_module(module: nn.Module) -> dict[str, object]:
    """Return the properties of a module that must not change. The keys describe a change, for error messages."""
    parameters, buffers, layers = dict(module.named_parameters()), dict(module.named_buffers()), list(module.modules())
    trained = parameters.values()
    return {
        "added or removed layers, parameters or buffers of the model": (len(layers), list(parameters), list(buffers)),
        "moved or converted the model's tensors": [_address(tensor) for tensor in (*trained, *buffers.values())],
        "changed requires_grad of the model's parameters": [tensor.requires_grad for tensor in trained],
        "replaced the model's gradients, as zero_grad() does": [_address(tensor.grad) for tensor in trained],
        # torch has no public list of a layer's hooks
        "added or removed hooks of the model's layers": [
            len(value) for layer in layers for name, value in vars(layer).items() if name.endswith("_hooks")
        ],
    }


def _address(tensor: torch.Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()
