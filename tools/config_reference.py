"""The config reference as Markdown: every key with its default, what it allows and what it is.

`make docs` writes it to docs/config.md, and the keys of every method into its page under docs/methods/.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from raysim.config.component import BareComponent, Component
from raysim.config.component_blocks import Domain
from raysim.config.lookup import KINDS, resolve, table
from raysim.config.reference import REQUIRED_KEY, describe_block, first_line
from raysim.config.schema import Config
from raysim.config.signature import keys_of

HEAD = """# Config reference

Every key, from the schema: `make docs` writes this page. `required` stands for a key without a default. Keys are
dotted here as on the command line: `training.optimizer.lr=0.1`; N is a place in a list, from 0. `raysim check CONFIG
--schema` prints the same as JSON Schema, for editors.
"""
PLURALS = {kind: f"{kind[0].upper()}{kind[1:]}s".replace("ys", "ies") for kind in KINDS}
BY_NAME = {
    "methods": ("method", "What they do is said under [methods](methods/README.md)."),
    "callbacks": ("callback", "What they are told is said under [callbacks](callbacks.md)."),
}
"""The keys whose values are components by their names: the kind, and where more is said."""
OPENS, CLOSES = "<!-- keys, written by make docs -->", "<!-- end of keys -->"


def render_reference() -> str:
    """Return the whole page."""
    parts = [HEAD, "## A run", "\n".join(_rows("", Config))]
    for name, field in Config.model_fields.items():
        below = list(_sections(name, field))
        parts += [f"## {name}", *below] if below else []
    # both kinds of scenario have the same boundaries, both kinds of schedule the same speeds: once is enough
    return "\n\n".join(part.strip() for part in dict.fromkeys(parts)) + "\n"


def render_keys(component: Callable[..., Any], prefix: str = "") -> str:
    """Return the table of a component's keys, or a line that says that it has none."""
    rows = list(_rows(prefix, keys_of(component)))
    return "\n".join(rows) if len(rows) > 2 else "No keys."


def insert_keys(page: str, name: str) -> str:
    """Return a method's page with its present keys between the marks."""
    rows = render_keys(resolve("method", name), f"methods.{name}.")
    return re.sub(f"{OPENS}.*?{CLOSES}", lambda _: f"{OPENS}\n\n{rows}\n\n{CLOSES}", page, flags=re.DOTALL)


def write_reference(docs: Path) -> None:
    """Write config.md and the methods' keys anew."""
    (docs / "config.md").write_text(render_reference(), encoding="utf-8")
    for page in (docs / "methods").glob("*.md"):
        if page.stem in table("method"):
            page.write_text(insert_keys(page.read_text(encoding="utf-8"), page.stem), encoding="utf-8")


def _sections(path: str, field: FieldInfo) -> Iterator[str]:
    """Yield the parts below a key with a block, with one of several blocks, or with a list of blocks."""
    if path in BY_NAME:
        kind, more = BY_NAME[path]
        yield f"{field.description} {more}"
        yield from _components(kind, f"{path}.{{name}}.")
    for below, block in _blocks_in(path, field.annotation):
        if issubclass(block, BareComponent):  # a name, as the key's own row says, where none of raysim's has keys
            if any(keys_of(resolve(block.what, name)).model_fields for name in table(block.what)):
                yield from _components(block.what, f"{below}.")
            continue
        if field.discriminator:
            chosen = get_args(block.model_fields[str(field.discriminator)].annotation)[0]
            yield f"### `{below}` with `{field.discriminator}: {chosen}`"
        elif "." in below:
            yield f"### `{below}`"
        yield first_line(block)
        yield "\n".join(_rows(f"{below}.", block))
        if issubclass(block, Component) and block is not Domain:
            yield from _components(block.what, f"{below}.")
        for name, inner in block.model_fields.items():
            yield from _sections(f"{below}.{name}", inner)


def _rows(prefix: str, block: type[BaseModel]) -> Iterator[str]:
    yield "| key | default | allowed | what it is |"
    yield "|---|---|---|---|"
    for key, default, allowed, description in describe_block(block):
        cells = (f"`{prefix}{key}`", default if default == REQUIRED_KEY else f"`{default}`", allowed, description)
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _components(kind: str, prefix: str) -> Iterator[str]:
    yield f"### {PLURALS[kind]}"
    for name in table(kind):
        component = resolve(kind, name)
        link = f"\n[More](methods/{name}.md)." if kind == "method" else ""
        yield f"#### `{name}`"
        yield f"{first_line(component)}{link}"
        keys, start = keys_of(component).model_fields, prefix.format(name=name)
        if keys:
            yield render_keys(component, start)
        for key, field in keys.items():
            for below, block in _blocks_in(f"{start}{field.alias or key}", field.annotation):
                yield f"{first_line(block)} Keys of `{below}`:"
                yield "\n".join(_rows(f"{below}.", block))


def _blocks_in(path: str, annotation: object) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield the blocks of an annotation and their paths, at any depth; N stands for a place in a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield path, annotation
    inside = f"{path}.N" if get_origin(annotation) in (tuple, list) else path
    for part in get_args(annotation):
        yield from _blocks_in(inside, part)


if __name__ == "__main__":
    write_reference(Path("docs"))
