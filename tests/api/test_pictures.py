"""server.record_image: which values become which bytes, and what is refused in one line."""

from typing import Any

import numpy as np
import pytest
import torch

from raysim.api.pictures import make_picture
from raysim.system.errors import WrongResult

nan = float("nan")


def test_floats_from_0_to_1_become_the_nearest_bytes() -> None:
    """255 times 0.2 is 51, times 0.1 is 25.5 (to the even 26), times 0.001 is 0.255; 1.001 is nearest to 255."""
    images = torch.tensor([0.0, 1.0, 0.2, 0.1, 0.001, 1.001]).reshape(1, 1, 2, 3)
    for dtype in (torch.float32, torch.float64):
        made = make_picture("one", images.to(dtype), None)
        assert made.images.dtype == np.uint8
        assert made.images.tolist() == [[[[0, 255, 51], [26, 0, 255]]]]
        assert made.captions is None


def test_bytes_stay_and_later_changes_do_not_show() -> None:
    images = torch.tensor([0, 7, 255], dtype=torch.uint8).reshape(1, 3, 1, 1)
    made = make_picture("one", images, ["a caption"])
    images.zero_()
    assert made.images.ravel().tolist() == [0, 7, 255]
    assert made.captions == ("a caption",)


def test_a_gradient_is_no_obstacle() -> None:
    assert make_picture("one", torch.ones(1, 1, 1, 1, requires_grad=True), None).images.tolist() == [[[[255]]]]


SHAPE = r"allowed: \[n, channels, height, width\] with n up to 256 and 1 or 3 channels$"


@pytest.mark.parametrize(
    ("name", "images", "captions", "words"),
    [
        ("one", torch.zeros(1, 4, 4), None, r"found shape \[1, 4, 4\], " + SHAPE),
        ("one", torch.zeros(5, 2, 4, 4), None, r"found shape \[5, 2, 4, 4\], " + SHAPE),
        ("one", torch.zeros(0, 1, 4, 4), None, r"found shape \[0, 1, 4, 4\], " + SHAPE),
        ("one", torch.zeros(257, 1, 1, 1), None, r"found shape \[257, 1, 1, 1\], " + SHAPE),
        ("one", torch.zeros(1, 1, 2, 2).int(), None, r"found int32 \[1, 1, 2, 2\], allowed: a tensor of floats"),
        ("one", np.zeros((1, 1, 2, 2)), None, r"found ndarray, allowed: a tensor of floats from 0 to 1, or of uint8$"),
        ("one", torch.tensor([[[[-1.5, 2.25]]]]), None, r"found values from -1.5 to 2.25, allowed: 0 to 1; undo the"),
        ("one", torch.tensor([[[[0.5, nan]]]]), None, r"found values from nan to nan, allowed: 0 to 1"),
        ("one", torch.zeros(2, 1, 1, 1), ["a"], r"found 1 captions, allowed: one for each of the 2 images$"),
        (
            "../one",
            torch.zeros(1, 1, 1, 1),
            None,
            r"^server.record_image\('../one'\): found this name, allowed: a file",
        ),
        (3, torch.zeros(1, 1, 1, 1), None, r"^server.record_image\(3\): found this name, allowed: a file name of"),
    ],
)
def test_anything_else_is_refused(name: Any, images: Any, captions: list[str] | None, words: str) -> None:
    with pytest.raises(WrongResult, match=words):
        make_picture(name, images, captions)
