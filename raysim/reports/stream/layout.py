"""The measures of the stream's picture, in pixels."""

from dataclasses import dataclass

from raysim.reports.stream.cells import MOST_COLUMNS
from raysim.reports.stream.facts import MOST_TALL, StreamFacts
from raysim.reports.stream.svg import text_width

WIDTH = 560.0
MARGIN = 12.0
TITLE, LABEL, SMALL = 14.0, 12.0, 10.7  # font sizes; the smallest is 8 points
LINE = 15.0
TALL, LOW, LOWEST = 36.0, 18.0, 13.0  # heights of cells: with samples, without, and of many clients
OVERVIEW = 44.0  # the overview's height
MOST_TRIPS = 1500  # that are drawn one by one
STRIPE = 3.0  # the width of a cell's edge
APART = 1.2  # the gap between two cells
SMALLEST = 14.0  # the side of an image
NARROWEST = 44.0  # the width of a cell with words


@dataclass(frozen=True)
class Layout:
    """Where things are."""

    rounds: int
    """The number of rounds."""
    left: float
    """Where the first round begins."""
    band: float
    """The height of a row's cells."""
    lane: float
    """The height of a row's trips; 0 if there are none."""
    gap: float
    """The space between two rows."""
    one_by_one: bool
    """Whether trips are drawn one by one, and not by column."""

    @property
    def is_tall(self) -> bool:
        """Whether there is room for samples in the cells."""
        return self.band >= TALL

    @property
    def row(self) -> float:
        """The distance between two rows."""
        return self.band + self.lane + self.gap

    @property
    def right(self) -> float:
        """Where the last round ends."""
        return WIDTH - MARGIN

    def x(self, time: float) -> float:
        """Return the place of a time in rounds: round r lasts from r - 1 to r."""
        return self.left + (self.right - self.left) * time / self.rounds


def plan_layout(facts: StreamFacts) -> Layout:
    """Return the layout of a picture."""
    few, turnout = len(facts.rows) <= MOST_TALL, facts.turnout
    labels = ["client", *(f"{row.client:,}" for row in facts.rows)]
    left = MARGIN + max(text_width(label, LABEL) for label in labels) + 12
    has_lane = not turnout.always and turnout.decided_by is None
    return Layout(
        rounds=facts.rounds,
        left=left,
        band=LOWEST if not few else TALL if _has_room(facts, left) else LOW,
        lane=(9.0 if few else 6.0) * has_lane,
        gap=8.0 if few else 5.0,
        one_by_one=facts.rounds <= MOST_COLUMNS and sum(map(len, turnout.trips.values())) <= MOST_TRIPS,
    )


def _has_room(facts: StreamFacts, left: float) -> bool:
    """Return whether the widest cell has room for a sample."""
    longest = max((1 + cell.last - cell.first for row in facts.rows for cell in row.cells), default=0)
    least = SMALLEST + 6 if facts.samples.kind == "images" else NARROWEST
    width = (WIDTH - MARGIN - left) * longest / facts.rounds - STRIPE - APART
    return facts.samples.kind is not None and width >= least
