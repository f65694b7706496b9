"""The legend of the stream's picture: the tasks, the marks that it has, and its notes."""

from collections.abc import Callable, Iterator, Sequence

from raysim.reports.stream.cells import rounds_per_column
from raysim.reports.stream.facts import StreamFacts, count_of
from raysim.reports.stream.layout import LABEL, LINE, MARGIN, SMALL, WIDTH, Layout
from raysim.reports.stream.participation import Fate
from raysim.reports.stream.rows import AWAY, LOOKS, draw_arrow, find_boundaries
from raysim.reports.stream.svg import element, image, line, rectangle, text, text_width, title, wrap

MOST_NAMED = 12  # tasks; of more, the first and the last are named
THUMB = 24.0
SAMPLES = 2  # of each task, where cells have no room
COLUMN_GAP = 14.0
SWATCH = 12.0
Entry = tuple[float, Callable[[float, float], Iterator[str]]]
"""The width of an entry, and a function that draws it at a place x and with the baseline y."""


def draw_legend(facts: StreamFacts, layout: Layout, colors: Sequence[str], top: float) -> tuple[float, list[str]]:
    """Return where the picture ends, and the legend and the notes, which begin at `top`."""
    y, drawn = top, list[str]()
    shows = facts.samples.kind == "images" and not layout.is_tall and len(facts.tasks) <= MOST_NAMED
    if len(facts.tasks) <= MOST_NAMED:
        tasks = [_task_entry(facts, task, colors[task], SAMPLES if shows else 0) for task in range(len(facts.tasks))]
        y = _place(tasks, y, drawn, THUMB + 6 if shows else LINE + 2)
    else:
        y = _draw_many(facts, colors, y, drawn)
    y = _place([*_mark_entries(facts, layout)], y + 2, drawn, LINE + 2)
    for note in facts.notes:
        for words in wrap(note.split(), SMALL, WIDTH - 2 * MARGIN):
            drawn.append(text(MARGIN, y + SMALL, words, SMALL, fill_opacity=0.75))
            y += LINE
    return y + MARGIN - 2, drawn


def _place(entries: Sequence[Entry], top: float, drawn: list[str], height: float) -> float:
    """Draw entries in lines of this height, and return where the lines end."""
    x, y = MARGIN, top
    for width, draw in entries:
        if x > MARGIN and x + width > WIDTH - MARGIN:
            x, y = MARGIN, y + height
        drawn += draw(x, y + height / 2 + SMALL / 3)
        x += width + COLUMN_GAP
    return y + height if entries else top


def _task_entry(facts: StreamFacts, task: int, color: str, samples: int) -> Entry:
    """Return a task's entry: its color, its number and its name, and some samples."""
    words = f"{task + 1}: {facts.tasks[task]}"
    images = [one.image for one in facts.samples.of_task(task, samples)] if samples else []
    before = SWATCH + 5 + len(images) * (THUMB + 2)

    def draw(x: float, y: float) -> Iterator[str]:
        yield rectangle(x, y - SWATCH + 2, SWATCH, SWATCH, fill=color, class_="task")
        for place, data in enumerate(images):
            yield image(x + SWATCH + 4 + place * (THUMB + 2), y - SMALL / 3 - THUMB / 2, THUMB, data)
        yield text(x + before, y, words, LABEL)

    return before + text_width(words, LABEL), draw


def _draw_many(facts: StreamFacts, colors: Sequence[str], top: float, drawn: list[str]) -> float:
    """Draw many tasks as a row of colors with the first and the last name, and return where it ends."""
    count = len(facts.tasks)
    each = (WIDTH - 2 * MARGIN) / count
    for task, color in enumerate(colors):
        words = title(f"task {task + 1}: {facts.tasks[task]}")
        look = {"x": MARGIN + task * each, "y": top, "width": each, "height": SWATCH, "fill": color, "class_": "task"}
        drawn.append(element("rect", words, **look))
    drawn.append(text(MARGIN, top + SWATCH + LINE, f"task 1: {facts.tasks[0]}", SMALL))
    last = f"task {count}: {facts.tasks[-1]}"
    drawn.append(text(WIDTH - MARGIN, top + SWATCH + LINE, last, SMALL, text_anchor="end"))
    return top + SWATCH + LINE + 8


def _entry(words: str, width: float, mark: Callable[[float, float], str]) -> Entry:
    """Return an entry with a mark of this width, which is drawn at x and at the middle of the line."""
    before = width + 5 if width else 0

    def draw(x: float, y: float) -> Iterator[str]:
        yield mark(x, y - SMALL / 3)
        yield text(x + before, y, words, SMALL)

    return before + text_width(words, SMALL), draw


def _mark_entries(facts: StreamFacts, layout: Layout) -> Iterator[Entry]:
    """Yield an entry for each kind of mark that the picture has."""
    rows = [row for row in facts.rows if row.cells]
    if any(map(find_boundaries, rows)):
        yield _entry("the client's task changes", 3, lambda x, y: line(x + 1, y - 6, x + 1, y + 6, stroke_width=1.4))
    if any(row.cells[0].first > 1 for row in rows):
        yield _entry("arrives", 9, lambda x, y: draw_arrow(x, y, "arrival"))
    if any(row.cells[-1].last < facts.rounds for row in rows):
        yield _entry("leaves, or runs out of data", 9, lambda x, y: draw_arrow(x, y, "departure"))
    yield from _trip_entries(facts, layout)


def _trip_entries(facts: StreamFacts, layout: Layout) -> Iterator[Entry]:
    """Yield the entries of the trips, with the numbers of those of all clients."""
    turnout = facts.turnout
    if turnout.always:
        yield _entry("every client that is there takes part in every round", 0, lambda x, y: "")
        return
    if turnout.decided_by is not None:
        return
    is_asynchronous = turnout.seconds is not None
    if layout.one_by_one:
        for fate, words in (_SENT if is_asynchronous else _CHOSEN).items():
            if total := turnout.totals.get(fate, 0):
                yield _entry(f"{words} ({total:,})", 16, _bar(fate))
        return
    each = count_of(rounds_per_column(facts.rounds), "round")
    doing = "away" if is_asynchronous else "taking part"

    def mark(x: float, y: float) -> str:
        return "".join(
            rectangle(x + 6 * place, y - 4, 6, 8, fill=AWAY, fill_opacity=0.3 * place + 0.2) for place in range(3)
        )

    yield _entry(f"{doing}, the darker the more of {each}", 18, mark)


_SENT: dict[Fate, str] = {
    "used": "away, its update is used",
    "discarded": "too old, discarded",
    "unused": "not back before the end",
    "dropped": "drops out",
}
_CHOSEN: dict[Fate, str] = {"used": "takes part", "dropped": "drops out"}


def _bar(fate: Fate) -> Callable[[float, float], str]:
    return lambda x, y: rectangle(x, y - 3, 15, 6, **LOOKS[fate])
