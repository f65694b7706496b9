"""A figure as SVG, with titles that show where one hovers."""

import json
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree as Xml

from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

HOVER = "hover: "  # how the gid of an artist begins whose rest is a JSON list of its title and those of its shapes
SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
GROUP, USE, PATH, TITLE, DEFS = (f"{{{SVG}}}{tag}" for tag in ("g", "use", "path", "title", "defs"))

Xml.register_namespace("", SVG)
Xml.register_namespace("xlink", XLINK)


def write_svg(figure: Figure, path: Path) -> None:
    """Write a figure as SVG, the same bytes each time."""
    drawn = StringIO()
    FigureCanvasSVG(figure).print_svg(drawn, metadata={"Date": None})  # savefig would draw it all twice
    root = Xml.fromstring(drawn.getvalue())
    for group in root.iter(GROUP):
        if group.get("id", "").startswith(HOVER):
            _insert_titles(group, *json.loads(group.attrib.pop("id").removeprefix(HOVER)))
    path.write_text(Xml.tostring(root, encoding="unicode") + "\n", encoding="utf-8")


def _insert_titles(group: Xml.Element, whole: str, *parts: str) -> None:
    """Put a title into a group, and one into each of its shapes."""
    defined = {shape for within in group.iter(DEFS) for shape in within.iter()}
    shapes = [*group.iter(USE)] or [shape for shape in group.iter(PATH) if shape not in defined]
    for shape, words in zip(shapes, parts, strict=False):
        Xml.SubElement(shape, TITLE).text = words
    first = Xml.Element(TITLE)
    first.text = whole
    group.insert(0, first)
