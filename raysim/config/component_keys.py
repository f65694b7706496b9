"""Second step of reading a config: import its components and validate their keys."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, cast

from pydantic import ValidationError

from raysim.config.block import Block, keys_in
from raysim.config.component import ByName, Component, Values
from raysim.config.document import Keys, Mistake, dotted
from raysim.config.error_text import either, show
from raysim.config.lookup import resolve
from raysim.config.mistakes import MOST_MEANT, describe_unknown_key, explain_errors, suggest_names
from raysim.config.signature import keys_of, own_values
from raysim.system.errors import ConfigError

SCHEDULES = {
    "fedbuff": "schedule={kind: asynchronous, mixing: deltas}",
    "fedasync": "schedule={kind: asynchronous, mixing: models, buffer_size: 1}",
}
"""Schedules that users may look for among the methods."""

SEVERAL = re.compile(r"[\s,]+|\+(?=\w)")  # between names that are written as one, such as er,ewc
Part = TypeVar("Part")


class ComponentKeys:
    """Adds the components' keys to a config, and collects the `mistakes` in them.

    Args:
        values: the values of the whole document, in which a misplaced key may belong elsewhere.
    """

    def __init__(self, root: type[Block], values: Values) -> None:
        self._root = root
        self._values = values
        self.mistakes: list[Mistake] = []

    def complete(self, part: Part, written: object, keys: Keys = ()) -> Part:
        """Return a part of the config with its components' keys. `written` is the same part of the document."""
        made: object = part
        if isinstance(part, tuple):
            items = written if isinstance(written, list) else []
            made = tuple(
                self.complete(item, items[place] if place < len(items) else None, (*keys, place))
                for place, item in enumerate(part)
            )
        elif isinstance(part, Block):
            made = self._complete_block(part, written, keys)
        return cast(Part, made)

    def _complete_block(self, block: Block, written: object, keys: Keys) -> Block:
        values = written if isinstance(written, Mapping) else {}
        fields: dict[str, Any] = {}
        for key, name in keys_in(type(block)).items():
            value, at = getattr(block, name), (*keys, key)
            by_name = next((m for m in type(block).model_fields[name].metadata if isinstance(m, ByName)), None)
            fields[name] = self.complete(value, values.get(key), at)
            if by_name is not None:
                fields[name] = self._complete_named(by_name.kind, value, at)
        if isinstance(block, Component):
            at = keys if isinstance(written, str) else (*keys, block.decides)  # a name alone has no key of its own
            fields |= self._own_keys(block.what, block.named, block.keys(), keys, at, [*type(block).model_fields])
        return type(block).model_construct(**fields)

    def _complete_named(self, kind: str, components: Mapping[str, object], keys: Keys) -> Values:
        made: Values = {}
        for name, given in components.items():
            at = (*keys, name)
            if kind == "method" and name.lower() in ("fedavg", *SCHEDULES):
                self.mistakes += _no_method(name.lower(), given, at)
            elif len(several := SEVERAL.split(name.strip("[]() "))) > 1:
                near = suggest_names(dotted(keys), [one for one in several if one])
                self.mistakes.append(Mistake(keys, f"found {show(name)}, allowed: a block of the {kind}s{near}"))
            elif not isinstance(given, Mapping | None):
                self.mistakes.append(_no_block(kind, name, given, at))
            else:
                made[name] = self._own_keys(kind, name, dict(given or {}), at, at, [])
        return made

    def _own_keys(self, kind: str, name: str, given: Values, keys: Keys, at: Keys, common: list[str]) -> Values:
        """Return a component's keys with their defaults.

        Args:
            kind: the kind of component.
            name: its name.
            given: the given keys.
            keys: the place of its block.
            at: the place of its name.
            common: the keys of every component of the kind.
        """
        try:
            block = keys_of(resolve(kind, name))
        except ConfigError as error:
            self.mistakes.append(Mistake(at, str(error)))
            return {}
        known = keys_in(block)
        if taken := [key for key in known if key in common]:
            words = f"{kind} {show(name)} has a keyword-only parameter '{taken[0]}', which is a key of every {kind}"
            self.mistakes.append(Mistake(at, words))
            return {}
        for key in given:
            if key not in known:
                siblings, at_key = [*common, *known], (*keys, key)
                words = describe_unknown_key(self._root, self._values, at_key, siblings, f" of {show(name)}")
                self.mistakes.append(Mistake(at_key, words))
        given = {key: value for key, value in given.items() if key in known}
        try:
            return own_values(block.model_validate(given))
        except ValidationError as error:
            self.mistakes += (mistake.below(keys) for mistake in explain_errors(block, given, error))
            return {}


def _no_block(kind: str, name: str, given: object, at: Keys) -> Mistake:
    """Return the mistake of a value in the place of a component's block, with the keys that may have the value."""
    try:
        block = keys_of(resolve(kind, name))
    except ConfigError as error:
        return Mistake(at, str(error))
    typed = [f"'{dotted(at)}.{key}={show(given)}'" for key in keys_in(block) if _may_have(block, key, given)]
    meant = 0 < len(typed) <= MOST_MEANT
    near = f"; did you mean {either(typed)}?" if meant else f" ({', '.join(keys_in(block)) or 'it has none'})"
    return Mistake(at, f"found {show(given)}, allowed: a block of the {kind}'s keys{near}")


def _may_have(block: type[Block], key: str, value: object) -> bool:
    try:
        block.model_validate({key: value})
    except ValidationError:
        return False
    return True


def _no_method(name: str, given: object, at: Keys) -> Iterator[Mistake]:
    """Yield the mistake of a name that is no method but may be taken for one."""
    if name in SCHEDULES:
        yield Mistake(at, f"found a schedule, allowed: methods; it is {SCHEDULES[name]}")
    elif given:
        yield Mistake(at, f"found {show(given)}, allowed: {{}}, as FedAvg is what runs without methods")


def contradictions_in(part: object, keys: Keys = ()) -> Iterator[Mistake]:
    """Yield the contradictions between the keys of each block of a config."""
    if isinstance(part, tuple):
        for place, item in enumerate(part):
            yield from contradictions_in(item, (*keys, place))
    elif isinstance(part, Block):
        yield from (mistake.below(keys) for mistake in part.contradictions())
        for key, name in keys_in(type(part)).items():
            yield from contradictions_in(getattr(part, name), (*keys, key))
