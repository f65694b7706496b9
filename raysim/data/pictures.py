"""One image file: its sizes without its pixels, and its pixels upright, opaque and of 8 bits."""

import io
import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Le, doc
from PIL import ExifTags, Image, UnidentifiedImageError

from raysim.config.block import Allowed
from raysim.data.dataset import Array
from raysim.system.errors import ConfigError, first_line

FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM")  # whatever the suffix; others start other programs
DAMAGE = (
    OSError,
    ValueError,
    SyntaxError,
    EOFError,
    MemoryError,
    LookupError,
    TypeError,
    AttributeError,
    OverflowError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)  # what Pillow raises

TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""EXIF's orientation -> what makes the stored pixels upright."""
BACK = {**TURNS, 6: Image.Transpose.ROTATE_90, 8: Image.Transpose.ROTATE_270}
"""EXIF's orientation -> what makes the upright pixels the stored ones."""
ON_ITS_SIDE = (5, 6, 7, 8)  # the orientations that swap width and height
METADATA = ("exif", "XML:com.adobe.xmp", "Raw profile type exif")  # where a PNG's orientation may be
LATE_METADATA = (b"eXIf", b"iTXt", b"tEXt", b"zTXt")  # the same, as chunks after the pixels


class TiffTags(IntEnum):
    """The tags of TIFF 6.0 that are read."""

    WIDTH, HEIGHT, BITS, COMPRESSION, PHOTOMETRIC, PLANAR = 256, 257, 258, 259, 262, 284


HEAD = 32  # bytes, which hold the bits of a PNG
DEPTHS = (8, 10, 12, 14, 16)
"""The numbers of bits that cameras and microscopes have."""

Byte = Annotated[int, Ge(0), Le(255)]
Background = Annotated[
    Literal["white", "black"] | tuple[Byte, Byte, Byte],
    Allowed("white, black or three whole numbers from 0 to 255, such as [0, 128, 255]"),
    doc("the color behind transparent pixels: a name, or red, green and blue"),
]
WHITE = (255, 255, 255)
COLORS = {"white": WHITE, "black": (0, 0, 0)}


@dataclass(frozen=True)
class ImageSizes:
    """An image's width and height in pixels: as its pixels are stored, and upright, as EXIF's orientation says."""

    stored: tuple[int, int]
    upright: tuple[int, int]


@dataclass(frozen=True, slots=True)  # one for each image
class EncodedImage:
    """An encoded image: its name for errors, and its file or its bytes."""

    name: str
    source: Path | bytes
    as_stored: bool = False
    """Whether it is not turned upright, since its annotations are about the stored pixels."""


@dataclass(frozen=True)
class Look:
    """How all images of a dataset become arrays: their height and width, gray or RGB, and the color behind them."""

    size: int
    grey: bool
    background: tuple[int, int, int]


@dataclass(frozen=True, slots=True)  # one for each image
class Findings:
    """What decoding an image met."""

    turned: bool
    blended: bool
    """Whether it has transparent pixels."""
    has_frames: bool
    """Whether it has more frames or pages than the first."""
    is_single: bool
    """Whether all of its pixels are equal."""
    largest: int | None
    """The largest value of an image of 16 bits, at most 255 too large for a color image; None for other images."""
    is_deep_color: bool
    """Whether it is a color image of 16 bits. Pillow reads the upper 8 of them."""


def read_sizes(path: Path) -> ImageSizes:
    """Return an image file's sizes. Its pixels are not decoded, except of a PNG with metadata after its pixels.

    Raises:
        ConfigError: the file cannot be read as an image.
    """
    with warnings.catch_warnings(action="ignore"), _opened(EncodedImage(str(path), path)) as (image, _):
        if image.format != "PNG" or any(key in image.info for key in METADATA) or _has_late_metadata(path):
            orientation = _orientation(image)
        else:
            orientation = 1  # asking Pillow would decode the pixels
        stored = _stored_size(image)
        return ImageSizes(stored, stored[::-1] if orientation in ON_ITS_SIDE else stored)


def decode(picture: EncodedImage, look: Look, bits: int | None) -> tuple[Array | None, Findings]:
    """Return an image as uint8 [1 or 3, size, size], resized by Pillow's bilinear filter, and what it met.

    Args:
        picture: the image.
        look: what it becomes.
        bits: how many bits its dataset's values have, if the image has 16 bits; None if that is not known yet. The
            array is then None for a gray image of 16 bits. Larger values become white.

    Raises:
        ConfigError: it cannot be read as an image, or has pixels of 32 bits: their largest value is unknown.
    """
    with _opened(picture) as (image, head):
        depth = _bits_of(image, head)
        _refuse_misread(image, depth)
        orientation = _orientation(image)
        has_frames = image.format in ("GIF", "TIFF", "WEBP", "PNG") and bool(getattr(image, "is_animated", False))
        image.load()
        is_gray = image.mode.startswith("I")  # Pillow's modes of 16 bits are all gray
        if image.mode == "F" or (image.mode == "I" and image.format not in ("PNG", "PPM")):
            raise ValueError(f"found pixels of 32 bits (mode {image.mode}), allowed: 8 or 16 bits")
        largest = None
        if depth == 16:
            largest = int(np.asarray(image).max()) if is_gray else _largest_color(image)
        if is_gray and bits is None:
            return None, Findings(False, False, has_frames, False, largest, False)
        opaque, is_blended = _blend(_to_8_bits(image, depth, bits or 16), look)
        turn = (BACK if picture.as_stored else TURNS).get(orientation)
        is_turned = _orientation(image) != orientation  # Pillow turns a TIFF when it loads it
        if turn is not None and is_turned == picture.as_stored:
            opaque = opaque.transpose(turn)
        pixels = np.asarray(opaque.resize((look.size, look.size), Image.Resampling.BILINEAR))
        is_single = bool((pixels == pixels[0, 0]).all()) and _is_single(opaque)
        is_upright = orientation in TURNS and not picture.as_stored
    found = Findings(is_upright, is_blended, has_frames, is_single, largest, depth == 16 and not is_gray)
    return pixels[None] if look.grey else pixels.transpose(2, 0, 1), found


@contextmanager
def _opened(picture: EncodedImage) -> Iterator[tuple[Image.Image, bytes]]:
    """Open an image. Yield it and its first bytes. What Pillow raises for damaged ones becomes a ConfigError."""
    source = picture.source
    try:
        # a stream: from a path, Pillow maps a TIFF into memory and scrambles one that EXIF turns
        with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as stream:
            head = stream.read(HEAD)
            stream.seek(0)
            with Image.open(stream, formats=FORMATS) as image:
                yield image, head
    except DAMAGE as error:
        reason = first_line(error)
        if isinstance(error, UnidentifiedImageError):
            reason = "cannot identify its format"  # Pillow names the stream
        problem = f"{picture.name} cannot be read as an image ({reason})"
        raise ConfigError(f"dataset.path: {problem}; replace or remove it") from error


def _orientation(image: Image.Image) -> int:
    """Return EXIF's orientation, 1 to 8; 1, for upright, if the image states none."""
    try:
        found = image.getexif().get(ExifTags.Base.Orientation, 1)
    except DAMAGE:  # viewers show such images as they are stored
        return 1
    return found if isinstance(found, int) and found in TURNS else 1


def _stored_size(image: Image.Image) -> tuple[int, int]:
    tags: Any = getattr(image, "tag_v2", {})  # Pillow states a TIFF's upright size
    return tags.get(TiffTags.WIDTH, image.width), tags.get(TiffTags.HEIGHT, image.height)


def _has_late_metadata(path: Path) -> bool:
    """Return whether a PNG has metadata after its pixels: reads the lengths and names of its chunks."""
    is_late = False
    with path.open("rb") as file:
        file.seek(8)
        while len(head := file.read(8)) == 8:
            length, name = struct.unpack(">I4s", head)
            is_late = is_late or name == b"IDAT"
            if is_late and name in LATE_METADATA:
                return True
            file.seek(length + 4, io.SEEK_CUR)
    return False


def _bits_of(image: Image.Image, head: bytes) -> int:
    """Return how many bits a value of the file has, before it is loaded. Pillow's mode does not say it of colors."""
    if image.mode.startswith("I;16"):
        return 16
    if image.format == "PNG":
        return head[24]
    if image.format == "TIFF":
        tags: Any = getattr(image, "tag_v2", {})
        found = tags.get(TiffTags.BITS, (1,))
        return max(found) if isinstance(found, tuple) else int(found)
    if image.format == "PPM":
        tiles: Any = getattr(image, "tile", ())
        arguments = tiles[0][3]  # with the largest value, unless it is the usual one
        return 16 if image.mode == "I" or (isinstance(arguments, tuple) and arguments[-1] > 255) else 8
    return 8


def _refuse_misread(image: Image.Image, depth: int) -> None:
    """Refuse TIFFs of 16 bits that Pillow reads wrongly, without an error. Raises ValueError."""
    tags: Any = getattr(image, "tag_v2", {})
    if depth == 16 and tags.get(TiffTags.PHOTOMETRIC) == 0:
        raise ValueError("found 16 bits with white as 0, allowed: black as 0")
    if depth == 16 and tags.get(TiffTags.PLANAR) == 2 and tags.get(TiffTags.COMPRESSION) == 1:
        raise ValueError("found colors of 16 bits in separate planes, allowed: a pixel's colors together")


def _largest_color(image: Image.Image) -> int:
    """Return the largest value of a color image of 16 bits, from its upper 8 bits: at most 255 too large."""
    bands = np.asarray(image)[..., : 3 if image.mode.startswith("RGB") else None]  # without alpha
    return int(bands.max()) << 8 | 255


def _to_8_bits(image: Image.Image, depth: int, bits: int) -> Image.Image:
    """Return an image of 8 bits. A single transparent color becomes an alpha channel: Pillow compares other depths.

    Args:
        image: the image.
        depth: how many bits a value of its file has.
        bits: how many of 16 bits are used.
    """
    transparent: Any = image.info.get("transparency")
    if image.mode.startswith("I"):
        values = np.asarray(image).astype(np.int64)
        gray = Image.fromarray(np.minimum(values >> bits - 8, 255).astype(np.uint8))
        if transparent is None:
            return gray
        return Image.merge("LA", (gray, _mask(values[..., None], [transparent])))
    if transparent is None or image.mode not in ("1", "L", "RGB"):
        return image
    color = transparent if isinstance(transparent, tuple) else (transparent,)
    if depth == 16:
        color = tuple(value >> 8 for value in color)
    elif image.mode == "L" and depth < 8:
        color = tuple(value * 255 // (2**depth - 1) for value in color)
    plain = image.convert("L") if image.mode == "1" else image
    alpha = _mask(np.asarray(plain).reshape(*plain.size[::-1], -1), color)
    return Image.merge("LA" if plain.mode == "L" else "RGBA", (*plain.split(), alpha))


def _mask(values: Array, color: Any) -> Image.Image:
    """Return an alpha channel: 0 where values [h, w, channels] are the color, else 255."""
    return Image.fromarray(np.where((values == np.array(color)).all(2), 0, 255).astype(np.uint8))


def _blend(image: Image.Image, look: Look) -> tuple[Image.Image, bool]:
    """Return an image as gray or RGB in front of the background, and whether it has transparent pixels."""
    mode = "L" if look.grey else "RGB"
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        layer = image.convert("RGBA")
        if int(np.asarray(layer.getchannel("A")).min()) < 255:
            behind = Image.new("RGBA", layer.size, (*look.background, 255))
            return Image.alpha_composite(behind, layer).convert("RGB").convert(mode), True
    return image.convert(mode), False


def _is_single(image: Image.Image) -> bool:
    return all(low == high for low, high in (band.getextrema() for band in image.split()))
