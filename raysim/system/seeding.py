"""Named random streams: every draw of a run comes from a stream that is identified by its name.

A stream is named, not numbered: (seed, client, the client's own count of training phases, purpose) for what a client
draws, (seed, purpose) for what the run draws. The name is hashed with BLAKE2b, so adding a client, a method or an actor
changes no other stream, and no generator outlives a training phase.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


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
    torch.default_generator.manual_seed(number)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(number)


def default_generator(device: torch.device) -> torch.Generator:
    """Return the generator that a model on this device draws from."""
    if device.type == "cuda":
        return torch.cuda.default_generators[device.index or 0]
    return torch.default_generator


@contextmanager
def torch_untouched() -> Iterator[None]:
    """Restore torch's global state (threads, generators, determinism flags) at the end of this context."""
    threads = torch.get_num_threads()
    deterministic = _deterministic()
    precision = (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark)
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        torch.set_num_threads(threads)
        if _deterministic() != deterministic:  # the call imports torch's compiler: seconds, 80 MB
            torch.use_deterministic_algorithms(deterministic[0], warn_only=deterministic[1])
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark = (
            precision
        )


def _deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
