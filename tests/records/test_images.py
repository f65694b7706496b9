"""Pictures that a server half records: the grid pixel by pixel, the files, and TensorBoard."""

from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import raysim
from raysim.api import Delta, Method, Server, ServerHalf
from raysim.api.pictures import Picture
from raysim.engine.events import RoundDone
from raysim.records.images import count_columns, draw_grid
from raysim.system.errors import WrongResult


def picture(images: object, *captions: str) -> Picture:
    return Picture(np.asarray(images, dtype=np.uint8), captions or None)


def test_two_images_lie_side_by_side_with_a_gap_of_two_white_pixels() -> None:
    """A red and a green pixel [1, 2], and a grey and a black one. The longer side, 2, is enlarged 96 / 2 = 48 times."""
    colored = [[[255, 0]], [[0, 128]], [[0, 0]]]
    drawn = draw_grid(picture([colored, [[[7, 0]]] * 3]))
    red, green, grey, black, white = (255, 0, 0), (0, 128, 0), (7, 7, 7), (0, 0, 0), (255, 255, 255)
    row = [red] * 48 + [green] * 48 + [white] * 2 + [grey] * 48 + [black] * 48
    assert drawn.dtype == np.uint8
    assert drawn.tolist() == [[list(pixel) for pixel in row]] * 48


def test_rows_follow_from_above_and_what_is_left_is_white() -> None:
    """Five images, as large as images are enlarged to, need 3 columns and 2 rows: the last cell is white."""
    grey = np.full((5, 1, 96, 96), [[[[10]]], [[[20]]], [[[30]]], [[[40]]], [[[50]]]])
    drawn = draw_grid(picture(grey))
    assert drawn.shape == (2 * 96 + 2, 3 * 96 + 2 * 2, 3)
    corners = [[drawn[y, x, 0] for x in (0, 95, 96, 97, 98, 193, 196, 291)] for y in (0, 95, 96, 97, 98, 193)]
    first, second = [10, 10, 255, 255, 20, 20, 30, 30], [40, 40, 255, 255, 50, 50, 255, 255]
    assert corners == [first, first, [255] * 8, [255] * 8, second, second]


def test_large_images_stay_as_they_are() -> None:
    pixels = np.arange(2 * 97 * 3).reshape(1, 1, 2, 291) % 256
    assert draw_grid(picture(pixels))[..., 1].tolist() == pixels[0, 0].tolist()


def test_columns_fill_the_rows_if_they_can() -> None:
    """Of 7 = 7 x 1 images the rows would be too long, more than 2 sqrt(7) = 5.3, so it is sqrt(7), rounded up."""
    columns = {1: 1, 2: 2, 3: 3, 4: 2, 5: 3, 6: 3, 7: 3, 8: 4, 10: 5, 20: 5, 50: 10, 100: 10, 256: 16}
    assert {count: count_columns(count) for count in columns} == columns


def test_captions_are_black_on_white_below_their_images() -> None:
    """Each image, 96 high, has 14 rows for its caption below it; what is too long does not reach the next."""
    dark = np.zeros((2, 1, 96, 96))
    drawn = draw_grid(picture(dark, "W" * 99, ""))[..., 0]
    assert drawn.shape == (96 + 14, 96 + 2 + 96)
    assert not drawn[:96, :96].any()
    assert drawn[96:, :96].min() < 64
    assert (drawn[96:, 96:] == 255).all()
    assert not np.array_equal(drawn, draw_grid(picture(dark, "M" * 99, ""))[..., 0])


@dataclass(frozen=True, kw_only=True)
class Sketches(Method):
    """Records a picture in each second round, of `side` pixels: the round's number, and a draw that is kept."""

    side: int = 2
    last: int = 4

    class Server(ServerHalf):
        """Draws."""

        method: "Sketches"

        def __init__(self, name: str, knobs: Method) -> None:
            super().__init__(name, knobs)
            self.drawn = torch.zeros(1, 1, 1, 1)

        def update(self, server: Server, delta: Delta, reply: object) -> Delta:
            """Record the pictures."""
            with server.rng_scope(self.name):
                self.drawn = (self.drawn + torch.rand(1, 1, 1, 1)) / 2
            if server.round % 2 == 0 and server.round <= self.method.last:
                side = self.method.side
                server.record_image("number", torch.full((1, 1, side, side), server.round, dtype=torch.uint8))
                server.record_image("kept", self.drawn.expand(2, 3, side, side), ["a", "b"])
            return delta


SKETCHES = f"{__name__}:Sketches"
Tiny = Callable[..., Any]


def files(out: Path) -> dict[str, bytes]:
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*.png")}


@pytest.fixture(scope="module")
def whole(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run of 4 rounds."""
    out = tmp_path_factory.mktemp("whole") / "run"
    raysim.run(tiny(methods={SKETCHES: {}}, logging__tensorboard=True), out=out, local=True)
    return out


def test_a_picture_is_a_file_of_its_round(whole: Path) -> None:
    assert sorted(files(whole)) == [f"images/round_0000{n}/{name}.png" for n in (2, 4) for name in ("kept", "number")]
    with Image.open(whole / "images/round_00004/number.png") as png:
        assert np.array_equal(np.asarray(png), np.full((96, 96, 3), 4))


def test_tensorboard_has_it_at_its_round(whole: Path) -> None:
    shown = EventAccumulator(str(whole), size_guidance={"images": 0}).Reload()
    assert {"images/number", "images/kept"} < {*shown.Tags()["images"]}
    for name in ("number", "kept"):
        found = shown.Images(f"images/{name}")
        assert [event.step for event in found] == [2, 4]
        with (
            Image.open(BytesIO(found[1].encoded_image_string)) as png,
            Image.open(whole / f"images/round_00004/{name}.png") as file,
        ):
            assert np.array_equal(np.asarray(png), np.asarray(file))


def test_nothing_of_it_is_in_the_rounds_lines(whole: Path) -> None:
    assert "pictures" not in (whole / "rounds.jsonl").read_text()


def test_without_a_picture_there_is_no_folder(tiny: Tiny, tmp_path: Path) -> None:
    raysim.run(tiny(methods={SKETCHES: {"last": 0}}, logging__tensorboard=False), out=tmp_path / "run", local=True)
    assert not (tmp_path / "run" / "images").exists()


class _Power(Exception):
    """It fails."""


class _Outage:
    """Ends a run after round 4 as if the power had failed; the newest checkpoint is of round 2."""

    def take(self, event: object) -> None:
        if isinstance(event, RoundDone) and event.round == 4:
            raise _Power

    def say(self, text: str) -> None:
        """Nothing."""


def test_a_run_that_is_resumed_has_the_files_of_a_whole_one(whole: Path, tiny: Tiny, tmp_path: Path) -> None:
    """The picture of a later round is deleted, one that is not raysim's stays."""
    out = tmp_path / "run"
    overrides = {"checkpoint.every_rounds": 2}
    with pytest.raises(_Power):
        raysim.run(
            tiny(methods={SKETCHES: {}}, logging__tensorboard=True), overrides, out=out, local=True, display=_Outage()
        )
    (out / "summary.json").unlink()
    assert (out / "images" / "round_00004" / "kept.png").exists()
    for name in ("round_00003", "round_of_mine"):
        (out / "images" / name).mkdir()
        (out / "images" / name / "old.png").write_bytes(b"old")
    raysim.run(None, out=out, local=True, resume=True, trust=True)
    assert files(out) == {**files(whole), "images/round_of_mine/old.png": b"old"}


def test_a_wrong_picture_ends_the_run_in_one_line_with_its_round(tiny: Tiny, tmp_path: Path) -> None:
    with pytest.raises(
        WrongResult, match=r"^server.record_image\('number'\): found shape \[1, 1, 0, 0\], .*, round 2$"
    ):
        raysim.run(tiny(methods={SKETCHES: {"side": 0}}), out=tmp_path / "run", local=True)
