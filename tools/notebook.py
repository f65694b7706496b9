"""The tutorial as an executed notebook: python tools/notebook.py writes examples/tutorial.ipynb from docs/tutorial.md.

Blocks of `raysim` commands and of Python become cells of code; all else is text. The notebook runs in a new folder, for
about five minutes. It needs nbclient and ipykernel, and raysim in the environment of this Python.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE, NOTEBOOK = ROOT / "docs" / "tutorial.md", ROOT / "examples" / "tutorial.ipynb"
BLOCK = re.compile(r"^```(?P<kind>bash|python)\n(?P<code>.*?)^```\n", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?P<page>[^):#]+\.(?:md|ipynb))(?P<anchor>#[^)]*)?\)")
INSTALL = """\
# In a new environment, such as Colab's: remove the #, and name a wheel's address or the folder of a checkout.
# %pip install --quiet WHEEL_OR_FOLDER"""
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def cells(page: str) -> Iterator[tuple[str, str]]:
    """Yield the kind (markdown or code) and the text of each cell."""
    text = 0
    for block in BLOCK.finditer(page):
        code = block["code"].strip()
        if block["kind"] == "bash" and not all(line.startswith("raysim ") for line in code.splitlines()):
            continue
        yield from _text(page[text : block.start()])
        yield "code", f"%%bash\n{code}" if block["kind"] == "bash" else code
        text = block.end()
    yield from _text(page[text:])


def _text(part: str) -> Iterator[tuple[str, str]]:
    linked = LINK.sub(lambda link: f"](../docs/{link['page']}{link['anchor'] or ''})", part.strip())
    if linked:
        yield "markdown", linked


def build_notebook(page: str) -> dict[str, Any]:
    """Return the notebook of a page, not yet executed."""
    first, *others = cells(page)
    return {
        "cells": [_cell(number, *cell) for number, cell in enumerate([first, ("code", INSTALL), *others])],
        "metadata": METADATA,
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _cell(number: int, kind: str, text: str) -> dict[str, Any]:
    cell = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": text.splitlines(keepends=True)}
    return {**cell, "execution_count": None, "outputs": []} if kind == "code" else cell


def execute(notebook: Mapping[str, Any]) -> dict[str, Any]:
    """Return the notebook with what its cells show, without the times at which they ran."""
    import nbclient
    import nbformat

    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    node = nbformat.reads(json.dumps(notebook), as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        client = nbclient.NotebookClient(node, timeout=1800, record_timing=False, coalesce_streams=True)
        client.execute(cwd=folder)
    done = json.loads(nbformat.writes(node))
    return {**done, "metadata": METADATA}


def show(notebook: Mapping[str, Any], docs: str) -> str:
    """Return a notebook with its outputs as Markdown. `docs` is the path to the pages of docs/ from there."""
    return "\n\n".join(part for cell in notebook["cells"] for part in _show(cell, docs)) + "\n"


def _show(cell: Mapping[str, Any], docs: str) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source.replace("](../docs/", f"]({docs}")
        return
    bash = source.startswith("%%bash\n")
    yield _block("bash" if bash else "python", source.removeprefix("%%bash\n"))
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "image/png" in data:
            yield f"![Output](data:image/png;base64,{''.join(data['image/png'].split())})"
        else:
            yield _block("text", "".join(output.get("text", data.get("text/plain", ""))))


def _block(kind: str, text: str) -> str:
    return f"````{kind}\n{text.rstrip()}\n````"


if __name__ == "__main__":
    made = execute(build_notebook(PAGE.read_text(encoding="utf-8")))
    NOTEBOOK.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
