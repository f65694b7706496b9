"""The sizes of generated images: a first grid that is doubled until it has the image's size."""

import pytest

from raysim.algorithms.parts.image_sizes import UPSAMPLINGS, first_grid, unfit_shape


@pytest.mark.parametrize(
    ("size", "ups", "grid"),
    [
        (8, None, (2, 2)),
        (28, None, (7, 2)),
        (32, None, (8, 2)),
        (64, None, (8, 3)),
        (64, 2, (16, 2)),
        (28, 1, (14, 1)),
    ],
)
def test_a_grid_doubled_gives_the_image(size, ups, grid):
    """32: 8 x 2 x 2 (TARGET, MFCL); 64: 8 x 2^3 in MFCL's code for Tiny-ImageNet, 16 x 2^2 in TARGET's."""
    assert first_grid(size, size, ups) == grid
    assert grid[0] * 2 ** grid[1] == size


@pytest.mark.parametrize(("height", "width", "ups"), [(32, 28, None), (30, 30, None), (28, 28, 3), (224, 224, None)])
def test_other_sizes_are_refused_with_those_that_are_allowed(height, width, ups):
    with pytest.raises(ValueError, match=rf"found .*{height} x {width}.*, allowed: "):
        first_grid(height, width, ups)


def test_a_shape_without_a_generator_is_described_in_one_line():
    for size in UPSAMPLINGS:
        assert unfit_shape((1, size, size)) is None
        assert unfit_shape((3, size, size)) is None
    for shape in ((6,), (2, 8, 8), (1, 8, 9), (3, 224, 224), (1, 3, 32, 32)):
        words = unfit_shape(shape)
        assert str(shape) in words
        assert "allowed: 8 x 8, 28 x 28, 32 x 32 and 64 x 64 pixels, of 1 or 3 channels" in words
        assert "\n" not in words
