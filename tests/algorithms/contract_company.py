"""Which methods the contract grid runs beside one another, and what it sees of their calls.

Two methods meet in hooks: one's is called after the other's, or is given what it returned, or both have the memory. So
the grid runs pairs by hook, not all pairs of methods: their number grows with the square of the methods. Nor pairs of
kinds, a kind being the methods with the same hooks: nearly every method is one of its own. `hooks_of` reads a method's
hooks off its classes, so a new method takes its place by itself:

- every hook has a representative, named below; all representatives run beside each other. This does not grow.
- every method runs beside the representatives of its own hooks, where it can replace or disturb what they do, and
  beside both probes, in which disturbed draws show. This grows with the methods, by a pair or two for each hook.

That this is enough is a test: wherever two methods that are allowed together have hooks x and y, x meets y, in this
order, in a pair that is run. It fails for a method that brings a meeting that no pair has, or a hook without a name.
"""

import functools
import itertools

from raysim.api.method import ClientHalf, ServerHalf, overrides
from raysim.config.lookup import resolve, table

PROBES = ("probes:Bystander", "probes:Noise")
NAMES = (*table("method"), *PROBES)
REPRESENTATIVES = {
    "begin_task": "probes:Bystander",
    "start": "hgp",
    "samples": "joint",
    "batches": "cfed",
    "batch": "er",
    "task_loss": "cfed",
    "penalty": "lwf",
    "gradient": "fed_a_gem",
    "train": "c_flag",
    "observe": "special_c",
    "finish": "fed_a_gem",
    "encode": "top_k",
    "select": "fixed",
    "prepare": "probes:Noise",
    "trains": "stsa",
    "announce": "fed_a_gem",
    "update": "fedavgm",
    "conclude": "fed_a_gem",
    "end_task": "fot",
    "evaluated": "lora",
    "receive": "fedper",
    "personalize": "ditto",
    "memory: reservoir": "fed_a_gem",
    "memory: class_balanced": "nccl",
    "memory: importance": "re_fed",
    "memory: logits": "der",
}
HOOKS = [
    (half, hook)
    for half in (ClientHalf, ServerHalf)
    for hook, member in vars(half).items()
    if callable(member) and not hook.startswith("_")
]


def half_of(name, half):
    """A method's class of this half."""
    method = resolve("method", name)
    return method.Client if half is ClientHalf else method.Server


@functools.cache
def hooks_of(name):
    """What a method occupies: the hooks that its halves override, and its memory, by its default policy and logits."""
    memory = resolve("method", name).memory
    kept = () if memory is None else (memory.policies[0], *(["logits"] if memory.logits else []))
    return {hook for half, hook in HOOKS if overrides(half_of(name, half), hook)} | {f"memory: {what}" for what in kept}


@functools.cache
def pairs():
    """The ordered pairs of methods that are run; with a pair, its reverse."""
    found = set(itertools.permutations({*REPRESENTATIVES.values()}, 2))
    for name in NAMES:
        own = {REPRESENTATIVES[hook] for hook in hooks_of(name) & REPRESENTATIVES.keys()}
        found |= {pair for other in {*own, *PROBES} - {name} for pair in ((name, other), (other, name))}
    return found


def beside(name):
    """The methods that this one is run with, in both orders."""
    return [other for other in NAMES if (name, other) in pairs()]


def sample(name):
    """Those of `beside` that `make test` runs it with: Noise, whose draws show, and in turns one of the others."""
    company = beside(name)
    noise = [other for other in company if other == "probes:Noise"]
    others = [other for other in company if other not in PROBES] or company
    return [*noise, others[NAMES.index(name) % len(others)]]


def meetings(of):
    """The ordered pairs of hooks that meet in these pairs of methods, each with the first such pair."""
    found = {}
    for first, second in of:
        for x in hooks_of(first):
            for y in hooks_of(second):
                found.setdefault((x, y), (first, second))
    return found


def write_down_calls(names, calls, monkeypatch):
    """Have every hook that one of these methods overrides append (hook, method) to `calls`, each time it is called."""
    done = set()
    for name in names:
        for half, hook in HOOKS:
            owner = next(kind for kind in half_of(name, half).__mro__ if hook in vars(kind))
            if owner is not half and (owner, hook) not in done:
                done.add((owner, hook))
                monkeypatch.setattr(owner, hook, _written_down(hook, getattr(owner, hook), calls))


def _written_down(hook, original, calls):
    def call(self, *given):
        calls.append((hook, self.name))
        return original(self, *given)

    return call
