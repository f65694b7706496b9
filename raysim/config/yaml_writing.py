"""Values as YAML that reads back as the same values; a config with every default spelled out."""

from typing import Any

import yaml

from raysim.config.document import to_plain
from raysim.config.error_text import show
from raysim.config.schema import Config
from raysim.config.yaml_reading import TAG, parse_plain_scalar


class _Dumper(yaml.SafeDumper):
    """PyYAML's writer, with strings quoted where YAML 1.2 or PyYAML's YAML 1.1 would read something else."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write every value out."""
        return True


def _string(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    if not text.isprintable():  # PyYAML writes some line ends raw between single quotes, where they are folded
        return dumper.represent_scalar(TAG + "str", text, style='"')
    return dumper.represent_scalar(TAG + "str", text, style=None if _stays_string(text) else "'")


def _stays_string(text: str) -> bool:
    try:
        return isinstance(parse_plain_scalar(text), str)
    except ValueError:
        return False


def _number(dumper: yaml.SafeDumper, number: float) -> yaml.ScalarNode:
    text = repr(number)
    if "e" in text and "." not in text:  # 1e-05 is a string to readers of YAML 1.1
        text = text.replace("e", ".0e")
    return dumper.represent_scalar(TAG + "float", text)


_Dumper.add_representer(str, _string)
_Dumper.add_representer(float, _number)


def dump(config: Config) -> str:
    """Return the config as YAML in the order of the schema; `load` of it gives an equal config."""
    return to_yaml(to_plain(config))


def to_yaml(values: object, flow: bool = False) -> str:
    """Return plain values as YAML, with braces and in one line where `flow`; reading it gives equal values."""
    text: str = yaml.dump(
        values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=flow, width=2**31
    )
    return text


def to_yaml_line(value: object) -> str:
    """Return a plain value as YAML writes it in one line, a string without quotes."""
    if isinstance(value, str):
        return value
    try:
        return to_yaml(value, flow=True).partition("\n")[0]
    except yaml.representer.RepresenterError:  # a Python object, which the config will refuse
        return show(value)
