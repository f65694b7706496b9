"""The skill: how to use raysim, on one page, for coding agents and people. `raysim skill` prints it."""

from importlib import resources


def read_skill() -> str:
    """Return the page, in Markdown with the head that agents read."""
    return resources.files("raysim").joinpath("skill.md").read_text(encoding="utf-8")
