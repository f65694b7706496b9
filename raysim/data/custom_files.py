"""Custom datasets in files: an .npz, or images in one folder per class."""

import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Gt, Le, Lt, MinLen, doc

from raysim.config.signature import takes_keys_of
from raysim.data.class_folders import draw_split, labeled, read_class_folders
from raysim.data.dataset import Array, Dataset, Split, as_float32, channels_first
from raysim.data.decoding import LoadKeys, decode_dataset, open_images
from raysim.data.image_index import ImageIndex, folder_times, index_path, read_index, write_index
from raysim.data.image_table import join_names
from raysim.data.images_on_disk import FOLDER as DECODED
from raysim.data.paths import require_file, require_folder
from raysim.data.pictures import COLORS, WHITE, Background, Look
from raysim.system.capacity import require_memory
from raysim.system.errors import ConfigError, first_line
from raysim.system.home import expand

NPZ_DAMAGE = (OSError, EOFError, ValueError, MemoryError, zipfile.BadZipFile, zlib.error, RuntimeError)  # encrypted
MOST_CHANNELS = 4  # of a photo: RGB and an alpha channel
ARRAYS = ("x_train", "y_train", "x_test", "y_test")
CLIENTS = "client_train"  # optional


@takes_keys_of(LoadKeys, before="load")
def image_folder(
    root: Path,
    download: bool,
    *,
    path: Annotated[
        str, doc("the folder with a folder for each class, or with train and test; relative, it starts at dataset.root")
    ],
    size: Annotated[int, Ge(1), Le(4096), doc("height and width of the resized images, for any proportions")] = 32,
    grey: Annotated[bool, doc("whether the images become grey; else RGB")] = False,
    background: Background = WHITE,
    classes: Annotated[
        Annotated[tuple[str, ...], MinLen(1)] | None, doc("the folders that are used; null is all")
    ] = None,
    test_fraction: Annotated[
        float, Gt(0), Lt(1), doc("the part of each class for testing, without train and test")
    ] = 0.2,
    seed: Annotated[int, Ge(0), doc("the seed of that part, independent of the run's seed")] = 0,
    **keys: Any,
) -> Dataset:
    """Images in a folder per class (`path`, below the root), resized to `size` x `size`: PACS, Office-31, DomainNet.

    If `path` has the folders train and test, in any case, they hold the classes and are the split. Without test, the
    folder validation, val, valid or dev takes its place. Otherwise `test_fraction` of each class's images (rounded, at
    least one) is for testing. These are drawn from `seed` and the class's name, not from the run's seed. A class has
    the images in its folder and in the folders below. Classes are numbered in the order of their folders' names: by
    value if all names are numbers, otherwise as text. `classes` selects folders; the default is all. Pillow's bilinear
    filter resizes the images without keeping proportions. They are stored as uint8, RGB or `grey`.

    Raises:
        ConfigError: a folder is missing or empty, an image cannot be read, or the images do not fit into memory.
    """
    folder, load = require_folder(root / expand("dataset.path", path)), LoadKeys(**keys)
    if load.load == "disk":
        look = Look(size, grey, COLORS[background] if isinstance(background, str) else background)
        return _open_folder(root, folder, classes, test_fraction, seed, look, load)
    found = read_class_folders(folder, classes)
    train, test = (found.train, found.test) if found.test else draw_split(folder, found.train, test_fraction, seed)
    names = tuple(found.train)
    dataset = decode_dataset(
        labeled(train),
        labeled(test),
        len(names),
        names,
        size=size,
        grey=grey,
        background=background,
        root=root,
        keys=load,
    )
    return replace(dataset, notes=(*found.notes, *dataset.notes), doubts=(*found.doubts, *dataset.doubts))


def _open_folder(
    root: Path, folder: Path, classes: Sequence[str] | None, fraction: float, seed: int, look: Look, load: LoadKeys
) -> Dataset:
    """Return the images of a folder, which are decoded as they are needed, by its index or by a search."""
    path = index_path(root / DECODED, folder, {"classes": classes, "test_fraction": fraction, "seed": seed})
    index = read_index(path)
    if index is None:
        folders = folder_times(folder)
        found = read_class_folders(folder, classes)
        train, test = map(
            labeled, (found.train, found.test) if found.test else draw_split(folder, found.train, fraction, seed)
        )
        images, labels = join_names(str(image) for image, _ in (*train, *test)), [label for _, label in (*train, *test)]
        names, texts = tuple(found.train), (found.notes, found.doubts)
        index = ImageIndex(images, np.array(labels, np.int64), len(train), names, *texts)
        write_index(path, index, folders)
    upright = np.zeros(len(index.images), bool)
    sizes = index.train, len(index.names), index.names
    dataset = open_images(index.images, index.labels, *sizes, look, upright, root, load)
    return replace(dataset, notes=(*index.notes, *dataset.notes), doubts=(*index.doubts, *dataset.doubts))


def npz(
    root: Path,
    download: bool,
    *,
    path: Annotated[str, doc("the file; a relative path starts at dataset.root")],
) -> Dataset:
    """Any .npz file (`path`, below the root) with x_train, y_train, x_test, y_test; classes are 0..largest label.

    Pickled objects are refused. The arrays are:

    - x: images [N, H, W] or [N, H, W, C], stored as C x H x W, or features [N, D]. Both are uint8, or floats stored as
      float32. Another integer type [N, D] holds ids, such as tokens, stored as int64.
    - y: integers [N]. For objectives without classes also integers [N, ...] or floats [N, ...], stored as float32;
      floats [N] become [N, 1].
    - client_train (optional): the client id of each training sample, integers or strings [N].

    Raises:
        ConfigError: the file does not exist, is damaged, lacks an array, or has arrays of another kind or
            numbers too large for float32.
    """
    file = root / expand("dataset.path", path)
    arrays = _read_npz(file)
    splits = [
        Split(_samples(arrays[f"x_{part}"], f"{file}: x_{part}"), _targets(arrays[f"y_{part}"], f"{file}: y_{part}"))
        for part in ("train", "test")
    ]
    largest = max((int(split.y.max()) for split in splits if split.y.size and split.y.dtype == np.int64), default=0)
    train = replace(splits[0], clients=arrays.get(CLIENTS))
    return Dataset(train, splits[1], classes=max(largest, 0) + 1)


def _read_npz(file: Path) -> dict[str, Array]:
    require_file("dataset.path", file)
    try:
        with file.open("rb") as stream:  # opened here, as np.load leaves a damaged file open
            archive = np.load(stream, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ConfigError(f"{file}: holds one bare array; save a .npz with {', '.join(ARRAYS)}")
            absent = [name for name in ARRAYS if name not in archive.files]
            if absent:
                raise ConfigError(
                    f"{file}: no array {', '.join(absent)} (it has {', '.join(archive.files) or 'none'}); "
                    f"needed are {', '.join(ARRAYS)}"
                )
            declared = sum(part.file_size for part in zipfile.ZipFile(stream).infolist())
            require_memory(declared, "dataset.path", file)
            return {name: archive[name] for name in (*ARRAYS, CLIENTS) if name in archive.files}
    except NPZ_DAMAGE as error:
        reason = first_line(error)
        raise ConfigError(f"{file}: not a sound .npz of plain arrays ({reason}); save it again") from error


def _samples(x: Array, what: str) -> Array:
    if x.dtype != np.uint8 and np.issubdtype(x.dtype, np.integer) and x.ndim == 2:
        return x.astype(np.int64)
    if x.dtype != np.uint8 and not np.issubdtype(x.dtype, np.floating):
        raise ConfigError(f"{what} is {x.dtype}; save it as uint8 (0..255), as floats, or [N, D] ids as whole numbers")
    if x.ndim not in (2, 3, 4):
        raise ConfigError(f"{what} has shape {x.shape}; save [N, H, W], [N, H, W, C] or [N, D]")
    if x.ndim == 4 and x.shape[1] in (1, 3) and min(x.shape[2:]) > MOST_CHANNELS:
        advice = f"save x.transpose(0, 2, 3, 1); or x.swapaxes(1, 2) if these are {x.shape[3]} channels"
        raise ConfigError(f"{what} has shape {x.shape}, which looks like [N, C, H, W], allowed: [N, H, W, C]; {advice}")
    return channels_first(x if x.dtype == np.uint8 else as_float32(x, lambda index: f"{what}{[*index]}"))


def _targets(y: Array, what: str) -> Array:
    if y.dtype.kind not in "biuf" or y.ndim < 1:
        advice = "save integers of shape [N], or integers or floats of shape [N, ...]"
        raise ConfigError(f"{what} is {y.dtype} of shape {y.shape}; {advice}")
    if y.dtype.kind != "f":
        return y.astype(np.int64)
    return as_float32(y, lambda index: f"{what}{[*index]}").reshape(len(y), *(y.shape[1:] or (1,)))
