"""The axes of a sweep's grid: what each value sets, its name, and the name of the folder made from it."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

from raysim.config import Config, split_key
from raysim.config.brought_names import KEYS
from raysim.config.document import Document, Given, Keys, Line, Origin, dotted, walk
from raysim.config.error_text import describe_unknown, either, find_brought, nearest, show
from raysim.config.schema import LONGEST_NAME
from raysim.config.yaml_text import parse_value, to_yaml_line
from raysim.system.errors import ConfigError

MOST_COMBINATIONS = 100_000  # of a tuned row, which all get a name before some are drawn: half a minute
SHARED = ("seed", "evaluation.split")  # keys of trials that no condition may set
UNSAFE = re.compile(r"[^\w .+=@,-]+")  # characters that names in a config may not have either
EXAMPLE = "{rotated: {scenario.shift: rotation}, permuted: {scenario.shift: permutation}}"


class KeySetting(NamedTuple):
    """One config key, the value that it is set to, and its place in the document."""

    keys: Keys
    value: object
    origin: Origin

    @property
    def leaves(self) -> Sequence[Keys]:
        """The keys that are set, those inside a block one by one."""
        return [keys for keys, value in walk(self.value, self.keys) if not (isinstance(value, dict) and value)]


@dataclass(frozen=True)
class AxisValue:
    """One value of an axis: its name in reports, its part of the run's folder, and the keys that it sets.

    A tuned value sets no keys itself. Its `candidates` are tried. Each is named after the value and its own settings.
    Of a candidate, `tried` are the settings in which it differs from the others. `at_end` are those of them that are
    the least or the largest number of their list.
    """

    label: str
    folder: str
    settings: Sequence[KeySetting]
    candidates: Sequence["AxisValue"] = ()
    tried: str = ""
    at_end: str = ""

    @property
    def all_settings(self) -> Sequence[KeySetting]:
        """The config keys that it or a candidate sets."""
        return [setting for value in (self, *self.candidates) for setting in value.settings]


Values = Sequence[AxisValue]


@dataclass(frozen=True)
class Axis:
    """A config key, or a user-defined choice, in which the runs of a sweep differ."""

    name: str
    values: Sequence[AxisValue]


def read_setting(document: Document, at: Keys, key: str, value: object) -> KeySetting:
    """Return the setting of a dotted key in a sweep's document.

    Args:
        document: the sweep's document.
        at: the key's place in it.
        key: the dotted config key.
        value: the value that it is set to.

    Raises:
        ConfigError: the config has no such key.
    """
    line = document.origin(at)
    origin = line if isinstance(line, Line) else Given((), dotted(at), 0)
    keys = split_key(key, f"{origin}: {dotted(at)}" if document.file else dotted(at))
    if keys[0] not in Config.model_fields:
        raise document.error(at, _describe_unknown_key(str(keys[0])))
    return KeySetting(keys, value, origin)


def read_axis(document: Document, name: str, values: Mapping[str, object] | list[object]) -> Axis:
    """Return an axis of a sweep's grid.

    Raises:
        ConfigError: its name and values are neither those of a config key nor user-defined choices.
    """
    at: Keys = ("grid", name)
    if not values:
        raise document.error(at, f"found {show(values)}, allowed: at least one value")
    choices = split_key(name, f"grid.{name}")[0] not in Config.model_fields
    if choices:
        _check_choices(document, at, values)
    made = []
    for place, value in values.items() if isinstance(values, Mapping) else enumerate(values):
        here: Keys = (*at, place)
        if isinstance(value, Mapping) and choices:
            settings = [read_setting(document, (*here, key), key, item) for key, item in value.items()]
        else:
            settings = [read_setting(document, here, name, value)]
        label = folder = str(place)
        if isinstance(values, list):
            label = folder = name_value(value)
            if not isinstance(value, Mapping):
                folder = f"{name.rpartition('.')[2]}-{label.strip('[]') if isinstance(value, list) else label}"
        made.append(AxisValue(label, folder, settings))
    return Axis(name, _with_folders(document, at, made))


def read_conditions(document: Document, conditions: Mapping[str, Mapping[str, object]]) -> Values:
    """Return the further conditions of finalists' trials, from the key search.worst_of of a sweep's document.

    Raises:
        ConfigError: one sets no key, an unknown one, or one that all trials share.
    """
    made = []
    for name, keys in conditions.items():
        at: Keys = ("search", "worst_of", name)
        if not keys:
            raise document.error(at, "found no key, allowed: at least one; the rows as they are always count")
        settings = [read_setting(document, (*at, key), key, value) for key, value in keys.items()]
        for setting in settings:
            if dotted(setting.keys) in SHARED:
                words = f"found {dotted(setting.keys)}, allowed: other config keys"
                raise document.error((*at, dotted(setting.keys)), words + "; search.seeds has the seeds of finalists")
        made.append(AxisValue(name, name, settings))
    return _with_folders(document, ("search", "worst_of"), made)


def add_tuned(
    document: Document, axis: Axis, tuned: Mapping[str, Mapping[str, object]], draw: Callable[[Values], Values]
) -> Axis:
    """Return the axis with further values, each of which is the best of its candidates.

    Args:
        document: the sweep's document.
        axis: the axis, which may have no values yet.
        tuned: by a value's name, config keys; one that has a list is tried with each item of it, in all combinations.
        draw: returns those of the combinations that are candidates.

    Raises:
        ConfigError: a key is no config key, a list is empty, two values or candidates are called the same, or there are
            too many combinations.
    """
    made = list(axis.values)
    for name, keys in tuned.items():
        at: Keys = ("tune", axis.name, name)
        tried = [_tried(document, (*at, key), key, value) for key, value in keys.items()]
        if (count := math.prod(map(len, tried))) > MOST_COMBINATIONS:
            words = f"found {count} combinations, allowed: at most {MOST_COMBINATIONS}; make the lists shorter"
            raise document.error(at, words)
        last = [among[0].keys[-1] for among in tried if len(among) > 1]
        candidates = []
        for settings in product(*tried):
            pairs = [(one, among) for one, among in zip(settings, tried, strict=True) if len(among) > 1]
            told = ", ".join(_name_setting(setting, last) for setting, _ in pairs)
            ends = ", ".join(_name_setting(setting, last) for setting, among in pairs if _is_end(setting, among))
            label = ", ".join(filter(None, (name, told)))
            candidates.append(AxisValue(label, label, settings, (), told, ends))
        made.append(AxisValue(name, name, (), draw(_with_folders(document, at, candidates))))
    return replace(axis, values=_with_folders(document, ("tune", axis.name), made))


def _tried(document: Document, at: Keys, key: str, value: object) -> list[KeySetting]:
    """Return the settings of a key to try: one for each item of a list, or one for another value."""
    if value == []:
        raise document.error(at, "found [], allowed: a value, or a list of at least one")
    if isinstance(value, list):
        return [read_setting(document, (*at, place), key, item) for place, item in enumerate(value)]
    return [read_setting(document, at, key, value)]


def _is_end(setting: KeySetting, among: Sequence[KeySetting]) -> bool:
    """Return whether a setting is the least or the largest of numbers."""
    numbers = [one.value for one in among if isinstance(one.value, int | float) and not isinstance(one.value, bool)]
    return len(numbers) == len(among) and setting.value in (min(numbers), max(numbers))


def _name_setting(setting: KeySetting, among: Sequence[object]) -> str:
    """Return `key=value`, with the key's block if its last word is more than once among those of the row."""
    value, key = name_value(setting.value), setting.keys[-1]
    name = key if among.count(key) == 1 else dotted(setting.keys[-2:])
    return value if isinstance(setting.value, Mapping) else f"{name}={value}"


def _check_choices(document: Document, at: Keys, values: Mapping[str, object] | list[object]) -> None:
    """Refuse an axis that is neither a config key nor named blocks of config keys. Raises ConfigError."""
    name, known = str(at[-1]), Config.model_fields
    blocks = [keys for keys in values.values() if isinstance(keys, Mapping)] if isinstance(values, Mapping) else []
    if len(blocks) < len(values):
        words = f"{_describe_unknown_key(name)}, or your own choices such as {EXAMPLE}"
        raise document.error(at, words)
    strange = any(str(key).partition(".")[0] not in known for keys in blocks for key in keys)
    if strange and nearest(name, known):  # in methos: {ER: {er: {}}} the key methods is meant
        raise document.error(at, _describe_unknown_key(name))


def _describe_unknown_key(name: str) -> str:
    """Return a message about an unknown key at the top level, with what it means by its name elsewhere."""
    return describe_unknown("key", name, Config.model_fields, meant=find_brought(name, KEYS))


def name_value(value: object) -> str:
    """Return a name for an unnamed value: a block's keys as text, or YAML in one line."""
    if not isinstance(value, Mapping):
        return to_yaml_line(value)
    if not value:
        return "none"
    parts = [
        f"{key} {name_value(item)}".removesuffix(" none")
        if isinstance(item, Mapping)
        else f"{key}={to_yaml_line(item)}"
        for key, item in value.items()
    ]
    blocks = any(isinstance(item, Mapping) for item in value.values())
    return (" + " if blocks else ", ").join(parts)


def _with_folders(document: Document, at: Keys, values: Sequence[AxisValue]) -> list[AxisValue]:
    """Return the values with folder names made from their names; two values with the same folder are refused."""
    made: dict[str, AxisValue] = {}
    for value in values:
        folder = UNSAFE.sub("-", value.folder).strip(" .,-")
        if not folder or len(folder.encode()) > LONGEST_NAME:
            words = f"found the value {show(value.label)}, allowed: with a name of letters and digits, at most "
            words += f"{LONGEST_NAME} bytes long; give it one: {{NAME: VALUE}}"
            raise document.error(at, words)
        other = made.get(folder.casefold())
        if other is not None:
            twice = f"found {show(value.label)} twice" if other.label == value.label else ""
            words = twice or f"{show(other.label)} and {show(value.label)} would have the same folder, {folder}"
            raise document.error(at, f"{words}; allowed: names that differ, as in {{NAME: VALUE}}")
        made[folder.casefold()] = replace(value, folder=folder)
    return list(made.values())


def narrow_axis(axis: Axis, given: Given | str, value: object) -> Axis:
    """Return the axis with only the given values, which are names or values of the axis's key.

    Raises:
        ConfigError: what was given names a value that the axis does not have, or no value.
    """
    wanted = value if isinstance(value, list) and _found(axis, value) is None else [value]
    kept = [_found(axis, item) for item in wanted]
    if not kept or None in kept:
        names = either(_as_given(found.label) for found in axis.values)
        raise ConfigError(f"{given}: {axis.name} is an axis of the grid; found {show(value)}, allowed: {names}")
    return replace(axis, values=[found for found in axis.values if found in kept])


def _as_given(label: str) -> str:
    """Return a name as it is given to choose it: in quotes if YAML reads something else, as 1.5 where it says 1.50."""
    try:
        read = parse_value(label)
    except ConfigError:
        read = None
    return label if to_yaml_line(read) == label else f"'{label}'"


def _found(axis: Axis, wanted: object) -> AxisValue | None:
    """Return the value of an axis with this name, or that sets the axis's key to this, or None."""
    named = [value for value in axis.values if value.label == to_yaml_line(wanted)]
    sets = [(axis.name, wanted)]
    meant = [value for value in axis.values if [(dotted(keys), set_to) for keys, set_to, _ in value.settings] == sets]
    return next(iter(named or meant), None)
