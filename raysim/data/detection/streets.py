"""The world of the dataset driving: a town of blocks and a highway, their traffic, and the vehicles' routes.

Everything that is random follows from a hash of the seed and of what it is about, such as the third car of a street. So
a place looks the same whenever a vehicle passes, and nothing is stored. Lengths are meters, times are seconds. A
direction is an angle from +z towards +x; positions are (x, z) on the ground.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import cos, pi, sin
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[Any]
"""An array of float64, or of float32 for pictures."""
Ints = npt.NDArray[Any]
"""An array of int64."""

CAR, TRUCK, PEDESTRIAN, CYCLIST, BUILDING, TREE, RAIL = range(7)
CLASSES = ("car", "truck", "pedestrian", "cyclist")

BLOCK = 64.0  # from street to street
ROAD, WALK, FRONT = 5.0, 8.0, 9.5  # from a street's middle to the curb, to the sidewalk's end, to the buildings
LANE = 1.9
SIGHT = 90.0
TURN = 9.0  # from a crossing's middle to where a turn begins and ends
SPEED = {"town": 6.5, "highway": 24.0}
LANES = (-3.6, 0.0, 3.6)  # of the highway; the vehicle is on the middle one
OTHER_SIDE = -15.0  # the middle of the oncoming lanes
EDGES = (-5.8, 5.8)  # of the lanes of each side
MEDIAN = -7.5
CLOSE = 4.5  # nearer to the camera nothing moves


@dataclass(frozen=True)
class Things:
    """Objects and scenery: a row each of all arrays."""

    kind: Ints
    x: Floats
    z: Floats
    direction: Floats
    look: Floats
    """A number from 0 to 1 for its color and its size."""
    width: Floats
    """Of buildings and rails, along their two sides."""
    length: Floats
    height: Floats


def hashed(seed: int, *about: Ints | int) -> Floats:
    """Return numbers from [0, 1) for integers of shapes that broadcast: splitmix64's finalizer of each in turn."""
    mixed = np.array(seed, np.uint64)
    with np.errstate(over="ignore"):
        for part in about:
            mixed = (mixed ^ np.asarray(part).astype(np.int64).view(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
            for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
                mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
            mixed = mixed ^ (mixed >> np.uint64(31))
    return (mixed >> np.uint64(11)).astype(np.float64) / 2**53


def route(seed: int, vehicle: int, seconds: Sequence[float]) -> list[tuple[float, float, float]]:
    """Return a vehicle's (x, z, direction) in the town at these ascending times: right lanes, turns drawn by `seed`.

    A leg goes from the middle of a block to that of the next one, straight on or by a curve around the crossing.
    """
    corner = (40 * vehicle, 0)
    heading, driven, poses, leg = 0, 0.0, list[tuple[float, float, float]](), 0
    straight = BLOCK - 2 * TURN
    for second in seconds:
        way = second * SPEED["town"]
        while True:
            drawn = float(hashed(seed, 1, vehicle, leg))
            turn = 0 if drawn < 0.4 else 1 if drawn < 0.7 else -1  # straight on, right, left
            radius = TURN - LANE * turn
            curve = 2 * TURN if turn == 0 else radius * pi / 2
            if way < driven + straight + curve:
                break
            driven += straight + curve
            corner = _ahead(corner, heading)
            heading, leg = (heading + turn) % 4, leg + 1
        poses.append(_pose(corner, heading, way - driven, straight, turn, radius))
    return poses


def _ahead(corner: tuple[int, int], heading: int) -> tuple[int, int]:
    return corner[0] + (0, 1, 0, -1)[heading], corner[1] + (1, 0, -1, 0)[heading]


def _pose(
    corner: tuple[int, int], heading: int, way: float, straight: float, turn: int, radius: float
) -> tuple[float, float, float]:
    """Return the pose `way` meters after the end of the turn at a crossing."""
    angle = heading * pi / 2
    along, aside, bend = TURN + min(way, straight), LANE, 0.0
    rest = way - straight
    if rest > 0 and not turn:
        along += rest
    elif rest > 0:
        bend = rest / radius
        along += radius * sin(bend)
        aside += turn * radius * (1 - cos(bend))
    x = corner[0] * BLOCK + along * sin(angle) + aside * cos(angle)
    z = corner[1] * BLOCK + along * cos(angle) - aside * sin(angle)
    return x, z, angle + turn * bend


def town(seed: int, x: float, z: float, second: float) -> Things:
    """Return what is around a place in the town."""
    parts = [_buildings(seed, x, z)]
    for family, across, along in ((0, x, z), (1, z, x)):
        streets = np.arange(round((across - SIGHT) / BLOCK), round((across + SIGHT) / BLOCK) + 1)
        for what, kind, gap, chance, side, speed in (
            (2, CAR, 8.0, 0.3, 4.1, 0.0),
            (3, TREE, 13.0, 0.5, 7.3, 0.0),
            (4, CAR, 24.0, 0.6, LANE, 8.5),
            (5, CYCLIST, 55.0, 0.6, 2.9, 4.0),
            (6, PEDESTRIAN, 12.0, 0.5, 6.4, 1.2),
        ):
            parts.append(_along(seed, family, streets, along, second, what, kind, gap, chance, side, speed))
    return _join(parts)


def _along(
    seed: int,
    family: int,
    streets: Ints,
    along: float,
    second: float,
    what: int,
    kind: int,
    gap: float,
    chance: float,
    side: float,
    speed: float,
) -> Things:
    """Return what stands or moves along streets, on both sides, `gap` meters apart with this chance."""
    ways = np.array([1, -1])
    street, way = (part.ravel() for part in np.meshgrid(streets, ways, indexing="ij"))
    shift = way * speed * second
    first = np.floor((along - SIGHT - shift) / gap)
    number = (first[:, None] + np.arange(int(2 * SIGHT / gap) + 1)).astype(np.int64)
    street, way, shift = street[:, None], way[:, None], shift[:, None]
    about = (what, family, street, way, number)
    place = (number + 0.6 * hashed(seed, *about, 1)) * gap + shift
    there = hashed(seed, *about, 0) < chance
    if speed == 0:  # crossings are free
        there &= np.abs(place - BLOCK * np.round(place / BLOCK)) > ROAD + 6
    look = hashed(seed, *about, 2)
    kinds = np.where((kind == CAR) & (speed > 0) & (hashed(seed, *about, 3) < 0.22), TRUCK, kind)
    offset = way * side
    across = street * BLOCK + (offset if family == 0 else -offset)
    xs, zs = (across, place) if family == 0 else (place, across)
    turned = np.where(way > 0, 0.0, pi) + (pi / 2 if family else 0.0)
    return _things(*(np.broadcast_to(part, place.shape)[there] for part in (kinds, xs, zs, turned, look)))


def _buildings(seed: int, x: float, z: float) -> Things:
    """Return the buildings, four in each block."""
    near = [np.arange(round((at - SIGHT) / BLOCK), round((at + SIGHT) / BLOCK) + 1) for at in (x, z)]
    column, row, quarter = (part.ravel() for part in np.meshgrid(*near, np.arange(4), indexing="ij"))
    side = (BLOCK - 2 * FRONT) / 2
    shape = [hashed(seed, 7, column, row, quarter, part) for part in range(4)]
    width, length = (side - 1.0 - 4 * part for part in shape[:2])
    # a house touches the sidewalk at its block's corner, and its garden is inside
    left, near_side = quarter % 2 == 0, quarter // 2 == 0
    x0 = column * BLOCK + np.where(left, FRONT + width / 2, BLOCK - FRONT - width / 2)
    z0 = row * BLOCK + np.where(near_side, FRONT + length / 2, BLOCK - FRONT - length / 2)
    kinds, still = np.full(len(column), BUILDING), np.zeros(len(column))
    return Things(kinds, x0, z0, still, shape[3], width, length, 6 + 16 * shape[2] ** 2)


def highway(seed: int, z: float, second: float) -> Things:
    """Return what is around a place on the highway: the vehicle is at x = 0."""
    parts = []
    for what, lanes, speed in ((11, LANES, (21.0, 25.5, 30.0)), (12, LANES, (-22.0, -25.0, -29.0))):
        for lane, (offset, own) in enumerate(zip(lanes, speed, strict=True)):
            x = offset if own > 0 else OTHER_SIDE + offset
            parts.append(_lane(seed, z, second, (what, lane), (x, own), 32.0, 0.55, 0.5 - 0.2 * lane))
    for what, x in ((13, 12.0), (14, 19.0), (15, -27.0), (16, -34.0)):
        parts.append(_lane(seed, z, second, (what, 0), (x, 0.0), 11.0, 0.55, 0.0, TREE))
    rails = np.arange(np.floor((z - 5) / 10), np.floor((z + SIGHT) / 10)) * 10 + 5
    for x in (MEDIAN, EDGES[1] + 1.5, OTHER_SIDE + EDGES[0] - 1.5):
        ones = np.ones(len(rails))
        parts.append(
            Things(np.full(len(rails), RAIL), ones * x, rails, 0 * ones, 0 * ones, 0.3 * ones, 9.6 * ones, 0.9 * ones)
        )
    return _join(parts)


def _lane(
    seed: int,
    z: float,
    second: float,
    name: tuple[int, int],
    where: tuple[float, float],
    gap: float,
    chance: float,
    trucks: float,
    kind: int = CAR,
) -> Things:
    """Return what stands or moves at x, `gap` meters apart with this chance. A part of the cars are trucks."""
    x, speed = where
    number = (np.floor((z - 10 - speed * second) / gap) + np.arange(int((SIGHT + 20) / gap) + 2)).astype(np.int64)
    there = hashed(seed, *name, number, 0) < chance
    place = (number + 0.6 * hashed(seed, *name, number, 1)) * gap + speed * second
    kinds = np.where(hashed(seed, *name, number, 3) < trucks, TRUCK, kind)
    turned = np.full(len(number), 0.0 if speed >= 0 else pi)
    wide = np.full(len(number), x) + (3 * hashed(seed, *name, number, 4) if kind == TREE else 0)
    return _things(*(part[there] for part in (kinds, wide, place, turned, hashed(seed, *name, number, 2))))


def _things(kind: Ints, x: Floats, z: Floats, direction: Floats, look: Floats) -> Things:
    none = np.zeros(len(kind))
    return Things(
        kind.astype(np.int64), x.astype(float), z.astype(float), direction.astype(float), look, none, none, none
    )


def _join(parts: Sequence[Things]) -> Things:
    return Things(*(np.concatenate([getattr(part, name) for part in parts]) for name in Things.__dataclass_fields__))


def seen_from(things: Things, x: float, z: float, direction: float) -> tuple[Things, Floats, Floats, Floats]:
    """Return the things in front of a camera, with their places (right, ahead) and directions as the camera sees them.

    What moves and is nearer than the camera's own vehicle is left out.
    """
    dx, dz = things.x - x, things.z - z
    right, ahead = dx * cos(direction) - dz * sin(direction), dx * sin(direction) + dz * cos(direction)
    own = (things.kind < BUILDING) & (np.hypot(dx, dz) < CLOSE)
    reach = np.maximum(np.hypot(things.width, things.length), 4.0)
    kept = (ahead + reach > 0.5) & (np.abs(right) < 0.9 * ahead + 2 * reach) & (np.hypot(dx, dz) < SIGHT) & ~own
    chosen = Things(*(getattr(things, name)[kept] for name in Things.__dataclass_fields__))
    return chosen, right[kept], ahead[kept], chosen.direction - direction
