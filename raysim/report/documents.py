"""The documents of a report: every file below templates/, filled in."""

from __future__ import annotations

import base64
import re

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from raysim.report.content import Plot, Report
from raysim.report.reading import FinishedRun

LATEX = {
    **{letter: f"\\{letter}" for letter in "{}$&#_%"},
    **{sign: f"${sign}$" for sign in "<>|"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"±": r"$\pm$", "−": "$-$"},
}

MINUS = re.compile(r"(?<![\w$])-(?=\d)")  # a hyphen is no minus


def fill_template(name: str, report: Report) -> str:
    """Return report.md, report.tex or report.html.

    Markdown links the plots relative to the report's directory; the page has them inside it and loads nothing.
    """
    templates = Environment(
        loader=PackageLoader("raysim.report"),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters |= {"markdown": escape_markdown, "latex": escape_latex}
    templates.filters |= {"as_data": _as_data, "config_text": _config_text}
    return templates.get_template(name).render(report=report)


def escape_markdown(text: str) -> str:
    """Return text in which nothing means anything to Markdown, for use in a line or in a table's cell."""
    return re.sub(r"([\\`*_{}\[\]<>#|~$&])", r"\\\1", text)


def escape_latex(text: str) -> str:
    """Return text in which nothing means anything to LaTeX."""
    return MINUS.sub("$-$", "".join(LATEX.get(letter, letter) for letter in text))


def _as_data(plot: Plot) -> str:
    """Return an SVG as a data URI: as an image of its own, so that no two plots share their ids."""
    content = (plot.folder / f"{plot.stem}.svg").read_bytes()
    return f"data:image/svg+xml;base64,{base64.b64encode(content).decode('ascii')}"


def _config_text(run: FinishedRun) -> str:
    return (run.directory / "config.yaml").read_text(encoding="utf-8-sig")
