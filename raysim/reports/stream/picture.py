"""The stream's picture as an object that notebooks show, and `raysim.draw_stream`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Unpack

import numpy as np
import numpy.typing as npt

from raysim.config import Config, load
from raysim.config.bundled import warn_hidden
from raysim.config.keywords import CallbackKeys, add_keywords
from raysim.reports.stream.facts import StreamFacts, collect_facts, count_of
from raysim.reports.stream.layout import LINE, MARGIN, OVERVIEW, SMALL, TITLE, WIDTH, Layout, plan_layout
from raysim.reports.stream.legend import draw_legend
from raysim.reports.stream.rows import draw_rows, label_rows
from raysim.reports.stream.svg import document, element, line, number, shorten, text, text_width, wrap
from raysim.system.colors import colors_of_tasks
from raysim.system.errors import ConfigError
from raysim.system.files import write_whole

Heights = npt.NDArray[np.float64]

BOLD, TITLE_LINE = 1.1, 18.0  # how much wider bold letters are; the distance of two lines of the title
TICK = 46.0  # the least distance between two ticks


@dataclass(frozen=True, eq=False)
class StreamPicture:
    """The picture of a stream. A notebook shows it.

    >>> picture = raysim.draw_stream("quickstart")
    >>> picture.svg.startswith("<svg")
    True

    Attributes:
        svg: the picture as SVG, with a light and a dark version.
        caption: what it shows, in words.
        notes: what it leaves out, a sentence for each.
    """

    svg: str = field(repr=False)
    caption: str
    notes: Sequence[str]

    def save(self, path: str | Path) -> Path:
        """Write the picture to a file, which ends in .svg, and return its path.

        >>> raysim.draw_stream("quickstart").save("stream.svg").name
        'stream.svg'

        Raises:
            ConfigError: the file has another ending, or cannot be written.
        """
        file = check_file(path)
        try:
            write_whole(file, self.svg)
        except OSError as error:
            raise ConfigError(f"{error.strerror}, allowed: a file that can be written to", str(file)) from None
        return file

    def _repr_svg_(self) -> str:
        return self.svg


def check_file(path: str | Path) -> Path:
    """Return the path if a picture may be written to it: it ends in .svg, and its folder exists. Raises ConfigError."""
    file = Path(path)
    if file.suffix != ".svg":
        raise ConfigError(f"found the ending '{file.suffix}', allowed: a file that ends in .svg", str(path))
    if not file.parent.is_dir():
        raise ConfigError(f"there is no folder {file.parent}, allowed: a file in a folder that exists", str(path))
    return file


def draw_stream(
    config: str | Path | Mapping[str, object] | Config,
    overrides: Sequence[str] | Mapping[str, object] = (),
    **keys: Unpack[CallbackKeys],
) -> StreamPicture:
    """Draw the stream before a run: which client has which task in which round, and who takes part. Start nothing.

    The picture also has samples, each client's boundaries, arrivals, departures, drop-outs, and FedBuff's dispatches.

    >>> picture = raysim.draw_stream("quickstart", scenario={"kind": "class_incremental", "tasks": 5})
    >>> picture.caption.split(".")[0]
    'The stream of 5 clients over 50 rounds: class-incremental, iid partition, seed 0'

    Args:
        config: a YAML file, a mapping or a config.
        overrides: KEY=VALUE strings, or a mapping from dotted keys to values.
        keys: blocks of the config; further overrides.

    Raises:
        ConfigError: as the run itself would.
        RunError: a custom sampler failed.
    """
    warn_hidden(config)
    return draw_facts(collect_facts(load(config, add_keywords("draw_stream", overrides, keys))))


def draw_facts(facts: StreamFacts) -> StreamPicture:
    """Return the picture of these facts."""
    layout, colors = plan_layout(facts), colors_of_tasks(len(facts.tasks))
    heading = f"{facts.name}: {facts.summary}"
    y, body = MARGIN + TITLE - TITLE_LINE, list[str]()
    for words in wrap(heading.split(), BOLD * TITLE, WIDTH - 2 * MARGIN):
        y += TITLE_LINE
        shown = shorten(words, BOLD * TITLE, WIDTH - 2 * MARGIN)
        body.append(text(MARGIN, y, shown, TITLE, font_weight="bold"))
    for words in wrap(facts.about, SMALL, WIDTH - 2 * MARGIN, " · "):
        y += LINE
        body.append(text(MARGIN, y, words, SMALL, fill_opacity=0.75))
    y += 20
    if facts.overview is not None:
        body += _draw_overview(facts, layout, colors, y)
        y += OVERVIEW + 22
    body.append(label_rows(layout, y))
    y += 8
    bottom = y + len(facts.rows) * layout.row
    body += _draw_axis(facts, layout, bottom)
    body += draw_rows(facts, layout, colors, y)
    y, legend = draw_legend(facts, layout, colors, bottom + 42)
    body += legend
    caption = f"{_capital(facts.summary)}: {', '.join(facts.about)}."
    return StreamPicture(document(WIDTH, y, (heading, caption), body), caption, facts.notes)


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _draw_axis(facts: StreamFacts, layout: Layout, bottom: float) -> Iterator[str]:
    """Yield the rounds below the rows, each in the middle of its column."""
    for round in choose_rounds(facts.rounds, layout.right - layout.left):
        x = layout.x(round - 0.5)
        yield line(x, bottom - 1, x, bottom + 3, stroke_opacity=0.5)
        words = f"{round:,}"
        half = text_width(words, SMALL) / 2
        yield text(min(x, WIDTH - half), bottom + 14, words, SMALL, text_anchor="middle")
    yield text((layout.left + layout.right) / 2, bottom + 28, "round", SMALL, text_anchor="middle", fill_opacity=0.7)


def choose_rounds(rounds: int, width: float) -> list[int]:
    """Return the rounds to name on an axis of this width: the first one and multiples of 1, 2 or 5 times 10^k."""
    most = max(1, int(width / TICK))
    sizes = (step * 10**power for power in range(9) for step in (1, 2, 5))
    step = next(size for size in sizes if rounds / size <= most)
    every = [*range(step, rounds + 1, step)]
    apart = every and width * (every[0] - 1) / rounds >= TICK / 1.6
    return [1, *every] if step > 1 and (apart or not every) else every or [1]


def _draw_overview(facts: StreamFacts, layout: Layout, colors: Sequence[str], top: float) -> Iterator[str]:
    """Yield the share of all clients that is at each task, from below in the order of the tasks."""
    overview = facts.overview
    assert overview is not None
    yield text(MARGIN, top, f"clients by task, of {count_of(overview.clients, 'client')}", SMALL, fill_opacity=0.7)
    bottom = top + 6 + OVERVIEW
    edges = [layout.x(round - 1) for round in overview.rounds] + [layout.right]
    below = np.zeros(len(overview.rounds))
    for color, counts in zip(colors, overview.counts, strict=True):
        above = below + OVERVIEW * counts / overview.clients
        if counts.any():
            outline = _outline_steps(edges, bottom - above, bottom - below)
            yield element("path", d=outline, fill=color, fill_opacity=0.8, class_="share")
        below = above
    yield line(layout.left, bottom, layout.right, bottom, stroke_opacity=0.5)


def _outline_steps(edges: Sequence[float], upper: Heights, lower: Heights) -> str:
    """Return the outline of an area between two lines of steps, with a step between every two edges."""
    forward = [f"V{number(y)}H{number(x)}" for y, x in zip(upper, edges[1:], strict=True)]
    back = [f"V{number(y)}H{number(x)}" for y, x in zip(reversed(lower), reversed(edges[:-1]), strict=True)]
    return f"M{number(edges[0])} {number(upper[0])}{''.join(forward)}{''.join(back)}z"
