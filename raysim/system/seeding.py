"""Named random streams: every draw of a run comes from a stream that is identified by its name.

A stream is named, not numbered: (seed, client, the client's own count of training phases, purpose) for what a client
draws, (seed, server update, purpose) for what the server draws, (seed, purpose) for what the run draws. The name is
hashed with BLAKE2b, so adding a client, a method or an actor changes no other stream, and no generator outlives a
training phase or a server update.
"""

import hashlib
import pickle
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

import numpy as np
import torch
from torch import Tensor

from raysim.system.errors import ConfigError, RunError


def hashed(*name: int | str, bits: int = 128) -> int:
    """Return a stream's number: the BLAKE2b digest of its name with `bits` bits. 1 and "1" are different names."""
    digest = hashlib.blake2b(digest_size=bits // 8)
    for part in name:
        encoded = f"{type(part).__name__}:{part}".encode(errors="surrogateescape")
        digest.update(len(encoded).to_bytes(4, "little") + encoded)  # lengths: ("ab", "c") differs from ("a", "bc")
    return int.from_bytes(digest.digest(), "little")


def generator(*name: int | str) -> np.random.Generator:
    """Return a NumPy generator at the start of the stream of that name."""
    return np.random.Generator(np.random.PCG64(hashed(*name)))


def seed_torch(*name: int | str) -> None:
    """Set torch's default generators to the start of the stream of that name.

    torch takes 64 bits of a name (and its CPU generator uses 32 of them), so only what a model itself draws (dropout,
    initial weights) comes from here; all draws of raysim itself are from `generator`.
    """
    # not torch.manual_seed, which records a stack trace for each kind of device that is absent, 0.2 ms and more
    number = hashed(*name, bits=64)
    for source in _default_generators():
        source.manual_seed(number)


class Streams:
    """The random streams of one training phase, exchange or server update: those whose names begin in the same way.

    They end with it, so no checkpoint holds them, and a run that resumes makes the same ones.
    """

    def __init__(self, *name: int | str) -> None:
        self._name = name
        self._generators: dict[str, np.random.Generator] = {}
        self._states: dict[str | None, list[Tensor]] = {}
        self._present: str | None = None  # the purpose of the stream that torch draws from

    def generator(self, purpose: str) -> np.random.Generator:
        """Return the generator for a purpose: one object, which later calls do not rewind."""
        if purpose not in self._generators:
            self._generators[purpose] = generator(*self._name, purpose)
        return self._generators[purpose]

    @contextmanager
    def rng_scope(self, purpose: str) -> Iterator[None]:
        """Have torch draw from the stream for a purpose, where it was left; what was drawn from before then goes on."""
        before = self._present
        self.turn_to(purpose)
        try:
            yield
        finally:
            self.turn_to(before)

    def turn_to(self, purpose: str | None) -> None:
        """Have torch draw from the stream for a purpose, where it was left; None is what it drew from at first."""
        sources = _default_generators()
        self._states[self._present] = [source.get_state() for source in sources]
        self._present = purpose
        if purpose in self._states:
            for source, state in zip(
                sources, self._states[purpose], strict=False
            ):  # fewer if a GPU came into use since
                source.set_state(state)
        elif purpose is not None:
            seed_torch(*self._name, purpose)


@contextmanager
def guard_globals(who: str, side: str | None, error: type[ConfigError | RunError] = RunError) -> Iterator[None]:
    """Refuse code that draws from, or seeds, a generator of the whole process, whose state depends on what else ran.

    Args:
        who: what the code is, for the message.
        side: client or server, whose streams it may use instead; None where it is given a generator.
        error: what to raise.
    """
    sources = _default_generators()
    before = _global_states(sources)
    yield
    moved = [name for name, state in _global_states(sources).items() if state != before[name]]
    if moved:
        allowed = "allowed: the generator that it is given"
        if side is not None:
            allowed = (
                f"allowed, where a {side} is given: {side}.generator(name) or, around torch's own draws, "
                f"`with {side}.rng_scope(name):`"
            )
        raise error(f"{who} moved {' and '.join(moved)}, which the whole process shares; {allowed}")


def torch_restored() -> AbstractContextManager[None]:
    """Restore the state of torch's default generators at the end of this context."""
    return torch.random.fork_rng(range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ())


@contextmanager
def generators_restored() -> Iterator[None]:
    """Restore the generators that all code of a process shares at the end of this context."""
    of_numpy, of_python = np.random.get_state(legacy=False), random.getstate()
    try:
        with torch_restored():
            yield
    finally:
        np.random.set_state(of_numpy)
        random.setstate(of_python)


@contextmanager
def torch_untouched() -> Iterator[None]:
    """Restore torch's global state (threads, generators, determinism flags) at the end of this context."""
    threads = torch.get_num_threads()
    deterministic = _deterministic()
    precision = (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark)
    try:
        with torch_restored():
            yield
    finally:
        torch.set_num_threads(threads)
        if _deterministic() != deterministic:  # the call imports torch's compiler: seconds, 80 MB
            torch.use_deterministic_algorithms(deterministic[0], warn_only=deterministic[1])
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark = (
            precision
        )


def _default_generators() -> list[torch.Generator]:
    """Return the generators that torch draws from unless it is given another: the CPU's and, if in use, the GPUs'."""
    return [torch.default_generator, *(torch.cuda.default_generators if torch.cuda.is_initialized() else ())]


def _global_states(sources: Sequence[torch.Generator]) -> Mapping[str, object]:
    """Return the states of the generators that all code of a process shares, by their names in messages."""
    return {
        "torch's default generator": [source.get_state().numpy().tobytes() for source in sources],
        "NumPy's global generator": pickle.dumps(np.random.get_state(legacy=False)),
        "the global generator of Python's random": random.getstate(),
    }


def _deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
