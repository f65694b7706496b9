"""Frames of vehicles' cameras in a drawn town and on a highway, with weather and time of day: no download."""

from __future__ import annotations

import hashlib
import io
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import numpy as np
from annotated_types import Ge, Gt, Le, Lt, MinLen, doc

from raysim.data.dataset import Array, Dataset, Split
from raysim.data.detection.drawing import Area, Light, Weather, draw_frame, light_of
from raysim.data.detection.streets import CLASSES, SPEED, highway, route, town
from raysim.objectives.boxes import pad_boxes
from raysim.system.capacity import require_memory
from raysim.system.checksums import is_as_written, note_unfit, write_checksum
from raysim.system.files import read_whole, write_whole

MOST = 16  # boxes of a frame, the nearest
TESTS = 1000  # the routes of tests are those of other vehicles
DRAWING = 1  # raised when the same keys give other frames; a test holds their hash
FOLDER = "driving"  # below the folder of the datasets

Hour = Annotated[float, Ge(0), Le(48)]


def driving(
    root: Path,
    download: bool,
    *,
    vehicles: Annotated[int, Ge(1), Le(1000), doc("how many vehicles drive")] = 2,
    frames: Annotated[int, Ge(1), doc("training frames of each vehicle")] = 200,
    tests: Annotated[int, Ge(1), doc("test frames of each vehicle, on another route")] = 40,
    seconds: Annotated[float, Ge(0.05), Le(60), doc("the time between two frames")] = 1.0,
    size: Annotated[int, Ge(32), Le(1024), doc("height and width of a frame")] = 128,
    smallest: Annotated[
        float, Gt(0), Lt(1), doc("the square root of the smallest box's area, as a fraction of the frame's side")
    ] = 0.06,
    areas: Annotated[tuple[Area, ...], MinLen(1), doc("town or highway, of the vehicles in turn")] = ("town",),
    weather: Annotated[Weather, doc("clear, rain, fog or snow")] = "clear",
    hours: Annotated[tuple[Hour, Hour], doc("the time of day when a drive begins and ends; 30 is 6 the next day")] = (
        12.0,
        12.0,
    ),
    seed: Annotated[int, Ge(0), doc("the seed of town, routes and traffic")] = 0,
) -> Dataset:
    """A camera's frames of cars, trucks, pedestrians and cyclists, RGB, drawn from `seed`; for objective detection.

    Each vehicle drives through a town of blocks, on a route drawn from `seed`, or on a highway. A frame shows what is
    around it at that second. Boxes are those of an object's visible pixels. An object has none if more than 70% of its
    outline is hidden, or if its box is smaller than `smallest`. A frame keeps its 16 nearest boxes. The vehicles are
    the samples' client ids, for partition=natural. The columns are vehicle, second and hour. Frames are drawn once and
    kept in a file below `root`, if it can be written.

    Raises:
        ConfigError: the frames do not fit into memory.
    """
    require_memory(
        vehicles * max(frames, tests) * 3 * size * size, "dataset.frames", f"{frames} for {vehicles} vehicles"
    )

    notes: list[str] = []
    doubts: list[str] = []

    def drive(vehicle: int, count: int, training: bool) -> dict[str, Array]:
        area = areas[vehicle % len(areas)]
        number = vehicle if training else TESTS + vehicle
        keys = (number, count, seconds, size, smallest, area, weather, tuple(hours), seed)
        name = hashlib.blake2b(repr((DRAWING, keys)).encode(), digest_size=16).hexdigest()
        path = root / FOLDER / f"{name}.npz"
        if (arrays := read_kept(path)) is None:
            note_unfit(path, "dataset", "frames were drawn", notes, doubts)
            arrays = draw(number, count, area)
            keep(path, arrays)
        return arrays

    def draw(number: int, count: int, area: Area) -> dict[str, Array]:
        times = [seconds * frame for frame in range(count)]
        hour = np.linspace(*hours, count)
        noise = np.random.default_rng([seed, number, ("town", "highway").index(area)])
        x, rows = np.empty((count, 3, size, size), np.uint8), []
        poses = route(seed, number, times) if area == "town" else [(0.0, SPEED[area] * t, 0.0) for t in times]
        for frame, (time, pose) in enumerate(zip(times, poses, strict=True)):
            light: Light = light_of(float(hour[frame]), weather)
            around = (
                town(seed, pose[0], pose[1], time) if area == "town" else highway(seed + 101 * number, pose[1], time)
            )
            x[frame], boxes = draw_frame(around, pose, area, light, (size, smallest), noise)
            rows.append(boxes[:MOST])
        return {"x": x, "y": pad_boxes(rows, MOST), "second": np.array(times), "hour": hour}

    def make_split(count: int, training: bool) -> Split:
        drives = [drive(vehicle, count, training) for vehicle in range(vehicles)]
        x, y, second, hour = (np.concatenate([one[key] for one in drives]) for key in ("x", "y", "second", "hour"))
        vehicle = np.repeat(np.arange(vehicles), count)
        columns = {"vehicle": vehicle, "second": second, "hour": hour}
        return Split(x, y, vehicle if training else None, columns)

    train, test = make_split(frames, True), make_split(tests, False)
    return Dataset(train, test, len(CLASSES), CLASSES, notes=tuple(notes), doubts=tuple(doubts))


def read_kept(path: Path) -> dict[str, Array] | None:
    """Return the arrays of a regular file if its content is what `keep` wrote under this name, else None."""
    try:
        content = read_whole(path)
    except OSError:
        return None
    if not is_as_written(path, hashlib.sha256(content).hexdigest()):
        return None
    with np.load(io.BytesIO(content)) as file:
        return dict(file)


def keep(path: Path, arrays: dict[str, Array]) -> None:
    """Write arrays and their checksum, if they can be written."""
    content = io.BytesIO()
    np.savez_compressed(content, allow_pickle=False, **arrays)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content.getvalue())
        write_checksum(path, hashlib.sha256(content.getvalue()).hexdigest())
