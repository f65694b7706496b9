"""Named random streams: every draw of a run comes from a stream that is identified by its name.

A client's streams are named (seed, client, its count of local trainings, exchanges since, purpose). The server's are
named (seed, "server", round, purpose), and the run's (seed, purpose). BLAKE2b hashes the name, so adding a client, a
method or an actor changes no other stream. No generator outlives a local training or a server update.
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
from raysim.system.switches import guard_switches, switches_restored


def hashed(*name: int | str, bits: int = 128) -> int:
    """Return the BLAKE2b digest of a stream's name as an integer of `bits` bits. 1 and "1" are different names."""
    digest = hashlib.blake2b(digest_size=bits // 8)
    for part in name:
        encoded = f"{type(part).__name__}:{part}".encode(errors="surrogateescape")
        digest.update(len(encoded).to_bytes(4, "little") + encoded)  # lengths: ("ab", "c") differs from ("a", "bc")
    return int.from_bytes(digest.digest(), "little")


def generator(*name: int | str) -> np.random.Generator:
    """Return a NumPy generator at the start of the named stream."""
    return np.random.Generator(np.random.PCG64(hashed(*name)))


def seed_torch(*name: int | str) -> None:
    """Set torch's default generators to the start of the named stream.

    torch takes 64 bits of a name, and its CPU generator uses 32 of them. Only a model's draws (dropout, initial
    weights) use torch's generators. raysim draws from `generator`.
    """
    # torch.manual_seed would record a stack trace for each kind of absent device: 0.2 ms and more
    number = hashed(*name, bits=64)
    for source in _default_generators():
        source.manual_seed(number)


def seed_all(*name: int | str) -> None:
    """Seed all process-wide generators, for code that may draw from any of them; see generators_restored."""
    seed_torch(*name)
    np.random.seed(hashed(*name, "numpy", bits=32))
    random.seed(hashed(*name, "random", bits=64))


class RandomGenerators:
    """The random generators of one local training, exchange or server update. Their names begin in the same way.

    They end with it. So checkpoints need not store them, and a resumed run makes the same ones.
    """

    def __init__(self, *name: int | str) -> None:
        self._name = name
        self._generators: dict[str, np.random.Generator] = {}
        self._states: dict[str | None, list[Tensor]] = {}
        self._current: str | None = None  # the purpose for which torch draws

    def generator(self, purpose: str) -> np.random.Generator:
        """Return the generator for a purpose. Later calls return the same object and do not rewind it."""
        if purpose not in self._generators:
            self._generators[purpose] = generator(*self._name, purpose)
        return self._generators[purpose]

    @contextmanager
    def rng_scope(self, purpose: str) -> Iterator[None]:
        """Let torch draw for a purpose in this context. Each purpose continues at its last position."""
        before = self._current
        self.select(purpose)
        try:
            yield
        finally:
            self.select(before)

    @contextmanager
    def global_draws(self, purpose: str) -> Iterator[None]:
        """Seed torch's, NumPy's and Python's global generators from a purpose's generator, and restore them at the end.

        A later context of this purpose draws other numbers.
        """
        for_torch, for_numpy, for_python = self.generator(purpose).integers(2**32, size=3).tolist()
        with generators_restored():
            for source in _default_generators():
                source.manual_seed(for_torch)
            np.random.seed(for_numpy)
            random.seed(for_python)
            yield

    def select(self, purpose: str | None) -> None:
        """Let torch draw for a purpose, from its last position. None is torch's state at the start."""
        sources = _default_generators()
        self._states[self._current] = [source.get_state() for source in sources]
        self._current = purpose
        if purpose in self._states:
            # there are fewer states than sources if a GPU was initialized since
            for source, state in zip(sources, self._states[purpose], strict=False):
                source.set_state(state)
        elif purpose is not None:
            seed_torch(*self._name, purpose)


@contextmanager
def guard_globals(
    who: str,
    side: str | None,
    error: type[ConfigError | RunError] = RunError,
    instead: str = "the generator that it is given",
) -> Iterator[None]:
    """Refuse code that draws from or seeds a process-wide generator, or changes a switch of torch's.

    Their state would depend on other code, and on which code shares a process.

    Args:
        who: the name of the code, for the message.
        side: client or server: its streams are the alternative. None if the code has another alternative.
        error: the error to raise.
        instead: this alternative.
    """
    sources = _default_generators()
    before = _global_states(sources)
    with guard_switches(who, error):
        yield
    moved = [name for name, state in _global_states(sources).items() if state != before[name]]
    if moved:
        allowed = f"allowed: {instead}"
        if side is not None:
            allowed = (
                f"allowed, where a {side} is given: {side}.generator(name), or around torch's own draws `with "
                f"{side}.rng_scope(name):`, or around code that draws from all of them `with "
                f"{side}.global_draws(name):`"
            )
        raise error(f"{who} used {' and '.join(moved)}, which the whole process shares; {allowed}")


def torch_restored() -> AbstractContextManager[None]:
    """Restore the state of torch's default generators at the end of this context."""
    return torch.random.fork_rng(range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ())


@contextmanager
def generators_restored() -> Iterator[None]:
    """Restore all process-wide generators at the end of this context."""
    numpy_state, python_state = np.random.get_state(legacy=False), random.getstate()
    try:
        with torch_restored():
            yield
    finally:
        np.random.set_state(numpy_state)
        random.setstate(python_state)


@contextmanager
def torch_untouched() -> Iterator[None]:
    """Set torch's switches for a run, and restore them and torch's generators at the end of this context."""
    with torch_restored(), switches_restored():
        yield


def _default_generators() -> list[torch.Generator]:
    """Return torch's default generators: the CPU's and, if initialized, the GPUs'."""
    return [torch.default_generator, *(torch.cuda.default_generators if torch.cuda.is_initialized() else ())]


def _global_states(sources: Sequence[torch.Generator]) -> Mapping[str, object]:
    """Return the states of all process-wide generators, by their names in messages."""
    return {
        "torch's default generator": [source.get_state().numpy().tobytes() for source in sources],
        "NumPy's global generator": pickle.dumps(np.random.get_state(legacy=False)),
        "the global generator of Python's random": random.getstate(),
    }
