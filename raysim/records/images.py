"""Pictures that methods record: a grid of images, written as images/round_00010/NAME.png."""

import shutil
from collections.abc import Mapping
from math import ceil, sqrt
from pathlib import Path

import numpy as np
from PIL import Image as Png
from PIL import ImageDraw, ImageFont

from raysim.api.pictures import Picture
from raysim.records.figures import Image

IMAGES = "images"
ROUND = "round_"  # how the name of a round's folder begins; its number follows
GAP = 2  # white pixels between images
SIDE = 96  # pixels that the longer side of an image is enlarged to, at most
CAPTION = 14  # pixels below an image for its caption


def draw_grid(picture: Picture) -> Image:
    """Draw the images row by row as one image (uint8 [H, W, 3]), enlarged by a whole factor if they are small."""
    count, _, height, width = picture.images.shape
    factor = max(1, SIDE // max(height, width))
    tiles = picture.images.repeat(factor, axis=2).repeat(factor, axis=3).transpose(0, 2, 3, 1)
    height, width = factor * height, factor * width
    columns = count_columns(count)
    below = GAP + (CAPTION if picture.captions else 0)
    grid = np.full((-(-count // columns), height + below, columns, width + GAP, 3), 255, dtype=np.uint8)
    for k, tile in enumerate(tiles):
        place = grid[k // columns, :, k % columns]
        place[:height, :width] = tile
        if picture.captions:
            place[height : height + CAPTION, :width] = _write(picture.captions[k], width)[..., None]
    rows = grid.reshape(len(grid) * (height + below), columns * (width + GAP), 3)
    return rows[:-GAP, :-GAP]


def count_columns(count: int) -> int:
    """Return a number of columns that fills all rows, if one is at most twice the square root, or else the root."""
    root = ceil(sqrt(count))
    return next((columns for columns in range(root, int(2 * sqrt(count)) + 1) if count % columns == 0), root)


def _write(text: str, width: int) -> Image:
    """Return a text as a line of black on white (uint8 [CAPTION, width]). What is too long is cut off."""
    line = Png.new("L", (width, CAPTION), 255)
    ImageDraw.Draw(line).text((0, 0), text, fill=0, font=ImageFont.load_default())
    return np.asarray(line)


def image_path(round: int, name: str) -> str:
    """Return the path of a picture in a run's directory."""
    return f"{IMAGES}/{ROUND}{round:05d}/{name}.png"


def find_images(directory: Path) -> Mapping[int, list[Path]]:
    """Return the pictures in a run's directory by round, in the order of the rounds and names."""
    return {number: sorted(path.glob("*.png")) for number, path in _list_rounds(directory)}


def delete_images(directory: Path, after: int) -> None:
    """Delete the pictures of later rounds than this one from a run's directory."""
    for number, folder in _list_rounds(directory):
        if number > after:
            shutil.rmtree(folder)


def _list_rounds(directory: Path) -> list[tuple[int, Path]]:
    folders = [(path.name.removeprefix(ROUND), path) for path in (directory / IMAGES).glob(f"{ROUND}*")]
    return sorted((int(number), path) for number, path in folders if number.isdecimal())
