"""The colors of a report's pictures."""

from collections.abc import Sequence

# Okabe and Ito's colors, which color-blind readers can distinguish, without yellow, which is too light for a line
INK, FAINT = "#1a1a1a", "#dddddd"
PAPER = "#fefefe"  # what hides a line below a label or within a mark; a page draws it in its own color
GREY = "#888888"  # as visible on a light page as on a dark one
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", INK)
# as viridis, but not so dark at its beginning, for dark pages
SEQUENCE = ((94, 60, 160), (59, 105, 165), (33, 145, 140), (94, 201, 98), (240, 215, 50))


def colors_of_tasks(tasks: int) -> Sequence[str]:
    """Return a fill color for each task: distinct ones for a few tasks, and a sequence from dark to light for many."""
    few = COLOURS[:-1]
    if tasks <= len(few):
        return few[:tasks]
    return [_in_sequence(task / (tasks - 1)) for task in range(tasks)]


def _in_sequence(place: float) -> str:
    """Return the color at a place from 0 to 1."""
    below = min(int(place * (len(SEQUENCE) - 1)), len(SEQUENCE) - 2)
    part = place * (len(SEQUENCE) - 1) - below
    mixed = (round(low + part * (high - low)) for low, high in zip(SEQUENCE[below], SEQUENCE[below + 1], strict=True))
    return "#" + "".join(f"{channel:02x}" for channel in mixed)
