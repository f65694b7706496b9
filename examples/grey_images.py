"""Write the images of an npz file again in grey and in another size, of all classes or of some.

python examples/grey_images.py IN.npz OUT.npz SIZE [CLASSES]

IN has x_train, y_train, x_test and y_test; images are uint8 [N, H, W] or [N, H, W, 3]. OUT has uint8 images
[N, SIZE, SIZE], resized by area (Pillow's BOX). CLASSES is a class, or a range such as 20-29. In OUT they are numbered
from 0.
"""

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

Images = npt.NDArray[np.uint8]


def write_grey(source: Path, out: Path, size: int, classes: range | None = None) -> None:
    """Write OUT. The grey of a color is ITU-R 601's luma, as in Pillow's mode L.

    Raises:
        SystemExit: the file has none of the classes.
    """
    with np.load(source, allow_pickle=False) as opened:
        arrays = {name: opened[name] for name in ("x_train", "y_train", "x_test", "y_test")}
    made = {}
    for part in ("train", "test"):
        images, labels = arrays[f"x_{part}"], arrays[f"y_{part}"].astype(np.int64)
        if classes is not None:
            kept = (labels >= classes.start) & (labels < classes.stop)
            images, labels = images[kept], labels[kept] - classes.start
        if not len(labels):
            named = "" if classes is None else f" of the classes {classes.start}-{classes.stop - 1}"
            raise SystemExit(f"{source}: found no {part} images{named}, allowed: classes that it has")
        made |= {f"x_{part}": np.stack([resize(image, size) for image in images]), f"y_{part}": labels}
    np.savez_compressed(out, **made)


def resize(image: Images, size: int) -> Images:
    """Return an image [H, W] or [H, W, 3] in grey [SIZE, SIZE]."""
    return np.asarray(Image.fromarray(image).convert("L").resize((size, size), Image.Resampling.BOX))


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        raise SystemExit(__doc__)
    first, _, last = (sys.argv[4] if len(sys.argv) == 5 else "").partition("-")
    chosen = range(int(first), int(last or first) + 1) if first else None
    write_grey(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), chosen)
