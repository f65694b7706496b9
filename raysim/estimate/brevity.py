"""Methods with less of what they repeat: a few steps of a loop, and a few samples of a step (see `Repeats`)."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import get_args, get_type_hints

from annotated_types import Ge

from raysim.api.method import Method
from raysim.api.repeats import Repeats
from raysim.config import Config
from raysim.engine.compatibility import make_methods

SAMPLES = "samples"


@dataclass(frozen=True)
class Brevity:
    """How much less methods repeat, as factors of at most 1.

    Attributes:
        work: of what the server computes, loops within loops and the samples of a step.
        samples: of the samples of a step.
        made: of what several loops make together, such as the images that a method sends.
    """

    work: float = 1.0
    samples: float = 1.0
    made: float = 1.0


def shorten(config: Config, samples: int | None = None, share: float = 1.0, least: int = 1) -> tuple[Config, Brevity]:
    """Return the config with its methods' repetitions made few, all of a loop by the same factor.

    Args:
        config: the config of a run.
        samples: the most samples of a step; None takes their `share`.
        share: of the samples of each step.
        least: what the least number of each loop becomes.
    """
    methods = make_methods(config)
    counts = [
        (key, *count)
        for key in config.methods  # not model.local's method, which has no counts
        for count in counts_of(methods[key.rpartition(":")[2]])
    ]
    single = {words[0] for *_, words in counts if len(words) == 1}
    values = {word: [value for _, _, value, _, words in counts if words == (word,)] for word in single}
    factors = {word: min(1.0, least / min(of)) for word, of in values.items()}
    if SAMPLES in values:
        factors[SAMPLES] = share if samples is None else min(1.0, samples / max(values[SAMPLES]))
    short = {key: dict(keys) for key, keys in config.methods.items()}
    for key, name, value, bound, words in counts:
        short[key][name] = max(bound, round(value * prod(factors.get(word, 1.0) for word in words)))
    joint = {word for *_, words in counts if len(words) > 1 for word in words}
    made = prod(factors.get(word, 1.0) for word in joint)
    return config.model_copy(update={"methods": short}), Brevity(
        prod(factors.values()), factors.get(SAMPLES, 1.0), made
    )


def counts_of(method: Method) -> Iterator[tuple[str, int, int, tuple[str, ...]]]:
    """Yield a method's counts above 0, each as (name, value, least value, words)."""
    for name, hint in get_type_hints(type(method), include_extras=True).items():
        notes = get_args(hint)[1:]
        words = next((note.words for note in notes if isinstance(note, Repeats)), ())
        value = getattr(method, name, None) if words else None
        if value:
            yield (
                name,
                value,
                next((note.ge for note in notes if isinstance(note, Ge) and isinstance(note.ge, int)), 1),
                words,
            )
