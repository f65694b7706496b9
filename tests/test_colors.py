"""One palette: `raysim live`, a report, the README's pictures and a matrix in any medium have the same colors."""

import base64
import json
import re
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from matplotlib import colormaps
from PIL import Image

from raysim.live.http_server import read_page
from raysim.records.figures import color_ramp
from raysim.reports.content import Report
from raysim.reports.formats import fill_template
from raysim.reports.plots.times import FATES as DRAWN_FATES
from raysim.reports.stream.participation import FATES as STREAM_FATES
from raysim.reports.stream.rows import LOOKS
from raysim.system.colors import (
    COLORS,
    DARK,
    DARK_TEXT,
    FATES,
    GREY,
    LIGHT,
    SEQUENCE,
    choose_text_color,
    choose_text_on,
    mix_sequence,
)

ASSETS = Path(__file__).parents[1] / "docs" / "assets"
VARIABLE = re.compile(r"--(\w+): (#\w+);")


def test_the_live_page_and_a_report_set_the_same_colors(tmp_path: Path) -> None:
    for page in (read_page(), fill_template("report.html", Report([], [], tmp_path))):
        light, dark = page.split("@media (prefers-color-scheme: dark)")[:2]
        assert (dict(VARIABLE.findall(light)), dict(VARIABLE.findall(dark))) == (LIGHT, DARK)
        assert {*re.findall(r"var\(--(\w+)\)", page)} <= {*LIGHT}


def test_the_live_page_draws_tasks_and_matrices_in_the_colors_of_the_table() -> None:
    page = read_page()
    found = re.search(r"const PALETTE = (.*);", page)
    assert found is not None
    palette = json.loads(found[1])
    assert palette == {
        "tasks": [*COLORS[:-1]],
        "sequence": [*map(list, SEQUENCE)],
        "dark_text": DARK_TEXT,
        "lost": GREY,
    }
    rest = VARIABLE.sub("", page).replace(found[0], "")
    assert re.findall(r"#[0-9a-fA-F]{6}\b|hsl", rest) == []  # no color beside those of the table


@pytest.mark.parametrize(("name", "page"), [("light", LIGHT), ("dark", DARK)])
def test_the_pictures_of_the_readme_have_the_colors_of_the_table(name: str, page: dict[str, str]) -> None:
    for picture, tasks in (("hero", COLORS[:3]), ("hero-phone", ()), ("gains", (COLORS[0], COLORS[2]))):
        text = (ASSETS / f"{picture}-{name}.svg").read_text()
        used = {*re.findall(r"(?:stroke|fill): (#\w{6})", text)}
        assert {color.lower() for color in tasks} | {page["ink"]} <= used
        assert used <= {color.lower() for color in tasks} | {page["ink"], "#0d1117", "#ffffff", "#000000"}


@pytest.mark.parametrize("name", ["light", "dark"])
def test_the_letters_of_the_phones_picture_are_12_pixels_on_a_screen_of_360(name: str) -> None:
    """A letter is drawn 100 high and scaled. A screen of 360 with margins of 16 has 328 for the picture."""
    text = (ASSETS / f"hero-phone-{name}.svg").read_text()
    width = re.search(r'viewBox="0 0 ([\d.]+) ', text)
    scales = [float(scale) for scale in re.findall(r"scale\(([\d.]+) -", text)]
    assert width is not None
    assert len(scales) >= 4 + 6 + 3  # lines of titles, rows' and columns' numbers, and more
    assert min(scales) * 100 * 328 / float(width[1]) >= 12


@pytest.mark.parametrize("picture", ["hero", "hero-phone"])
def test_the_cells_of_the_readmes_matrices_are_on_the_scale(picture: str) -> None:
    text = (ASSETS / f"{picture}-light.svg").read_text()
    images = [Image.open(BytesIO(base64.b64decode(data))) for data in re.findall(r"base64,([^\"]+)", text)]
    pixels = [np.asarray(image.convert("RGB")).reshape(-1, 3) for image in images]
    colored = [found for found in pixels if np.ptp(found, axis=1).any()]  # the others are grey digits
    assert len(colored) == 2
    scale = np.array([mix_sequence(place / 1000) for place in range(1001)])
    for found in colored:
        cells, counts = np.unique(found, axis=0, return_counts=True)
        cells = cells[counts > len(found) / 50]
        assert 4 <= len(cells) <= 9  # of three tasks
        assert np.abs(cells[:, None].astype(int) - scale).max(2).min(1).max() <= 2


def test_matplotlib_has_the_same_scale() -> None:
    places = np.linspace(0, 1, 41)
    drawn = 255 * color_ramp()(places)[:, :3]  # of 256 levels, up to 2.3 apart
    assert np.abs(drawn - [mix_sequence(place) for place in places]).max() < 2.4


def test_a_fate_has_one_look_in_the_stream_and_in_time() -> None:
    assert {*FATES} == {*STREAM_FATES} == {*DRAWN_FATES} == {*LOOKS}
    for fate, (inside, edge) in FATES.items():
        assert (LOOKS[fate]["fill"], LOOKS[fate]["stroke"]) == (inside or "none", edge)
        assert (inside is None) != (edge is None)


def luminance(color: tuple[float, ...]) -> float:
    """WCAG 2.2's relative luminance of a color whose parts are from 0 to 255."""
    linear = [(c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4) for c in (part / 255 for part in color)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast_of(text: str, color: tuple[float, ...]) -> float:
    """The contrast of black or white text on a color."""
    found = luminance(color)
    return (found + 0.05) / 0.05 if text == "black" else 1.05 / (found + 0.05)


def test_numbers_on_cells_are_legible() -> None:
    """A contrast of 4.5 to 1 is that of WCAG's level AA."""
    for place in np.linspace(0, 1, 501):
        color = mix_sequence(place)
        assert contrast_of(choose_text_color(place), color) >= 4.5
        assert contrast_of(choose_text_on([part / 255 for part in color]), color) >= 4.5
        blue = tuple(255 * part for part in colormaps["Blues"](place)[:3])  # of the counts of samples
        assert contrast_of(choose_text_on([part / 255 for part in blue]), blue) >= 4.5
