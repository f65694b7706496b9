"""Which method and hook was active when torch raised an error, for the error's one line.

The innermost frame of such an error is torch's or raysim's. It does not name the hook that made the tensors.
"""

from collections.abc import Iterable

from raysim.api.method import Half
from raysim.engine.hook_checks import place_of_hook
from raysim.system.custom_code import is_custom
from raysim.system.errors import ConfigError, RunError, find_custom_frame


def name_hook(error: Exception, half: Half, hook: str) -> None:
    """Add the innermost active hook to an error, unless the error's place in custom code is in this hook."""
    if isinstance(error, RunError | ConfigError | StopIteration):
        return
    active = getattr(half, hook)
    function, _ = find_custom_frame(error)
    if not (is_custom(active) and function == active.__qualname__):
        _add(error, f"in {describe_hook(half, hook)}")


def name_backward(error: RuntimeError, hooks: Iterable[tuple[Half, str]]) -> None:
    """Add the hooks to an error of the loss's backward pass that made this loss: the custom ones, if there are any.

    Raises:
        RunError: a half has kept autograd's graph of an earlier step, which explains the error.
    """
    parts = [*hooks]
    own = [(half, hook) for half, hook in parts if is_custom(type(half))]
    for half, hook in own:
        half.check_state(f", set by {place_of_hook(type(half), hook)}")
    if own or parts:
        _add(error, f"in the backward pass of the loss with {', '.join(describe_hook(*part) for part in own or parts)}")


def describe_hook(half: Half, hook: str) -> str:
    """Return a hook's method and name, and where it is if it is custom."""
    return place_of_hook(type(half), hook) if is_custom(getattr(half, hook)) else f"{half.name}.{hook}"


def _add(error: Exception, words: str) -> None:
    if vars(error).setdefault("hook", words) is words:
        error.add_note(words)
