"""The colors of all pictures and pages: of text and paper, of tasks and methods, of a matrix, of fates."""

from collections.abc import Mapping, Sequence

Rgb = tuple[int, int, int]

# in pictures: a page that has one inside it draws these three in its own colors
INK, FAINT = "#1a1a1a", "#dddddd"
PAPER = "#fefefe"  # what hides a line below a label or within a mark
GREY = "#888888"  # as visible on a light page as on a dark one
# Okabe and Ito's colors, which color-blind readers can distinguish, without yellow, which is too light for a line
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", INK)
# from the worst to the best cell of a matrix, and through many tasks: as viridis, but not so dark, for dark pages
SEQUENCE: Sequence[Rgb] = ((94, 60, 160), (59, 105, 165), (33, 145, 140), (94, 201, 98), (240, 215, 50))
EVEN = 0.179  # the luminance to which black and white have the same contrast, of 4.58 : 1
DARK_TEXT = 0.38  # from this place on, black is easier to read on the sequence than white
# what became of a dispatched model: the colors of the inside and of the edge, or None
FATES: Mapping[str, tuple[str | None, str | None]] = {
    "used": ("#5b7fa6", None),
    "discarded": (None, "#b3541e"),
    "dropped": (None, GREY),
    "unused": ("#bbbbbb", None),
}
LIGHT: Mapping[str, str] = {
    **{"ink": INK, "paper": "#ffffff", "dim": "#505050", "line": FAINT, "rule": GREY, "box": "#f6f6f6"},
    **{"link": "#00609a", "best": "#00507d", "good": "#1b7f3b", "bad": "#b3261e", "wait": "#8a5a00"},
}
DARK: Mapping[str, str] = {
    **{"ink": "#e4e4e4", "paper": "#15181b", "dim": "#a9aeb3", "line": "#3d4247", "rule": "#7d8388", "box": "#1f2327"},
    **{"link": "#6cc0f0", "best": "#8fd0ff", "good": "#5fcf80", "bad": "#ff8a80", "wait": "#e8b64a"},
}
"""The colors of a page by what they are for."""


def style_page() -> str:
    """Return the rules of CSS that give a page the variables --ink, --paper and so on, light or dark."""
    light, dark = (" ".join(f"--{name}: {color};" for name, color in page.items()) for page in (LIGHT, DARK))
    dark_rule = f"@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"
    return f":root {{ color-scheme: light dark; {light} }}\n{dark_rule}"


def colors_of_tasks(tasks: int) -> Sequence[str]:
    """Return a fill color for each task: distinct ones for a few tasks, and a sequence from dark to light for many."""
    few = COLORS[:-1]
    if tasks <= len(few):
        return few[:tasks]
    return ["#" + bytes(mix_sequence(task / (tasks - 1))).hex() for task in range(tasks)]


def mix_sequence(place: float) -> Rgb:
    """Return the color at a place of the sequence, from 0 to 1."""
    below = min(int(place * (len(SEQUENCE) - 1)), len(SEQUENCE) - 2)
    part = place * (len(SEQUENCE) - 1) - below
    red, green, blue = (
        round(low + part * (high - low)) for low, high in zip(SEQUENCE[below], SEQUENCE[below + 1], strict=True)
    )
    return red, green, blue


def choose_text_color(share: float) -> str:
    """Return the color of the text on a matrix's cell, by how good the cell is from 0 to 1."""
    return "black" if share >= DARK_TEXT else "white"


def choose_text_on(background: Sequence[float]) -> str:
    """Return the color of text with the most contrast to a background, red, green and blue from 0 to 1."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in background]
    luminance = sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    return "black" if luminance > EVEN else "white"
