"""The tutorial's notebook is the tutorial's page, executed."""

import json

import notebook

PAGE = """\
# A page

```bash
pip install .
```

See [metrics](metrics.md#cells).

```bash
raysim run quickstart
raysim report runs
```

Then, in Python:

```python
1 + 1
```
"""


def test_commands_and_python_are_code_and_the_rest_is_text() -> None:
    assert [*notebook.cells(PAGE)] == [
        (
            "markdown",
            "# A page\n\n```bash\npip install .\n```\n\nSee [metrics](../docs/metrics.md#cells).",
        ),
        ("code", "%%bash\nraysim run quickstart\nraysim report runs"),
        ("markdown", "Then, in Python:"),
        ("code", "1 + 1"),
    ]


def test_the_notebook_is_the_page_and_was_executed() -> None:
    made = json.loads(notebook.NOTEBOOK.read_text(encoding="utf-8"))
    page = notebook.build_notebook(notebook.PAGE.read_text(encoding="utf-8"))
    assert made["metadata"] == page["metadata"]
    written = [(cell["cell_type"], "".join(cell["source"])) for cell in made["cells"]]
    expected = [(cell["cell_type"], "".join(cell["source"])) for cell in page["cells"]]
    assert written == expected, "run `python tools/notebook.py`"
    executed = [cell for cell in made["cells"] if cell["cell_type"] == "code"][1:]  # the first has comments only
    assert all(cell["outputs"] for cell in executed)
    assert not any(output["output_type"] == "error" for cell in executed for output in cell["outputs"])


def test_the_site_shows_text_code_and_outputs() -> None:
    def code(source: str, *outputs: object) -> dict[str, object]:
        return {"cell_type": "code", "source": [source], "outputs": outputs}

    shown = notebook.show(
        {
            "cells": [
                {"cell_type": "markdown", "source": ["# Title\n", "See [a](../docs/a.md)."]},
                code("%%bash\nraysim list", {"output_type": "stream", "text": ["methods\n"]}),
                code("figure", {"output_type": "execute_result", "data": {"image/png": "aa\nbb\n", "text/plain": "F"}}),
                code("1 + 1", {"output_type": "execute_result", "data": {"text/plain": ["2"]}}),
            ]
        },
        "../../",
    )
    assert shown == (
        "# Title\nSee [a](../../a.md).\n\n````bash\nraysim list\n````\n\n````text\nmethods\n````\n\n"
        "````python\nfigure\n````\n\n![Output](data:image/png;base64,aabb)\n\n"
        "````python\n1 + 1\n````\n\n````text\n2\n````\n"
    )
