"""Folders of classes: which files are used and counted, which folders are the split, how classes are numbered."""

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from raysim.data.class_order import describe_classes, in_class_order
from raysim.data.custom_files import image_folder
from raysim.data.dataset import Dataset
from raysim.system.errors import ConfigError


def write(*files: Path) -> None:
    """Images whose first pixels are 0, 1, 2, ... in this order; the last pixel of each is 200."""
    for number, file in enumerate(files):
        file.parent.mkdir(parents=True, exist_ok=True)
        image = Image.new("L", (2, 1), number)
        image.putpixel((1, 0), 200)
        image.save(file, format="PNG")


def read(root: Path, **keys: Any) -> Dataset:
    return image_folder(root, False, path=".", size=2, grey=True, **keys)


def first_values(split: Any) -> list[int]:
    return [int(x.flat[0]) for x in split.x]


def refusal(root: Path) -> str:
    with pytest.raises(ConfigError) as refused:
        read(root)
    return str(refused.value)


def test_a_class_has_the_images_in_the_folders_below_it(tmp_path):
    """As torchvision's ImageFolder: a folder's own images first, then those of its folders, by name."""
    a = tmp_path / "train" / "a"
    write(a / "z.png", a / "more" / "a.png", a / "more" / "deep" / "a.png", a / "rest" / "a.png")
    write(tmp_path / "test" / "a" / "x" / "y.png")
    found = read(tmp_path)
    assert (first_values(found.train), first_values(found.test), found.names) == ([0, 1, 2, 3], [0], ("a",))
    assert found.notes == ("class 0: a",)


def test_suffixes_of_any_case_are_images(tmp_path):
    names = ["a.jfif", "b.JPG", "c.JPeG", "d.PNG", "e.jpe", "f.tif", "g.TIFF", "h.bmp", "i.pnm", "j.Gif", "k.WebP"]
    write(*[tmp_path / "train" / "a" / name for name in names], tmp_path / "test" / "a" / "a.png")
    assert first_values(read(tmp_path).train) == list(range(len(names)))


def test_files_that_are_left_out_are_counted(tmp_path):
    """Used are 6. Left out: 2 .txt (one in upper case), 3 hidden (one in a hidden folder), 1 of macOS, 1 .xcf, 1
    without a suffix, and 1 image beside the classes: 9."""
    write(*[tmp_path / name / f"{k}.png" for name in ("a", "b") for k in range(3)], tmp_path / "c.png")
    (tmp_path / "README.txt").write_text("x")
    (tmp_path / "a" / "labels.TXT").write_text("x")
    (tmp_path / "a" / "LICENSE").write_text("x")
    (tmp_path / "b" / "draft.xcf").write_text("x")
    (tmp_path / "b" / "Thumbs.db").write_text("x")
    (tmp_path / "b" / ".DS_Store").write_text("x")
    for folder, name in ((".ipynb_checkpoints", "0.png"), ("__MACOSX", "._0.png")):
        (tmp_path / folder / "a").mkdir(parents=True)
        (tmp_path / folder / "a" / name).write_text("x")
    found = read(tmp_path)
    assert found.names == ("a", "b")
    others = "3 hidden, 2 .txt, 1 .xcf, 1 in __MACOSX, 1 outside the classes' folders, 1 without a suffix"
    assert found.notes == (f"used 6 of 15 files; left out: {others}", "classes 0 to 1: a, b")


def test_plain_folders_have_a_note_on_their_classes_only(tmp_path):
    write(*[tmp_path / "a" / f"{k}.png" for k in range(3)])
    assert (read(tmp_path).notes, read(tmp_path).doubts) == (("class 0: a",), ())


@pytest.mark.parametrize(
    ("train", "test"),
    [("Train", "Test"), ("TRAIN", "TEST"), ("train", "Val"), ("Training", "Testing"), ("training", "Validation")],
)
def test_the_folders_of_a_split_may_be_written_otherwise(tmp_path, train, test):
    write(tmp_path / train / "a" / "0.png", tmp_path / train / "b" / "1.png", tmp_path / train / "b" / "2.png")
    write(tmp_path / test / "a" / "0.png", tmp_path / test / "b" / "1.png")
    found = read(tmp_path)
    assert (first_values(found.train), first_values(found.test)) == ([0, 1, 2], [0, 1])
    assert (f"tested on the folder {test}" in found.notes) == test.startswith("V")


def test_folders_that_are_not_used_are_named(tmp_path):
    for part in ("train", "val", "test", "extra"):
        write(tmp_path / part / "a" / "0.png")
    assert read(tmp_path).notes == ("left out the folders extra, val", "class 0: a")


@pytest.mark.parametrize("name", ["Train", "test", "Validation"])
def test_half_a_split_is_not_a_class(tmp_path, name):
    """Following an advice to use this folder would train on test images."""
    write(tmp_path / name / "a" / "0.png", tmp_path / "photos" / "0.png")
    allowed = "train and test, or train and val, or a folder of images for each class"
    assert refusal(tmp_path) == f"dataset.path: {tmp_path} has the folder {name} of classes alone, allowed: {allowed}"


def test_two_folders_for_one_part_are_refused(tmp_path):
    write(*[tmp_path / name / "a" / "0.png" for name in ("train", "Train", "test")])
    assert refusal(tmp_path) == f"dataset.path: {tmp_path} has the folders Train and train, allowed: one of them"


def test_folders_below_the_classes_that_may_be_the_classes_are_warned_of(tmp_path):
    """PACS has a folder for each domain, and the classes are below."""
    write(
        *[tmp_path / part / name / f"{k}.png" for part in ("art", "photo") for name in ("cat", "dog") for k in (0, 1)]
    )
    below = "and all images are in folders below these, such as art/cat"
    advice = "set dataset.path to one of them, or call those of a split train and test"
    advice = f"if such folders are the classes, {advice}"
    assert read(tmp_path).doubts == (f"the classes of {tmp_path} are its folders (art, photo), {below}; {advice}",)


def test_a_link_to_a_folder_around_it_is_refused(tmp_path):
    write(tmp_path / "a" / "0.png", tmp_path / "a" / "1.png")
    (tmp_path / "a" / "again").symlink_to(tmp_path / "a")
    assert refusal(tmp_path) == (
        f"dataset.path: {tmp_path}/a/again is a link to a folder that holds it, allowed: folders; remove it"
    )


def test_links_to_images_and_folders_are_followed(tmp_path):
    write(tmp_path / "store" / "0.png", tmp_path / "store" / "1.png", tmp_path / "set" / "a" / "b.png")
    (tmp_path / "set" / "a" / "a.png").symlink_to(tmp_path / "store" / "1.png")
    (tmp_path / "set" / "b").symlink_to(tmp_path / "store")
    found = image_folder(tmp_path, False, path="set", size=2, grey=True)
    values = sorted(zip(found.train.y.tolist(), first_values(found.train), strict=True))
    values += sorted(zip(found.test.y.tolist(), first_values(found.test), strict=True))
    assert sorted(values) == [(0, 1), (0, 2), (1, 0), (1, 1)]


def test_a_class_without_images_is_refused_with_what_it_has(tmp_path):
    write(tmp_path / "a" / "0.png")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "0.heic").write_text("x")
    assert refusal(tmp_path) == (
        f"dataset.path: {tmp_path}/b holds no images, allowed: at least one in every class's folder; it has 1 .heic"
    )


def test_classes_that_are_numbers_are_in_the_order_of_their_values(tmp_path):
    write(*[tmp_path / part / name / "0.png" for part in ("train", "test") for name in ("10", "1", "2")])
    found = read(tmp_path)
    assert found.names == ("1", "2", "10")
    assert found.train.y.tolist() == [0, 1, 2]
    assert first_values(found.train) == [1, 2, 0]
    assert found.notes == ("classes 0 to 2: 1, 2, 10",)
    assert read(tmp_path, classes=("10", "2")).names == ("2", "10")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["10", "9", "1"], ["1", "9", "10"]),
        (["1.0", "10.0", "2.0"], ["1.0", "2.0", "10.0"]),
        (["-1", "1e1", "-10", "0.5"], ["-10", "-1", "0.5", "1e1"]),
        (["01", "1", "00"], ["00", "01", "1"]),
        (["10", "9", "b"], ["10", "9", "b"]),
        (["b", "a", "b", "B"], ["B", "a", "b"]),
        (["1_0", "9"], ["1_0", "9"]),
        (["\u0661", "9"], ["9", "\u0661"]),
        (["nan", "1"], ["1", "nan"]),
        ([], []),
    ],
)
def test_the_order_of_classes(names, expected):
    """By value if all are ASCII numbers; Python's int also reads 1_0 and Arabic digits."""
    assert in_class_order(names) == expected


def test_a_note_on_many_or_long_names_is_short():
    assert describe_classes([f"c{k}" for k in range(8)]) == "classes 0 to 7: c0, c1, c2, c3, c4, c5, c6, c7"
    assert describe_classes([f"c{k}" for k in range(100)]) == "classes 0 to 99: c0, c1, c2, c3, c4, c5, ..., c99"
    assert describe_classes(["x" * 30]) == f"class 0: {'x' * 21}..."
