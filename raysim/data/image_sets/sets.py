"""The published image datasets that raysim knows: a record each, and the one function that reads them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from raysim.config.signature import takes_keys_of
from raysim.data.archives import Archive, unpack
from raysim.data.class_order import describe_classes
from raysim.data.dataset import Dataset, Declared, MissingData
from raysim.data.decoding import decode_dataset
from raysim.data.image_sets import layouts
from raysim.data.image_sets.records import (
    Core50Keys,
    DomainNetKeys,
    DrawnKeys,
    FoundImages,
    ImageSet,
    ListedKeys,
    Office31Keys,
    OfficeHomeKeys,
    SetKeys,
    SplitList,
)
from raysim.data.paths import RELATIVE
from raysim.data.pictures import WHITE
from raysim.system.home import expand

MAMMOTH = "github.com/aimagelab/mammoth"
BERKELEY = "https://people.eecs.berkeley.edu/~hendrycks"
DOMAINS = {
    "clipart": ((33_525, 14_604), "cd0d8f2d77a4e181449b78ed62bccf1e"),
    "infograph": ((36_023, 15_582), "720380b86f9e6ab4805bb38b6bd135f8"),
    "painting": ((50_426, 21_855), "1ae32cdb4f98fe7ab5eb0a351768abfd"),
    "quickdraw": ((120_750, 51_750), "bdc1b6f09f277da1a263389efe0c7a66"),
    "real": ((120_906, 52_041), "dcc47055e8935767784b7162e7c7cca6"),
    "sketch": ((48_212, 20_916), "658d8009644040ff7ce30bb2e820850f"),
}
"""DomainNet's domains: the images in the lists, and the digest of the archive (clipart, painting: cleaned version)."""

IMAGENET_R = ImageSet(
    name="imagenet_r",
    title="ImageNet-R 224 x 224 RGB, 200 classes of renditions, 24000 + 6000 images (Hendrycks et al., ICCV 2021).",
    described="There is no official split. `split: lists` is Mammoth's; its labels are not in the folders' order.",
    folder="imagenet-r",
    site=f"{BERKELEY}/imagenet-r.tar",
    layout=layouts.listed,
    keys=ListedKeys,
    counts={"": (24_000, 6_000)},
    classes=200,
    archives=[Archive("imagenet-r.tar", "imagenet-r", "a61312130a589d0ca1a8fca1f2bd3337")],
    lists=[
        SplitList(f"imagenet-r_{part}.yaml", md5, f"{MAMMOTH}, datasets/imagenet_r_utils")
        for part, md5 in (
            ("train", "b90d9c763369c87dbd9becb80abd83b3"),
            ("test", "3ea5a3aa2e96578874254d4ee87321b3"),
        )
    ],
)
IMAGENET_A = ImageSet(
    name="imagenet_a",
    title="ImageNet-A 224 x 224 RGB, 200 classes, 7500 images that ResNet-50 misses (Hendrycks et al., CVPR 2021).",
    described="The official images are for testing only, so a part is drawn, unless the folder has train and test.",
    folder="imagenet-a",
    site=f"{BERKELEY}/imagenet-a.tar",
    layout=layouts.drawn,
    keys=DrawnKeys,
    counts={"": (6_000, 1_500)},
    classes=200,
    archives=[Archive("imagenet-a.tar", "imagenet-a", "c3e55429088dc681f30d81f4726b6595")],
)
CUB200 = ImageSet(
    name="cub200",
    title="CUB-200-2011 birds 224 x 224 RGB, 200 classes, 5994 + 5794 images (Wah et al., 2011).",
    described="The split is the official one, train_test_split.txt.",
    folder="CUB_200_2011",
    site="https://data.caltech.edu/records/65de6-vp158",
    layout=layouts.cub,
    keys=SetKeys,
    counts={"": (5_994, 5_794)},
    classes=200,
    archives=[Archive("CUB_200_2011.tgz", "CUB_200_2011", "97eceeb196236b17998738112f37df78")],
)
CARS = ImageSet(
    name="cars",
    title="Stanford Cars 224 x 224 RGB, 196 classes, 8144 + 8041 images (Krause et al., 2013).",
    described="The split is the official one, cars_train and cars_test. It needs the extra vision.",
    folder="stanford_cars",
    site="https://ai.stanford.edu/~jkrause/cars/car_dataset.html, which may be gone",
    layout=layouts.cars,
    keys=SetKeys,
    counts={"": (8_144, 8_041)},
    classes=196,
    archives=[
        Archive("cars_train.tgz", "cars_train", "065e5b463ae28d29e77c1b4b166cfe61", "stanford_cars"),
        Archive("cars_test.tgz", "cars_test", "4ce7ebf6a94d07f1952d94dd34c4d501", "stanford_cars"),
        Archive("car_devkit.tgz", "devkit", "c3b158d763b6e2245038c8ad08e45376", "stanford_cars"),
    ],
    loose=[SplitList("cars_test_annos_withlabels.mat", "b0a2b23655a3edd16d84508592a98d10", "the same place")],
)
DOMAINNET = ImageSet(
    name="domainnet",
    title="A domain of DomainNet 224 x 224 RGB, 345 classes (Peng et al., ICCV 2019).",
    described="The split is the official one, DOMAIN_train.txt and DOMAIN_test.txt, next to the domains' folders.",
    folder="domainnet",
    site="http://ai.bu.edu/M3SDA",
    layout=layouts.domainnet,
    keys=DomainNetKeys,
    counts={domain: counts for domain, (counts, _) in DOMAINS.items()},
    classes=345,
    archives=[Archive(f"{domain}.zip", domain, md5, "domainnet") for domain, (_, md5) in DOMAINS.items()],
    loose=[SplitList(f"{{domain}}_{part}.txt", None, "the same page") for part in ("train", "test")],
)
OFFICE_HOME = ImageSet(
    name="office_home",
    title="A domain of Office-Home 224 x 224 RGB, 65 classes (Venkateswara et al., CVPR 2017).",
    described="There is no official split, so a part of each class is drawn.",
    folder="OfficeHomeDataset_10072016",
    site="https://www.hemanthdv.org/officeHomeDataset.html",
    layout=layouts.office_home,
    keys=OfficeHomeKeys,
    counts={"art": (1_942, 485), "clipart": (3_492, 873), "product": (3_551, 888), "real_world": (3_486, 871)},
    exact=False,
    classes=65,
    archives=[Archive("OfficeHomeDataset_10072016.zip", "OfficeHomeDataset_10072016", None)],
)
OFFICE31 = ImageSet(
    name="office31",
    title="A domain of Office-31 224 x 224 RGB, 31 classes (Saenko et al., ECCV 2010).",
    described="There is no official split, so a part of each class is drawn.",
    folder="office31",
    site="https://faculty.cc.gatech.edu/~judy/domainadapt",
    layout=layouts.office_31,
    keys=Office31Keys,
    counts={"amazon": (2_254, 563), "dslr": (398, 100), "webcam": (636, 159)},
    exact=False,
    classes=31,
)
CORE50 = ImageSet(
    name="core50",
    title="CORe50 224 x 224 RGB, 50 objects or 10 categories, 164866 frames (Lomonaco and Maltoni, CoRL 2017).",
    described="The split is the benchmark's: sessions 3, 7 and 10 of 11 are for testing. The column session orders NI.",
    folder="core50_128x128",
    site="https://vlomonaco.github.io/core50",
    layout=layouts.core50,
    keys=Core50Keys,
    counts={"": (119_894, 44_972)},
    exact=False,
    classes=50,
    archives=[Archive("core50_128x128.zip", "core50_128x128", None)],
)
EUROSAT = ImageSet(
    name="eurosat",
    title="EuroSAT RGB satellite images 64 x 64, 10 classes, 13500 + 8100 images (Helber et al., 2019).",
    described="There is no official split. `split: lists` is split.json of CoOp, which Mammoth uses; val is not read.",
    folder="EuroSAT_RGB",
    site="https://zenodo.org/records/7711810, EuroSAT_RGB.zip, or https://github.com/phelber/EuroSAT, EuroSAT.zip",
    layout=layouts.listed_in_json,
    keys=ListedKeys,
    counts={"": (13_500, 8_100)},
    exact=False,
    classes=10,
    archives=[
        Archive("EuroSAT_RGB.zip", "EuroSAT_RGB", None),
        Archive("EuroSAT.zip", "2750", "c8fa014336c82ac7804f0398fcb19387"),
    ],
    lists=[SplitList("split.json", None, f"{MAMMOTH}, datasets/seq_eurosat_rgb.py, which says where")],
    also=["2750", "eurosat/2750"],
)
RESISC45 = ImageSet(
    name="resisc45",
    title="NWPU-RESISC45 aerial images 224 x 224 RGB, 45 classes, 31500 images (Cheng et al., 2017).",
    described="There is no official split. `split: lists` is Mammoth's.",
    folder="NWPU-RESISC45",
    site="https://huggingface.co/datasets/aimagelab-ta/resisc45",
    layout=layouts.listed,
    keys=ListedKeys,
    counts={"": (25_200, 6_300)},
    exact=False,
    classes=45,
    lists=[
        SplitList(f"resisc45_{part}.yaml", None, "https://huggingface.co/datasets/aimagelab-ta/resisc45")
        for part in ("train", "test")
    ],
)
RECORDS = {
    record.name: record
    for record in (
        *(IMAGENET_R, IMAGENET_A, CUB200, CARS, DOMAINNET, OFFICE_HOME, OFFICE31, CORE50, EUROSAT, RESISC45),
    )
}


def read_set(record: ImageSet, root: Path, download: bool, keys: SetKeys) -> Dataset:
    """Return a published dataset. Archives that are there are unpacked if `download` is true.

    Raises:
        MissingData: files are absent; the message says which, and where they are published.
        ConfigError: an archive or a list is damaged or another version, or images cannot be read.
    """
    domain = str(getattr(keys, "domain", ""))
    train, test = record.counts[domain]
    classes = len(layouts.CATEGORIES) if getattr(keys, "label", "") == "category" else record.classes
    declared = Declared((3, keys.size, keys.size), train, test, classes)
    folder = _find_folder(record, root, download, keys, domain, declared)
    found = record.layout(record, folder, keys)
    layouts.require_images(record, found)
    dataset = decode_dataset(
        found.train,
        found.test,
        len(found.names),
        found.names,
        size=keys.size,
        grey=False,
        background=WHITE,
        root=root,
        keys=keys,
    )
    splits = [
        replace(split, columns=columns)
        for split, columns in zip((dataset.train, dataset.test), found.columns, strict=True)
    ]
    notes = (*found.notes, *[note for note in (describe_classes(found.names),) if note not in found.notes])
    doubts = _compare(record, found, train + test)
    return replace(
        dataset,
        train=splits[0],
        test=splits[1],
        notes=(*notes, *dataset.notes),
        doubts=(*doubts, *dataset.doubts),
    )


def _find_folder(record: ImageSet, root: Path, download: bool, keys: SetKeys, domain: str, declared: Declared) -> Path:
    """Return the unpacked folder; archives are unpacked into it. Raises MissingData or ConfigError."""
    if keys.path is not None:
        folder = root / expand("dataset.path", keys.path)
        if not folder.is_dir():
            raise MissingData(f"dataset.path: there is no folder {folder}; {_where(record, root, domain)}", declared)
        return folder
    for archive in _needed(record, domain):
        file = archive.find(root)
        if archive.target(root).is_dir() or file is None:
            continue
        if not download:
            problem = f"{file} is not unpacked yet"
            raise MissingData(
                f"dataset.path: {problem}; a run with dataset.download, or raysim download, does it", declared
            )
        unpack(archive, file, root)
    for name in (record.folder, *record.also):
        if (root / name).is_dir():
            return root / name
    raise MissingData(
        f"dataset.path: there is no folder {root / record.folder}; {_where(record, root, domain)}", declared
    )


def _needed(record: ImageSet, domain: str) -> list[Archive]:
    return [one for one in record.archives if len(record.archives) == 1 or not domain or one.holds == domain]


def _where(record: ImageSet, root: Path, domain: str) -> str:
    """Return which files a user has to get, from where, and where to put them."""
    files = [one.named for one in _needed(record, domain)] or [f"the folder {record.folder}"]
    named = [(one.file.format(domain=domain), one.md5) for one in record.loose]
    loose = [f"{file} (md5 {md5})" if md5 else file for file, md5 in named]
    several = " or " if record.name == "eurosat" else ", "
    where = f"get {several.join([*files, *loose])} from {record.site}"
    places = {root / one.place for one in _needed(record, domain)} or {root}
    return f"{where}, if its terms allow your use, and put it into {' and '.join(map(str, places))}; {RELATIVE}"


def _compare(record: ImageSet, found: FoundImages, published: int) -> list[str]:
    """Return a warning if there are other numbers of images than published."""
    count = len(found.train) + len(found.test)
    if count == published or not record.exact:
        return []
    return [f"dataset.path: found {count:,} images of {record.name}, published are {published:,}; are all there?"]


def _reader(record: ImageSet) -> Callable[..., Dataset]:
    """Return the function of a record, as DATASETS names it."""

    def read(root: Path, download: bool, **keys: Any) -> Dataset:
        return read_set(RECORDS[record.name], root, download, record.keys(**keys))

    read.__name__ = read.__qualname__ = record.name
    read.__doc__ = f"{record.title}\n\n    {record.described}\n    Files: {record.site}.\n    "
    return takes_keys_of(record.keys)(read)


imagenet_r, imagenet_a, cub200, cars, domainnet, office_home, office31, core50, eurosat, resisc45 = map(
    _reader, RECORDS.values()
)
