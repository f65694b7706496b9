"""The drawn streets: the same frames each time, boxes of visible pixels, places by hand, and vehicles that differ."""

import hashlib
import os
from collections.abc import Callable
from math import pi
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raysim.data.detection import drawing
from raysim.data.detection.drawing import draw_frame, light_of
from raysim.data.detection.driving import DRAWING, driving
from raysim.data.detection.streets import CAR, PEDESTRIAN, RAIL, TRUCK, Things, hashed, route
from raysim.data.loading import check_dataset
from raysim.objectives.boxes import check_boxes
from raysim.system.checksums import checksum_path

SMALL = {"vehicles": 2, "frames": 3, "tests": 2, "seconds": 4.0, "size": 64}


NOWHERE = Path("/proc/none")  # cannot be written, so frames are drawn anew


def make(root: Path = NOWHERE, **keys: Any) -> Any:
    return check_dataset(driving(root, False, **{**SMALL, **keys}), "driving")


def things(*rows: tuple[int, float, float, float]) -> Things:
    """Things of these kinds, at x, z, in these directions."""
    kind, x, z, direction = (np.array(column) for column in zip(*rows, strict=True))
    none = np.zeros(len(kind))
    return Things(kind, x, z, direction, none + 0.5, none, none, none)


def draw(scene: Things, weather: Any = "clear", hour: float = 12.0, size: int = 256) -> tuple[Any, list[list[float]]]:
    noise = np.random.default_rng(0)
    return draw_frame(scene, (0.0, 0.0, 0.0), "town", light_of(hour, weather), (size, 0.012), noise)


def test_the_frames_are_a_function_of_the_keys() -> None:
    one, same, other = make(), make(), make(seed=1)
    assert (one.train.x == same.train.x).all()
    assert (one.train.y == same.train.y).all()
    assert (one.train.x != other.train.x).mean() > 0.3
    assert one.train.x.shape == (6, 3, 64, 64)
    assert one.train.clients.tolist() == [0, 0, 0, 1, 1, 1]
    assert one.train.columns["second"].tolist() == [0, 4, 8] * 2
    assert one.names == ("car", "truck", "pedestrian", "cyclist")
    assert check_boxes(one.train.y, 4) is None
    assert (one.train.x[:3] != one.train.x[3:]).mean() > 0.3  # routes differ, and so do those of tests
    assert (one.train.x[:2] != one.test.x[:2]).mean() > 0.3


def test_these_frames_have_this_hash() -> None:
    """If this fails, raise DRAWING in driving.py, so that files of earlier frames are not read, and renew the hash."""
    frames = make(areas=["town", "highway"], weather="rain", hours=(18.0, 23.0), frames=2)
    boxes = frames.train.y.round(4)  # functions such as sin may differ in the last bit
    assert hashlib.sha256(boxes.tobytes()).hexdigest()[:16] == "1a0f158fc546a3cd"
    assert DRAWING == 1


def test_frames_are_drawn_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[int, int]] = []
    draw_one: Callable[..., Any] = drawing.draw_frame
    monkeypatch.setattr("raysim.data.detection.driving.draw_frame", lambda *a: drawn.append(a[4]) or draw_one(*a))
    first, again = make(tmp_path), make(tmp_path)
    assert len(drawn) == 2 * (3 + 2)
    for one, other in ((first.train, again.train), (first.test, again.test)):
        assert (one.x == other.x).all()
        assert (one.y == other.y).all()
        assert {name: values.tolist() for name, values in one.columns.items()} == {
            name: values.tolist() for name, values in other.columns.items()
        }
    assert (first.train.x == make().train.x).all()
    drawn.clear()
    for keys in ({"seed": 1}, {"weather": "fog"}, {"hours": (20.0, 21.0)}, {"seconds": 3.0}, {"smallest": 0.2}):
        assert make(tmp_path, **keys).train.y.shape == first.train.y.shape
    assert len(drawn) == 5 * 2 * (3 + 2)


@pytest.mark.parametrize("content", [b"", b"rubbish", b"PK\x03\x04 half a file"])
def test_a_file_that_cannot_be_read_is_written_again(tmp_path: Path, content: bytes) -> None:
    frames = make(tmp_path)
    for path in (tmp_path / "driving").glob("*.npz"):
        path.write_bytes(content if content else path.read_bytes()[:-40])
    assert (make(tmp_path).train.x == frames.train.x).all()
    assert all(path.stat().st_size > 1000 for path in (tmp_path / "driving").glob("*.npz"))


def test_weather_and_hours_change_pixels_and_no_boxes() -> None:
    clear = make()
    darkness = make(hours=(23.0, 23.0))
    for other in (make(weather="rain"), make(weather="fog"), make(weather="snow"), darkness):
        assert (other.train.y == clear.train.y).all()
        assert (other.train.x != clear.train.x).mean() > 0.5
    assert darkness.train.x.mean() < 0.4 * clear.train.x.mean()
    drive = make(hours=(12.0, 23.0), frames=4)
    assert drive.train.columns["hour"][:4] == pytest.approx([12, 12 + 11 / 3, 12 + 22 / 3, 23])
    assert drive.train.x[0].mean() > 2 * drive.train.x[3].mean()


def test_areas_are_of_the_vehicles_in_turn() -> None:
    mixed, highway, town = make(areas=["town", "highway"]), make(areas=["highway"]), make()
    assert (mixed.train.x[:3] == town.train.x[:3]).all()
    assert (mixed.train.x[3:] == highway.train.x[3:]).all()
    assert not (highway.train.y[..., 0] >= PEDESTRIAN).any()


def test_a_box_is_where_the_pinhole_puts_the_object() -> None:
    """A car 4.3 m long, 1.8 m wide and 1.48 m high, 20 m ahead and 2 m to the right, seen from behind at 1.55 m.

    The focal length is 0.8 of the side. Its body's rear is 17.85 m ahead, and ends at 2.9 m to the right: x = 0.5 + 0.8
    * 2.9 / 17.85 = 0.630. The left front wheel begins at 2 - 0.945 m, 20 + 1.7 m ahead: 0.5 + 0.8 * 1.055 / 21.7 =
    0.5389. The ground at the rear wheels' rear, 20 - 1.7 m ahead, is at 0.46 + 0.8 * 1.55 / 18.3 = 0.5278. The cabin's
    top, at 1.48 m, is highest at its front, 20 - 0.25 + 1.1 m ahead: 0.46 + 0.8 * 0.07 / 20.85 = 0.4627.
    """
    _, rows = draw(things((CAR, 2.0, 20.0, 0.0)), size=512)
    ((label, x, y, w, h),) = rows
    assert label == 0
    assert [x - w / 2, y - h / 2, x + w / 2, y + h / 2] == pytest.approx([0.5389, 0.4627, 0.630, 0.5278], abs=0.003)


def test_what_is_hidden_has_no_box() -> None:
    """A pedestrian behind a truck has no box; one next to it has. What is too small or behind the camera has none."""
    behind, beside = (PEDESTRIAN, 0.0, 22.0, 0.0), (PEDESTRIAN, 4.0, 22.0, 0.0)
    truck = (TRUCK, 0.0, 12.0, 0.0)
    assert [row[0] for row in draw(things(behind))[1]] == [2]
    assert [row[0] for row in draw(things(truck, behind))[1]] == [1]
    assert [row[0] for row in draw(things(truck, beside))[1]] == [1, 2]
    assert draw(things((PEDESTRIAN, 0.0, 88.0, 0.0), (CAR, 0.0, -8.0, 0.0)))[1] == []
    assert draw(things((RAIL, 3.0, 20.0, 0.0)))[1] == []  # scenery


def test_a_box_has_its_objects_pixels() -> None:
    """Without an object, the picture differs only inside its box, which ends at the object's smoothed edges."""
    scene = things((CAR, -2.0, 15.0, pi), (TRUCK, 3.0, 30.0, 0.0))
    without = things((TRUCK, 3.0, 30.0, 0.0))
    (with_car, rows), (empty, _) = draw(scene), draw(without)
    changed = np.abs(with_car.astype(int) - empty).max(0) > 0
    x, y, w, h = (256 * part for part in rows[0][1:])
    ys, xs = np.nonzero(changed)
    wanted = [x - w / 2, y - h / 2, x + w / 2, y + h / 2]
    assert [xs.min(), ys.min(), xs.max() + 1, ys.max() + 1] == pytest.approx(wanted, abs=1.01)


def test_a_route_keeps_to_its_lane() -> None:
    """From 9 m after the crossing of column 40 straight on for 46 m, 1.9 m right of the middle; no jump on the way."""
    times = np.arange(0, 120, 0.1).tolist()
    poses = np.array(route(3, 1, times))
    assert poses[0] == pytest.approx([40 * 64 + 1.9, 9.0, 0.0])
    assert poses[70] == pytest.approx([40 * 64 + 1.9, 9 + 7 * 6.5, 0.0])
    steps = np.hypot(*np.diff(poses[:, :2], axis=0).T)
    assert steps == pytest.approx(0.65, rel=0.02)
    assert np.abs(np.diff(np.unwrap(poses[:, 2]))).max() < 0.65 / 6.9
    assert {round(angle / (pi / 2)) % 4 for angle in poses[:, 2]} >= {0, 1}
    across = np.abs(poses[:, :2] / 64 - np.round(poses[:, :2] / 64)) * 64
    assert across.min(1).max() < 5  # always on a street


def test_light() -> None:
    assert [light_of(hour, "clear").daylight for hour in (0, 6.5, 12, 19, 23, 36)] == [0, 0.5, 1, 0.5, 0, 1]
    assert light_of(12, "fog").sight < light_of(12, "rain").sight < light_of(12, "clear").sight


def test_hashes_are_uniform_and_of_their_arguments() -> None:
    drawn = hashed(1, np.arange(1000)[:, None], np.arange(-5, 5))
    assert abs(drawn.mean() - 0.5) < 0.01
    assert len(np.unique(drawn)) == drawn.size
    assert drawn[7, 3] == hashed(1, 7, -2) != hashed(2, 7, -2)


def test_windows_shine_at_night() -> None:
    """Of a town's frame alone: with lit windows it has bright pixels, though the light is gone."""
    night = make(hours=(23.0, 23.0), size=128).train.x
    assert night.max() > 200
    assert np.median(night) < 40
    assert drawing.light_of(23, "clear").tint.max() < 0.25


@pytest.mark.parametrize(
    "kind",
    ["another size", "other dtypes", "another vehicle's", "a missing key", "half", "a pipe", "without a checksum"],
)
def test_files_of_other_frames_are_not_used(kind: str, tmp_path: Path) -> None:
    """They are drawn again, once, with a warning. Of the two vehicles' files with 3 frames, one is changed."""
    expected = make(tmp_path, size=32)
    path, other = (
        path for path in sorted((tmp_path / "driving").glob("*.npz")) if len(np.load(path)["x"]) == SMALL["frames"]
    )
    arrays, content = dict(np.load(path)), path.read_bytes()
    path.unlink()
    if kind == "another size":
        np.savez_compressed(path, **arrays | {"x": arrays["x"][..., :8, :8]})
    elif kind == "other dtypes":
        np.savez_compressed(path, **arrays | {"x": arrays["x"].astype(np.float64)})
    elif kind == "a missing key":
        np.savez_compressed(path, **{name: arrays[name] for name in ("x", "y", "second")})
    elif kind == "another vehicle's":  # with its own checksum
        path.write_bytes(other.read_bytes())
        checksum_path(path).write_bytes(checksum_path(other).read_bytes())
    elif kind == "without a checksum":  # as an older raysim wrote it
        path.write_bytes(content)
        checksum_path(path).unlink()
    elif kind == "half":
        path.write_bytes(content[: len(content) // 2])
    else:
        os.mkfifo(path)
    found = make(tmp_path, size=32)
    damaged = (f"dataset: {path} was not as it was written, so its frames were drawn again",)
    old = (f"{path} had no checksum, so its frames were drawn again",)
    assert (found.doubts, found.notes) == (((), old) if kind == "without a checksum" else (damaged, ()))
    assert all((a == b).all() for a, b in ((found.train.x, expected.train.x), (found.train.y, expected.train.y)))
    assert make(tmp_path, size=32).doubts == ()
