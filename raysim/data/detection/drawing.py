"""What a vehicle's camera sees: ground and sky by a ray for each pixel, and solids by the painter's algorithm.

The far ones are drawn first. A second picture has the number of the object that each pixel shows. Boxes are read from
it, so they are those of the visible pixels, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, cos, floor, sin
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from raysim.data.detection.shapes import Solids, solids
from raysim.data.detection.streets import (
    BLOCK,
    BUILDING,
    EDGES,
    LANES,
    OTHER_SIDE,
    ROAD,
    WALK,
    Floats,
    Ints,
    Things,
    hashed,
    seen_from,
)

Weather = Literal["clear", "rain", "fog", "snow"]
Area = Literal["town", "highway"]
Pose = tuple[float, float, float]

FINER = 2  # pixels that are drawn for a pixel, along each side: edges become smooth
HEIGHT = 1.55  # of the camera, in meters
FOCAL = 0.8  # of the image's side: 64 degrees
HORIZON = 0.46  # of the image's side from the top
NEAR = 0.4
FAINT = 1.5  # drawn pixels: smaller solids are left out
VISIBLE = 0.3  # of an object's outline, else it has no box
MOST = 255  # labels of objects
SIGHTS = {"clear": 260.0, "rain": 90.0, "fog": 24.0, "snow": 70.0}  # meters until 63% is haze

FACES = np.array(
    [[0, 1, 5, 4], [2, 3, 7, 6], [1, 2, 6, 5], [3, 0, 4, 7], [4, 5, 6, 7]]
)  # back, front, right, left, top
TOP = 4
SHADES = np.array([0.82, 0.82, 1.0, 0.66, 1.12])
GRAIN = (0.93 + 0.14 * hashed(9, np.arange(128)[:, None], np.arange(128))).astype(np.float32)
CORNERS = np.array([[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0], [-1, -1, 1], [1, -1, 1], [1, 1, 1], [-1, 1, 1]]) / [
    2,
    2,
    1,
]


@dataclass(frozen=True)
class Light:
    """The light of an hour, in a weather."""

    daylight: float
    """From 0, at night, to 1."""
    sky: Floats
    """The color at the horizon, [3]."""
    zenith: Floats
    tint: Floats
    """Factors of all colors, [3]."""
    sight: float
    snow: bool
    wet: bool


def light_of(hour: float, weather: Weather) -> Light:
    """Return the light at an hour from 0 to 24: full from 8 to 17, none before 5 and after 21."""
    hour %= 24
    daylight = float(np.clip(min((hour - 5) / 3, (21 - hour) / 4), 0, 1))
    glow = 4 * daylight * (1 - daylight)  # dawn and dusk
    gray = {"clear": 0.0, "rain": 0.75, "fog": 0.9, "snow": 0.8}[weather]
    day = (1 - gray) * np.array([178.0, 206, 232]) + gray * np.array([172.0, 176, 182])
    high = (1 - gray) * np.array([84.0, 140, 214]) + gray * np.array([140.0, 146, 154])
    red = (1 - gray) * glow
    sky = daylight * day + (1 - daylight) * np.array([16.0, 20, 34]) + red * np.array([90.0, 5, -60])
    zenith = daylight * high + (1 - daylight) * np.array([6.0, 8, 20]) + red * np.array([25.0, 0, 5])
    strength = (0.2 + 0.8 * daylight) * (1 - 0.12 * gray)
    tint = strength * (1 + red * np.array([0.12, -0.04, -0.16]) + (1 - daylight) * np.array([-0.08, 0, 0.14]))
    return Light(
        daylight, sky.clip(0, 255), zenith.clip(0, 255), tint, SIGHTS[weather], weather == "snow", weather == "rain"
    )


def draw_frame(
    things: Things, pose: Pose, area: Area, light: Light, sizes: tuple[int, float], noise: np.random.Generator
) -> tuple[npt.NDArray[np.uint8], list[list[float]]]:
    """Return an image uint8 [3, size, size], and the rows (class, x, y, w, h) of its objects, the nearest first.

    `sizes` are the image's side in pixels, and the square root of the smallest box's area as a fraction of it.
    """
    size, smallest = sizes
    side = FINER * size
    canvas = Image.fromarray(_ground_and_sky(pose, area, light, side))
    numbers = Image.new("L", (side, side))  # 0 for what is no object
    kept, right, ahead, turned = seen_from(things, *pose)
    rows: list[list[float]] = []
    if len(kept.kind):
        distance = np.hypot(right, ahead)
        objects = np.flatnonzero(kept.kind < BUILDING)
        objects = objects[np.argsort(distance[objects], kind="stable")][:MOST]
        labels = np.zeros(len(kept.kind), int)
        labels[objects] = 1 + np.arange(len(objects))
        outlines = _paint(canvas, numbers, solids(kept, right, ahead, turned), kept, labels, distance, light)
        rows = _boxes(np.asarray(numbers), outlines[objects], kept.kind[objects], side, smallest)
    small = np.asarray(canvas.resize((size, size), Image.Resampling.BOX), np.float32)
    return _weather(small, light, noise).transpose(2, 0, 1), rows


def _ground_and_sky(pose: Pose, area: Area, light: Light, side: int) -> npt.NDArray[np.uint8]:
    picture = np.empty((side, side, 3), np.float32)
    line = int(HORIZON * side) + 1
    up = np.linspace(0, 1, line, dtype=np.float32)[:, None, None]  # from the top to the horizon
    picture[:line] = light.zenith + (light.sky - light.zenith) * up**1.5
    rows = np.arange(line, side) + 0.5
    depth = (FOCAL * HEIGHT * side / (rows - HORIZON * side))[:, None]
    right = (np.arange(side) + 0.5 - side / 2) / (FOCAL * side) * depth
    x, z, angle = pose
    ground_x = (x + right * cos(angle) + depth * sin(angle)).astype(np.float32)
    ground_z = (z + depth * cos(angle) - right * sin(angle)).astype(np.float32)
    kinds = _town_ground(ground_x, ground_z) if area == "town" else _highway_ground(ground_x, ground_z)
    grain = GRAIN[(ground_x * 3).astype(np.int32) % len(GRAIN), (ground_z * 3).astype(np.int32) % len(GRAIN)]
    haze = np.exp(-depth / light.sight).astype(np.float32)[..., None]
    bright = light.tint.astype(np.float32)
    if light.daylight < 1:  # the headlights
        beam = np.exp(-depth / 16 - (right / (1.5 + 0.35 * depth)) ** 2).astype(np.float32)
        bright = bright + np.float32(0.8 * (1 - light.daylight)) * beam[..., None]
    color = _ground_colors(area, light)[kinds] * (grain[..., None] * bright)
    picture[line:] = color * haze + light.sky.astype(np.float32) * (1 - haze)
    return picture.clip(0, 255).astype(np.uint8)


def _ground_colors(area: Area, light: Light) -> npt.NDArray[np.float32]:
    """Return the colors of the kinds of ground: open, sidewalk, curb, road and paint, [5, 3]."""
    grass = (96, 124, 70) if area == "town" else (112, 128, 66)
    road = (146, 148, 154) if light.snow else (54, 56, 62) if light.wet else (85, 86, 90)
    open_ground, walk = ((220, 224, 230), (205, 208, 214)) if light.snow else (grass, (150, 146, 140))
    return np.array([open_ground, walk, (122, 120, 116), road, (212, 212, 207)], np.float32)


def _town_ground(x: npt.NDArray[np.float32], z: npt.NDArray[np.float32]) -> npt.NDArray[np.int8]:
    """Return the kinds of a town's ground: gardens, sidewalks, streets with dashes and crossings."""
    block = np.float32(BLOCK)
    across, along = (np.abs(v - block * np.round(v / block)) for v in (x, z))
    nearer, other = np.minimum(across, along), np.maximum(across, along)
    way = np.where(across < along, z, x)
    kinds = (nearer < WALK).astype(np.int8) + (nearer < ROAD + 0.25) + (nearer < ROAD)
    dashes = (nearer < 0.1) & (other > ROAD + 4) & (way % 4 < 2)
    stripes = (nearer < ROAD - 0.4) & (other > ROAD + 0.8) & (other < ROAD + 3) & (nearer % 1 < 0.5)
    kinds[dashes | stripes] = 4
    return kinds


def _highway_ground(x: npt.NDArray[np.float32], z: npt.NDArray[np.float32]) -> npt.NDArray[np.int8]:
    """Return the kinds of the highway's ground: grass, two roadways, their lines."""
    kinds, half = np.zeros(x.shape, np.int8), (LANES[1] - LANES[0]) / 2
    for middle in (0.0, OTHER_SIDE):
        beside = x - middle
        kinds[(beside > EDGES[0] - 1) & (beside < EDGES[1] + 1)] = 3
        solid = np.minimum(np.abs(beside - EDGES[0] + 0.3), np.abs(beside - EDGES[1] - 0.3)) < 0.12
        dashed = (np.minimum(np.abs(beside - half), np.abs(beside + half)) < 0.1) & (z % 12 < 5)
        kinds[solid | dashed] = 4
    return kinds


def _paint(
    canvas: Image.Image,
    numbers: Image.Image,
    drawn: Solids,
    things: Things,
    labels: Ints,
    distance: Floats,
    light: Light,
) -> Floats:
    """Draw the solids, the far things first. Return the outlines of things, [n, 4] (left, top, right, bottom)."""
    side, pen, mark = canvas.width, ImageDraw.Draw(canvas), ImageDraw.Draw(numbers)
    of_things = distance - 0.5 * np.hypot(things.width, things.length)  # long walls count by their near end
    order = np.lexsort((-np.hypot(drawn.right, drawn.ahead), drawn.thing, -of_things[drawn.thing]))
    corners = _corners(drawn)
    pixels, cut = _project(corners, side), corners[..., 1].min(1) < NEAR
    low, high = pixels.min(1), pixels.max(1)
    seen = (high > 0).all(1) & (low < side).all(1) & ((high - low).max(1) >= FAINT)
    shown = np.where(cut, (corners[..., 1].max(1) > NEAR) & ~drawn.ball, seen)
    outlines, whole = np.tile([np.inf, np.inf, -np.inf, -np.inf], (len(labels), 1)), shown & ~cut
    np.minimum.at(outlines[:, :2], drawn.thing[whole], low[whole])
    np.maximum.at(outlines[:, 2:], drawn.thing[whole], high[whole])
    order = order[shown[order]]
    tones = _tones(_lit(drawn, light)[order, None] * SHADES[:, None])
    flat = pixels[order][:, FACES].reshape(len(order), len(FACES), 8).tolist()
    rows = zip(
        order.tolist(), labels[drawn.thing[order]].tolist(), _facing(corners[order]).tolist(), tones, flat, strict=True
    )
    for number, ink, facing, of_faces, polygons in rows:
        if drawn.ball[number]:
            box = (*low[number].tolist(), *high[number].tolist())
            pen.ellipse(box, fill=of_faces[0])
            mark.ellipse(box, fill=ink)
            continue
        for face in (face for face, visible in enumerate(facing) if visible):
            polygon = polygons[face]
            if cut[number]:
                polygon = _cut(corners[number, FACES[face]], side)
                outline = outlines[drawn.thing[number]]
                outline[:2] = np.minimum.reduce([outline[:2], *np.reshape(polygon, (-1, 2))])
                outline[2:] = np.maximum.reduce([outline[2:], *np.reshape(polygon, (-1, 2))])
            if polygon:
                pen.polygon(polygon, fill=of_faces[face])
                mark.polygon(polygon, fill=ink)
                if drawn.windows[number] and face != TOP:
                    _windows(pen, corners[number, FACES[face]], side, np.array(of_faces[face]), light)
    return outlines


def _corners(drawn: Solids) -> Floats:
    local = CORNERS * drawn.size[:, None]  # [n, 8, 3]: right, ahead, up
    c, s = np.cos(drawn.direction)[:, None], np.sin(drawn.direction)[:, None]
    x, z = local[..., 0] * c + local[..., 1] * s, local[..., 1] * c - local[..., 0] * s
    place = (drawn.right[:, None] + x, drawn.ahead[:, None] + z, drawn.bottom[:, None] + local[..., 2])
    return np.stack(place, -1)


def _lit(drawn: Solids, light: Light) -> Floats:
    """Return the solids' colors [n, 3] in this light, at their distance in the haze."""
    depth = np.maximum(drawn.ahead, 0.5)[:, None]
    beam = (1 - light.daylight) * np.exp(-depth / 18) * np.exp(-((drawn.right[:, None] / (2 + 0.35 * depth)) ** 2))
    shine = drawn.shine[:, None] * (1 - light.daylight)
    color = drawn.color * (light.tint + 0.7 * beam) * (1 - shine) + drawn.color * shine
    haze: Floats = np.exp(-depth / light.sight)
    lit: Floats = color * haze + light.sky * (1 - haze)
    return lit


def _facing(corners: Floats) -> npt.NDArray[np.bool_]:
    """Return which faces of boxes with corners [n, 8, 3] look at the camera, [n, 5]."""
    faces = corners[:, FACES]  # [n, 5, 4, 3]
    normal = np.cross(faces[:, :, 1] - faces[:, :, 0], faces[:, :, 3] - faces[:, :, 0])
    outward = (normal * (faces[:, :, 0] - corners.mean(1)[:, None])).sum(-1)
    towards = (normal * (faces[:, :, 0] - (0, 0, HEIGHT))).sum(-1)
    facing: npt.NDArray[np.bool_] = towards * outward < 0
    return facing


def _project(points: Floats, side: int) -> Floats:
    """Return the pixels [..., 2] of points (right, ahead, up) [..., 3]. They mean nothing behind the plane NEAR."""
    scale = FOCAL * side / np.maximum(points[..., 1], NEAR)
    across, down = side / 2 + points[..., 0] * scale, HORIZON * side + (HEIGHT - points[..., 2]) * scale
    pixels: Floats = np.stack([across, down], -1).clip(
        -8 * side, 8 * side
    )  # Pillow's polygons are exact for moderate numbers
    return pixels


def _cut(polygon: Floats, side: int) -> list[float]:
    """Return the pixels of the part of a polygon [n, 3] in front of the plane NEAR: x and y in turn, maybe none."""
    ahead = []
    for a, b in zip(polygon, np.roll(polygon, -1, 0), strict=True):
        if a[1] >= NEAR:
            ahead.append(a)
        if (a[1] >= NEAR) != (b[1] >= NEAR):
            ahead.append(a + (b - a) * (NEAR - a[1]) / (b[1] - a[1]))
    pixels: list[float] = _project(np.array(ahead), side).ravel().tolist() if len(ahead) > 2 else []
    return pixels


def _windows(pen: ImageDraw.ImageDraw, wall: Floats, side: int, color: Floats, light: Light) -> None:
    """Draw the windows of a wall (its lower edge first), if it is near enough and none is behind the camera."""
    height, width = float(wall[2, 2] - wall[0, 2]), float(np.hypot(*(wall[1] - wall[0])[:2]))
    if wall[:, 1].min() > 60 or wall[:, 1].max() < 2:
        return
    columns, floors = max(1, floor(width / 4)), max(1, floor(height / 3.2))
    along, up = (wall[1] - wall[0]) / columns, np.array([0, 0, height / floors])
    column, story = (part.ravel()[:, None] for part in np.meshgrid(np.arange(columns), np.arange(floors)))
    corner = wall[0] + (column + 0.28) * along + (story + 0.35) * up
    panes = np.stack([corner, corner + 0.44 * along, corner + 0.44 * along + 0.45 * up, corner + 0.45 * up], 1)
    in_front = panes[..., 1].min(1) > NEAR
    is_lit = (hashed(5, floor(100 * width), column[:, 0], story[:, 0]) < 0.35) & (light.daylight < 0.6)
    haze = np.exp(-np.maximum(corner[:, 1:2], 0.5) / light.sight)
    glass = color * 0.5 + np.array([4.0, 10, 18]) * light.daylight
    lamp = np.array([250.0, 214, 130]) * haze + light.sky * (1 - haze)
    tones = _tones(np.where(is_lit[:, None], lamp, glass))
    flat = _project(panes, side).reshape(len(panes), 8).tolist()
    for number in np.flatnonzero(in_front).tolist():
        pen.polygon(flat[number], fill=tones[number])


def _tones(colors: Floats) -> Any:
    """Return colors [..., 3] as nested lists of tuples, as Pillow takes them."""
    whole = colors.clip(0, 255).astype(int)
    if whole.ndim == 2:
        return [*map(tuple, whole.tolist())]
    return [[*map(tuple, of_one)] for of_one in whole.tolist()]


def _boxes(
    numbers: npt.NDArray[np.uint8], outlines: Floats, classes: Ints, side: int, smallest: float
) -> list[list[float]]:
    """Return the rows (class, x, y, w, h) of the objects of which enough is visible, in order.

    Outlines are [n, 4] and classes [n] of the objects with the labels 1, 2, ... in the picture of numbers.
    """
    rows = []
    for label, outline in enumerate(outlines.tolist(), 1):
        left, top, right, bottom = (min(max(edge, 0.0), side) for edge in outline)
        if right <= left or bottom <= top:
            continue
        x0, y0 = max(floor(left) - 1, 0), max(floor(top) - 1, 0)
        part = numbers[y0 : ceil(bottom) + 2, x0 : ceil(right) + 2] == label
        if part.sum() < max(1, VISIBLE * (right - left) * (bottom - top)):
            continue
        ys, xs = np.flatnonzero(part.any(1)), np.flatnonzero(part.any(0))
        x0, x1, y0, y1 = x0 + xs[0], x0 + xs[-1] + 1, y0 + ys[0], y0 + ys[-1] + 1
        if (x1 - x0) * (y1 - y0) >= (smallest * side) ** 2:
            box = [(x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0]
            rows.append([float(classes[label - 1]), *(float(edge) / side for edge in box)])
    return rows


def _weather(picture: npt.NDArray[np.float32], light: Light, noise: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Return the picture [H, W, 3] with rain or snow in front of the camera, and the sensor's noise."""
    size = len(picture)
    if light.wet or light.snow:
        count = size * size // (170 if light.wet else 110)
        x, y = noise.integers(0, size, (2, count))
        long = noise.integers(2, 3 + size // 24, count) if light.wet else np.ones(count, int)
        strength = (0.28 if light.wet else 0.8) * (0.35 + 0.65 * light.daylight)
        for step in range(int(long.max())):
            on = (step < long) & (y + step < size)
            pixels = picture[y[on] + step, (x[on] + step // 4) % size]
            picture[y[on] + step, (x[on] + step // 4) % size] = pixels + strength * (235 - pixels)
    grain = 1.5 + 4 * (1 - light.daylight)
    noisy = picture + grain * noise.standard_normal(picture.shape, np.float32)
    return np.rint(noisy).clip(0, 255).astype(np.uint8)
