"""report.html: everything on one page that loads nothing."""

from __future__ import annotations

import base64

from jinja2 import Environment, PackageLoader, StrictUndefined

from raysim.report.content import Report
from raysim.report.plots import Plot
from raysim.report.reading import Run


def document(report: Report) -> str:
    """Return the page, with the plots that lie in the report's directory inside it."""
    templates = Environment(
        loader=PackageLoader("raysim", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {"as_data": _as_data, "config_text": _config_text}
    return templates.get_template("page.html").render(report=report) + "\n"


def _as_data(plot: Plot) -> str:
    """Return an SVG as a data URI: as an image of its own, so that no two plots share their ids."""
    content = (plot.folder / f"{plot.stem}.svg").read_bytes()
    return f"data:image/svg+xml;base64,{base64.b64encode(content).decode('ascii')}"


def _config_text(run: Run) -> str:
    return (run.directory / "config.yaml").read_text(encoding="utf-8-sig")
