"""The rows of the stream's picture: each client's cells, boundaries, arrival and departure, and trips."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from raysim.reports.stream.cells import StreamCell, rounds_per_column
from raysim.reports.stream.facts import Row, StreamFacts, count_of
from raysim.reports.stream.layout import APART, LABEL, NARROWEST, SMALL, SMALLEST, STRIPE, Layout
from raysim.reports.stream.participation import FATES, ClientTrip, shares_by_column
from raysim.reports.stream.samples import Sample
from raysim.reports.stream.svg import element, image, line, number, rectangle, shorten, text, title, wrap
from raysim.system.colors import FATES as FATE_COLORS
from raysim.system.colors import INK

THUMB = 28.0  # the side of an image
MOST_SAMPLES = 5  # of a cell
LISTED = 30  # rounds that a title lists
AWAY, _ = FATE_COLORS["used"]
SHADES = 8  # of a column
LOOKS: Mapping[str, Mapping[str, object]] = {
    fate: {"fill": inside or "none", "stroke": edge, "stroke_dasharray": "2 1.5" if fate == "dropped" else None}
    for fate, (inside, edge) in FATE_COLORS.items()
}


def draw_rows(facts: StreamFacts, layout: Layout, colors: Sequence[str], top: float) -> Iterator[str]:
    """Yield the rows, the first of which begins at `top`."""
    step = 1 if layout.row >= LABEL + 1 else 2
    for place, row in enumerate(facts.rows):
        y = top + place * layout.row
        middle = y + layout.band / 2
        if place % step == 0:
            yield text(layout.left - 10, middle + LABEL / 3, f"{row.client:,}", LABEL, text_anchor="end")
        yield from _draw_absences(row, layout, middle)
        for cell in row.cells:
            yield _draw_cell(facts, row, cell, layout, colors, y)
        yield from _draw_boundaries(row, layout, y)
        if layout.lane:
            yield _draw_trips(facts, row, layout, y + layout.band + 2)


def _draw_absences(row: Row, layout: Layout, middle: float) -> Iterator[str]:
    """Yield dotted lines where a client has no data, and marks where it arrives and leaves."""
    ends = [0, *(cell.last for cell in row.cells)]
    begins = [*(cell.first - 1 for cell in row.cells), layout.rounds]
    for end, begin in zip(ends, begins, strict=True):
        if begin > end:
            dots = {"stroke_dasharray": "1 4", "stroke_opacity": 0.5, "class_": "absent"}
            yield line(layout.x(end), middle, layout.x(begin), middle, **dots)
    if row.cells and row.cells[0].first > 1:
        yield draw_arrow(layout.x(row.cells[0].first - 1) - 9, middle, "arrival")
    if row.cells and row.cells[-1].last < layout.rounds:
        yield draw_arrow(layout.x(row.cells[-1].last) + 2, middle, "departure")


def draw_arrow(x: float, middle: float, kind: str) -> str:
    """Return the mark of an arrival, which is filled, or of a departure, which is not."""
    path = f"M{number(x)} {number(middle - 4)}l7 4l-7 4z"
    return element("path", d=path, fill=INK if kind == "arrival" else "none", stroke=INK, class_=kind)


def _draw_cell(facts: StreamFacts, row: Row, cell: StreamCell, layout: Layout, colors: Sequence[str], y: float) -> str:
    """Return a cell: a field of the color of its task, or of its tasks by their shares, with some samples."""
    x, end = layout.x(cell.first - 1), layout.x(cell.last)
    width = max(end - x - APART, 0.5)
    stripe, strength = (min(STRIPE, width), 0.25) if layout.is_tall else (0.0, 0.8)
    parts, total, below = [title(_say_cell(facts, row, cell))], sum(cell.counts.values()), y
    for task, count in cell.counts.items():
        height = layout.band * count / total
        parts.append(rectangle(x, below, width, height, fill=colors[task], fill_opacity=strength))
        if stripe:
            parts.append(rectangle(x, below, stripe, height, fill=colors[task]))
        below += height
    if layout.is_tall:
        parts += _draw_samples(facts, row, cell, (x + stripe, y, width - stripe, layout.band), colors)
    return element("g", *parts, class_="cell")


def _say_cell(facts: StreamFacts, row: Row, cell: StreamCell) -> str:
    rounds = f"round {cell.first}" if cell.first == cell.last else f"rounds {cell.first} to {cell.last}"
    held = ", ".join(
        f"{count_of(n, 'sample')} of task {task + 1} ({facts.tasks[task]})" for task, n in cell.counts.items()
    )
    return f"client {row.client}, {rounds}: {held}"


def _draw_samples(
    facts: StreamFacts, row: Row, cell: StreamCell, box: tuple[float, float, float, float], colors: Sequence[str]
) -> Iterator[str]:
    """Yield as many samples of a cell as fit into a box of x, y, width and height."""
    x, y, width, height = box
    kind = facts.samples.kind
    if kind == "images":
        side = min(THUMB, width - 6)
        count = min(MOST_SAMPLES, int((width - 3) / (side + 3))) if side >= SMALLEST else 0
        for place, sample in enumerate(facts.samples.of_window(row.client, cell.window, count)):
            corner = x + 3 + place * (side + 3), y + (height - side) / 2
            yield image(*corner, side, sample.image)
            if len(cell.counts) > 1:
                yield rectangle(*corner, side, side, fill="none", stroke=colors[sample.task], stroke_width=1.5)
    elif kind == "texts" and width >= NARROWEST:
        for sample in facts.samples.of_window(row.client, cell.window, 1):
            yield from _draw_words(sample, x + 5, y, width - 8)
    elif kind == "numbers" and width >= NARROWEST:
        count = sum(cell.counts.values())
        yield text(x + 5, y + height / 2 + SMALL / 3, shorten(count_of(count, "sample"), SMALL, width - 8), SMALL)


def _draw_words(sample: Sample, x: float, y: float, width: float) -> Iterator[str]:
    """Yield two lines with the first words of a text."""
    lines = [*wrap(sample.words.split(), SMALL, width)]
    second = [shorten(" ".join(lines[1:]), SMALL, width)] if len(lines) > 1 else []
    for place, words in enumerate([shorten(lines[0], SMALL, width), *second] if lines else []):
        yield text(x, y + 15 + 14 * place, words, SMALL)


def find_boundaries(row: Row) -> list[int]:
    """Return the rounds before those in which a client's tasks change."""
    return [after.first - 1 for cell, after in pairwise(row.cells) if cell.tasks != after.tasks]


def _draw_boundaries(row: Row, layout: Layout, y: float) -> Iterator[str]:
    """Yield a line where a client's task changes."""
    for round in find_boundaries(row):
        x = layout.x(round) - APART / 2
        yield line(x, y - 2, x, y + layout.band + 1, stroke_width=1.4, class_="boundary")


def _draw_trips(facts: StreamFacts, row: Row, layout: Layout, y: float) -> str:
    """Return a client's trips: one by one, or how much of each column of rounds they cover."""
    trips, height = facts.turnout.trips.get(row.client, ()), layout.lane - 3
    parts = [title(_say_trips(row, trips))]
    if layout.one_by_one:
        for fate in FATES:
            boxes = [
                _outline(layout.x(trip.start), layout.x(trip.end), y, height) for trip in trips if trip.fate == fate
            ]
            if boxes:
                parts.append(element("path", d="".join(boxes), class_=fate, **LOOKS[fate]))
    else:
        parts += _shade_columns(facts, trips, layout, y, height)
    return element("g", *parts, class_="trips")


def _shade_columns(
    facts: StreamFacts, trips: Sequence[ClientTrip], layout: Layout, y: float, height: float
) -> Iterator[str]:
    """Yield a path for each shade of the columns, the darker the more of a column's rounds trips cover."""
    width = rounds_per_column(facts.rounds)
    boxes: dict[int, list[str]] = {}
    for column, share in enumerate(shares_by_column(trips, facts.rounds, facts.turnout.looked_at)):
        begin, end = layout.x(column * width), layout.x(min((column + 1) * width, facts.rounds))
        boxes.setdefault(round(SHADES * share), []).append(_outline(begin, end + APART, y, height))
    for shade, outlines in sorted(boxes.items()):
        if shade:
            look = {"fill": AWAY, "fill_opacity": f"{shade / SHADES:.2f}", "class_": "columns"}
            yield element("path", d="".join(outlines), **look)


def _outline(begin: float, end: float, y: float, height: float) -> str:
    """Return the outline of a trip."""
    width = max(end - begin - APART, 1.0)
    return f"M{number(begin + 0.1)} {number(y)}h{number(width)}v{number(height)}h-{number(width)}z"


def _say_trips(row: Row, trips: Sequence[ClientTrip]) -> str:
    """Return in which rounds a client takes part."""
    used = [trip.round for trip in trips if trip.fate == "used"]
    listed = ", ".join(map(str, used[:LISTED])) + ", ..." * (len(used) > LISTED)
    lost = len(trips) - len(used)
    return (
        f"client {row.client}: {count_of(len(used), 'update')}"
        + f" in rounds {listed}" * bool(used)
        + f", {lost} lost" * bool(lost)
    )


def label_rows(layout: Layout, y: float) -> str:
    """Return the heading of the clients' ids."""
    return text(layout.left - 10, y, "client", SMALL, text_anchor="end", fill_opacity=0.7)
