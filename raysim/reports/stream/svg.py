"""Elements of an SVG as text, and the widths of words in it."""

from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape, quoteattr

from raysim.system.colors import DARK, FAINT, INK, LIGHT

NARROW, WIDE = frozenset("iIljtfr.,:;'|!()[]/ "), frozenset("mwMWQO%@→…")
# the dark version, for pictures that are not inside a page; a page that has one inside it replaces the colors itself
IN_THE_DARK = (
    f"@media (prefers-color-scheme: dark) {{ .paper {{ fill: {DARK['paper']} !important }} "
    f'[fill="{INK}"] {{ fill: {DARK["ink"]} }} [stroke="{INK}"] {{ stroke: {DARK["ink"]} }} '
    f'[stroke="{FAINT}"] {{ stroke: {DARK["line"]} }} }}'
)


def number(value: float) -> str:
    """Return a length with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")


def element(tag: str, /, *inside: str, **attributes: object) -> str:
    """Return an element. An underscore in an attribute's name is a hyphen; lengths are rounded."""
    written = "".join(
        f" {name.strip('_').replace('_', '-')}={quoteattr(number(value) if isinstance(value, float) else str(value))}"
        for name, value in attributes.items()
        if value is not None
    )
    return f"<{tag}{written}>{''.join(inside)}</{tag}>" if inside else f"<{tag}{written}/>"


def title(words: str) -> str:
    """Return the words that a browser shows on hover."""
    return element("title", escape(words))


def rectangle(x: float, y: float, width: float, height: float, **attributes: object) -> str:
    """Return a rectangle."""
    return element("rect", x=x, y=y, width=width, height=height, **attributes)


def text(x: float, y: float, words: str, size: float, **attributes: object) -> str:
    """Return a line of text that begins at x, with its baseline at y."""
    return element("text", escape(words), **{"x": x, "y": y, "font_size": size, "fill": INK, **attributes})


def line(x: float, y: float, x2: float, y2: float, **attributes: object) -> str:
    """Return a line."""
    return element("line", **{"x1": x, "y1": y, "x2": x2, "y2": y2, "stroke": INK, **attributes})


def image(x: float, y: float, side: float, data: str) -> str:
    """Return a square image with hard pixels."""
    how = {"preserveAspectRatio": "xMidYMid meet", "style": "image-rendering: pixelated"}
    return element("image", x=x, y=y, width=side, height=side, href=data, **how)


def text_width(words: str, size: float) -> float:
    """Return about how wide a text is, rather too wide than too narrow."""
    return size * sum(
        0.36 if letter in NARROW else 0.95 if letter in WIDE else 0.7 if letter.isupper() else 0.61 for letter in words
    )


def wrap(words: Sequence[str], size: float, width: float, between: str = " ") -> Iterator[str]:
    """Yield lines of these words that are not wider than `width`, unless a word is."""
    current = ""
    for word in words:
        longer = f"{current}{between}{word}" if current else word
        if current and text_width(longer, size) > width:
            yield current
            longer = word
        current = longer
    if current:
        yield current


def shorten(words: str, size: float, width: float) -> str:
    """Return the beginning of a text that is not wider than `width`."""
    if text_width(words, size) <= width:
        return words
    while words and text_width(f"{words}…", size) > width:
        words = words[:-1]
    return f"{words.rstrip()}…"


def document(width: float, height: float, about: Sequence[str], body: Sequence[str]) -> str:
    """Return the whole SVG. `about` are a title and a description, for those who do not see it."""
    heading, description = about
    head = [title(heading), element("desc", escape(description)), element("style", IN_THE_DARK)]
    paper = element("rect", class_="paper", width=width, height=height, style=f"fill: {LIGHT['paper']}")
    size = {"width": width, "height": height, "viewBox": f"0 0 {number(width)} {number(height)}"}
    fonts = {"font_family": "system-ui, 'DejaVu Sans', sans-serif"}
    parts = "\n".join([*head, paper, *body])
    return element("svg", f"\n{parts}\n", xmlns="http://www.w3.org/2000/svg", **size, **fonts) + "\n"
