"""The choice of the memory that all methods of a run share: its policy, and when it is filled."""

from collections.abc import Mapping

from raysim.api.method import Method
from raysim.config import Config
from raysim.config.consistency import POLICIES_BY_CLASS
from raysim.memory import POLICIES, MemoryKind
from raysim.system.errors import ConfigError

TASK_ENDS = (
    "when a client's task ends, which asynchronous boundaries hide from clients; set scenario.boundaries to "
    "synchronous or {jittered: {rounds: 2}}"
)


def choose_memory(config: Config, methods: Mapping[str, Method]) -> MemoryKind | None:
    """Return the settings of the memory that all methods share, or None if no method needs one.

    If a key of the config is null, the methods' defaults are tried in turn, until all methods support one.

    Raises:
        ConfigError: a method does not support the config's choice, or the methods have no choice in common.
    """
    uses = {name: method.memory for name, method in methods.items() if method.memory is not None}
    if not uses:
        return None
    chosen: dict[str, str] = {}
    unfit = () if config.objective.has("classes") else POLICIES_BY_CLASS
    policy = config.memory.policy
    for key, options, configured in (
        ("policy", "policies", None if policy is None else policy.name),
        ("fill", "fills", config.memory.fill),
    ):
        allowed = {name: [c for c in getattr(use, options) if c not in unfit] for name, use in uses.items()}
        if configured is not None:
            for name, choices in allowed.items():
                # A method that allows every built-in policy also allows a custom one.
                is_custom = ":" in configured and {*POLICIES} <= {*choices, *unfit}
                if configured not in choices and not is_custom:
                    raise ConfigError(f"memory.{key}: {name} cannot use {configured}, allowed: {', '.join(choices)}")
            chosen[key] = configured
            continue
        first_choices = [choices[0] for choices in allowed.values()]
        fits_all = [c for c in first_choices if all(c in choices for choices in allowed.values())]
        if not fits_all:
            needs = "; ".join(f"{name} needs {' or '.join(choices)}" for name, choices in allowed.items())
            raise ConfigError(f"methods: no memory.{key} serves all of them ({needs}); leave one out")
        chosen[key] = fits_all[0]
    if chosen["policy"] == "importance" and not any(use.policies[0] == "importance" for use in uses.values()):
        raise ConfigError(
            f"memory.policy: importance needs a method that rates samples; otherwise the memory of {', '.join(uses)} "
            "stays empty; add the method re_fed, or use another policy"
        )
    with_logits = [name for name, use in uses.items() if use.logits]
    if chosen["policy"] == "importance" and with_logits:
        rating = ", ".join(name for name, use in uses.items() if use.policies[0] == "importance")
        raise ConfigError(
            f"methods: found {', '.join(with_logits)} with {rating}, whose memory policy importance stores no logits, "
            "allowed: one without the other"
        )
    if chosen["fill"] == "boundary" and config.scenario.windows is not None:
        raise ConfigError(f"methods: {', '.join(uses)} fill their memory {TASK_ENDS}")
    for name, use in uses.items():
        if config.memory.per not in use.per:
            raise ConfigError(f"memory.per: {name} cannot use {config.memory.per}, allowed: {', '.join(use.per)}")
    return MemoryKind(
        **chosen,
        capacity=config.memory.capacity,
        per_task=config.memory.per == "task",
        keeps_logits=any(use.logits for use in uses.values()),
        keys={} if policy is None else policy.keys(),
    )
