"""The config reference as Markdown: every key with what it is, what it allows and its default.

`make docs` writes it to docs/config.md, and the keys of every method into its page under docs/methods/.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
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

Set a key in a config's YAML file, or after the config on the command line: `training.optimizer.lr=0.1`. A key without
a default is `required`. N is a place in a list, from 0. `raysim check CONFIG --schema` prints the same keys as JSON
Schema, for editors.

Go to: {blocks}.
"""
PLURALS = {kind: f"{kind[0].upper()}{kind[1:]}s".replace("ys", "ies") for kind in KINDS}
OPENS, CLOSES = "<!-- keys, written by make docs -->", "<!-- end of keys -->"


def render_reference() -> str:
    """Return the whole page."""
    # both kinds of scenario have the same boundaries, both kinds of schedule the same speeds: once is enough
    below = {name: "\n\n".join(dict.fromkeys(_sections(name, field))) for name, field in Config.model_fields.items()}
    sections = {name: f"## {name}\n\n{text}" for name, text in below.items() if text}
    rows = [_point_below(row, sections) for row in _rows("", Config)]
    links = " · ".join(f"[{name}](#{name})" for name in sections)
    return "\n\n".join([HEAD.format(blocks=links).strip(), "## A run", "\n".join(rows), *sections.values()]) + "\n"


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


def _list_methods() -> str:
    """Return the table of methods: what each is, and the names of its keys. They are described on its page alone."""
    rows = ["| method | what it is | its keys |", "|---|---|---|"]
    for name in table("method"):
        method = resolve("method", name)
        keys = ", ".join(f"`{field.alias or key}`" for key, field in keys_of(method).model_fields.items())
        rows.append(_row(f"[`{name}`](methods/{name}.md#keys)", first_line(method), keys or "none"))
    return "\n".join(rows)


def _point_below(row: str, sections: Collection[str]) -> str:
    """Return a row of the first table with a link for what the key's own section has: its keys and their defaults."""
    key = row.removeprefix("| `").partition("`")[0]
    if key not in sections:
        return row
    linked = re.sub(r"(a block|, and)( with)? the keys [^|]*? \|", rf"\1\2 [these keys](#{key}) |", row)
    return re.sub(r"\| `\{[^|]{30,}\}` \|$", f"| [below](#{key}) |", linked)


def _sections(path: str, field: FieldInfo) -> Iterator[str]:
    """Yield the parts below a key with a block, with one of several blocks, or with a list of blocks."""
    if path == "methods":
        yield f"{field.description} A method's page describes its keys, and so does `raysim list methods NAME`."
        yield _list_methods()
    elif path == "callbacks":
        yield f"{field.description} [Callbacks](callbacks.md) has examples."
        yield from _components("callback", f"{path}.{{name}}.")
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
    yield "| key | what it is | allowed | default |"
    yield "|---|---|---|---|"
    for key, default, allowed, description in describe_block(block):
        cells = (f"`{prefix}{key}`", description, allowed, default if default == REQUIRED_KEY else f"`{default}`")
        yield _row(*cells)


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _components(kind: str, prefix: str) -> Iterator[str]:
    yield f"### {PLURALS[kind]}"
    for name in table(kind):
        component = resolve(kind, name)
        yield f"#### `{name}`"
        yield first_line(component)
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
