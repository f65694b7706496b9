"""Custom components of the runs: modules, a stream, a sampler and tasks; and the data that are written for the runs.

They raise an error in a process with the raysim of another tree, also in an actor on Ray.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

TREE = "RAYSIM_BITS_TREE"


def of_this_tree() -> None:
    """Raise RuntimeError if this process has another raysim than its tree's."""
    found = find_spec("raysim")
    place = None if found is None or found.origin is None else Path(found.origin).parents[1]
    if place is None or place.resolve() != Path(os.environ[TREE]).resolve():
        raise RuntimeError(f"this process has the raysim of {place}, not of {os.environ[TREE]}")


class Normalised(nn.Module):
    """Two layers with BatchNorm between them."""

    def __init__(self, features: int, classes: int, width: int) -> None:
        super().__init__()
        of_this_tree()
        self.flat = nn.Flatten()
        self.first = nn.Linear(features, width)
        self.norm = nn.BatchNorm1d(width)
        self.last = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        hidden = torch.relu(self.norm(self.first(self.flat(x))))
        return torch.as_tensor(self.last(hidden))


def normalised(shape: tuple[int, ...], classes: int, *, width: int = 5) -> nn.Module:
    """A custom module with BatchNorm."""
    return Normalised(int(np.prod(shape)), classes, width)


class Inside(nn.Module):
    """The module above with another head, so that its file of weights is for a part of this one."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.body = Normalised(features, classes, 6)
        self.head = nn.Linear(classes, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        return torch.as_tensor(self.head(self.body(x)))


def inside(shape: tuple[int, ...], classes: int) -> nn.Module:
    """A custom module with a part that a file of weights fits."""
    return Inside(int(np.prod(shape)), classes)


def dropping(shape: tuple[int, ...], classes: int) -> nn.Module:
    """A convolution, and dropout of maps and of units."""
    of_this_tree()
    return nn.Sequential(
        nn.Conv2d(shape[0], 3, 3),
        nn.ReLU(),
        nn.Dropout2d(0.2),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(3 * (shape[1] - 2) * (shape[2] - 2), classes),
    )


def stream(client: int, start: int) -> Iterator[tuple[np.ndarray[Any, Any], int]]:
    """Iterate over a client's samples of 1 x 6 x 6 from a position on."""
    of_this_tree()
    position = start
    while True:
        draws = np.random.default_rng([client, position])
        yield draws.standard_normal((1, 6, 6)).astype(np.float32), int(draws.integers(6))
        position += 1


def last(server: Any, count: int, draws: np.random.Generator) -> Sequence[int]:
    """Return one of the clients that are there, and those with the largest ids."""
    of_this_tree()
    present = sorted(server.present)
    kept = present[len(present) - count + 1 :]
    others = [client for client in present if client not in kept]
    return [others[int(draws.integers(len(others)))], *kept]


def halves(dataset: Any, tasks: int, generator: np.random.Generator) -> list[Any]:
    """Return tasks of equal parts of the training samples, each tested on all that there is."""
    of_this_tree()
    from raysim.data.scenario import Task

    every, test = tuple(range(dataset.classes)), np.arange(len(dataset.test), dtype=np.int32)
    parts = np.array_split(np.arange(len(dataset.train), dtype=np.int32), tasks)
    return [Task(f"part {number}", every, None, rows, test) for number, rows in enumerate(parts, 1)]


def _write_texts(folder: Path, draws: np.random.Generator) -> None:
    """Write texts of six topics, each with its own words, as JSON lines; and token ids with the ids that follow."""
    for name, count in (("train", 72), ("test", 24)):
        lines = []
        for number in range(count):
            words = [f"w{number % 6}", *(f"w{word}" for word in draws.integers(6, 12, draws.integers(3, 8)))]
            day = f"2024-01-{1 + number % 20:02d}"
            lines.append(json.dumps({"said": " ".join(words), "topic": f"topic {number % 6}", "day": day}))
        (folder / f"{name}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (folder / "requests.csv").write_text("0,0\n2,1\n", encoding="utf-8")
    tokens = {part: draws.integers(0, 9, (count, 6)) for part, count in (("train", 72), ("test", 24))}
    arrays: dict[str, Any] = {f"x_{part}": ids[:, :-1] for part, ids in tokens.items()}
    arrays |= {f"y_{part}": ids[:, 1:] for part, ids in tokens.items()}
    np.savez(folder / "tokens.npz", **arrays)
    for part, ids in tokens.items():  # the answer to ids 4 is 1 2, else it is 3; nothing else counts
        arrays[f"y_{part}"] = np.full_like(ids[:, 1:], -100)
        arrays[f"y_{part}"][:, 3:] = np.where((ids[:, 0] == 4)[:, None], [1, 2], [3, -100])
        arrays[f"x_{part}"][:, 4] = arrays[f"y_{part}"][:, 3]
    np.savez(folder / "answers.npz", **arrays)


def _write_tables(folder: Path) -> None:
    """Write a table of six topics to train on and to test on, with a time, a site, a kind, and numbers, one missing."""
    draws = np.random.default_rng(2)
    for name, count in (("train", 96), ("test", 36)):
        lines = ["topic;site;kind;note;first;second;hour"]
        for number in range(count):
            first, second = draws.standard_normal(2) + number % 6
            shown = "" if number == 5 else f"{second:.3f}"
            lines.append(
                f"topic {number % 6};s{number % 4};{'abc'[number % 3]};-;{first:.3f};{shown};{7 * number % 24}"
            )
        (folder / f"table_{name}.csv").write_text("\n".join(lines), encoding="utf-8")


def _write_dated_table(folder: Path) -> None:
    """Write a table of six topics with days as Germans write them, and numbers of which some are a dash."""
    draws = np.random.default_rng(3)
    lines = ["topic,day,first,second"]
    for number in range(96):
        first, second = draws.standard_normal(2) + number % 6
        lines.append(
            f"topic {number % 6},{1 + number % 28:02d}.{1 + number % 3:02d}.2024,"
            f"{'-' if number % 9 == 8 else f'{first:.3f}'},{second:.3f}"
        )
    (folder / "table_dated.csv").write_text("\n".join(lines), encoding="utf-8")


def _write_leaf(folder: Path, draws: np.random.Generator) -> None:
    """Write texts and names of the photos, by user, as LEAF does."""
    kinds = ("ant", "bee", "cat", "dog")
    for name, numbers in (("train", range(8)), ("test", range(8, 12))):
        texts, images = (dict[str, Any](users=[], user_data={}, num_samples=[]) for _ in range(2))
        for user in range(4):
            labels = [(user + number) % 4 for number in numbers]
            said = [f"W{label} " + " ".join(f"v{word}" for word in draws.integers(0, 6, 4)) for label in labels]
            seen = [f"{kinds[label]}/{number}.png" for label, number in zip(labels, numbers, strict=True)]
            for content, x in ((texts, said), (images, seen)):
                content["users"].append(f"u{user}")
                content["user_data"][f"u{user}"] = {"x": x, "y": labels}
                content["num_samples"].append(len(x))
        for kind, content in (("texts", texts), ("images", images)):
            (folder / kind / name).mkdir(parents=True)
            (folder / kind / name / "all.json").write_text(json.dumps(content), encoding="utf-8")


def _write_lists(folder: Path) -> None:
    """Write lists of the photos: of each kind eight to train on, and four to test on; labels from 1."""
    for name, numbers in (("train", range(8)), ("test", range(8, 12))):
        kinds = enumerate(("ant", "bee", "cat", "dog"), 1)
        lines = [f"photo/{kind}/{number}.png {label}" for label, kind in kinds for number in numbers]
        whose = [f"{line} {number % 5}" for number, line in enumerate(lines)]
        dated = [f"{line} {7 * number % 48} site{number % 2}" for number, line in enumerate(whose)]
        (folder / f"dated_{name}.txt").write_text("\n".join(dated), encoding="utf-8")
        (folder / f"whose_{name}.txt").write_text("\n".join(whose), encoding="utf-8")
        (folder / f"photo_{name}.txt").write_text("\n".join(lines), encoding="utf-8")


def _write_tiny_imagenet(folder: Path, draws: np.random.Generator) -> None:
    """Write three classes of eight images, and three images of each to test on, as Tiny-ImageNet is distributed."""
    named, lines = ("n03", "n01", "n02"), []
    for wnid in named:
        for number in range(11):
            place = folder / "train" / wnid / "images" if number < 8 else folder / "val" / "images"
            place.mkdir(parents=True, exist_ok=True)
            image = f"{wnid}_{number}.JPEG"
            Image.fromarray(draws.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(place / image, quality=95)
            lines += [f"{image}\t{wnid}\t0\t0\t1\t1"] if number >= 8 else []
    (folder / "val" / "val_annotations.txt").write_text("\n".join(lines), encoding="utf-8")
    (folder / "words.txt").write_text("n01\tgoldfish\nn02\tnewt\nn03\ttoad", encoding="utf-8")
    (folder / "wnids.txt").write_text("\n".join(named), encoding="utf-8")


def _write_icons(folder: Path, draws: np.random.Generator) -> None:
    """Write transparent images that EXIF turns, and gray images of 12 bits, in classes that are numbers."""
    turn = Image.Exif()
    turn[274] = 6
    for kind in ("2", "10"):
        (folder / kind).mkdir(parents=True)
        for number in range(12):
            pixels = draws.integers(0, 256, (9, 8, 4), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / kind / f"{number}.png", exif=turn)
            deep = draws.integers(0, 4096, (9, 8), dtype=np.uint16)
            Image.fromarray(deep).save(folder / kind / f"{number}.tif")


def _write_bert(folder: Path) -> None:
    """Write the config of a small BERT of transformers. Its weights are drawn from a run's seed."""
    folder.mkdir()
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = {"model_type": "bert", "vocab_size": 14, "max_position_embeddings": 8, "pad_token_id": 0, **sizes}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def write(folder: Path) -> None:
    """Write the data: two small .npz and a larger one, images in folders, and weights to start from."""
    draws = np.random.default_rng(0)
    for name, side, train, test in (("one", 6, 96, 24), ("two", 6, 72, 24), ("large", 28, 40, 20)):
        arrays: dict[str, Any] = {}
        for part, count in (("train", train), ("test", test)):
            arrays[f"x_{part}"] = draws.integers(0, 256, (count, side, side), dtype=np.uint8)
            arrays[f"y_{part}"] = draws.permutation(count) % 6
        np.savez(folder / f"{name}.npz", **arrays)
    for domain in ("photo", "sketch"):
        for kind in ("ant", "bee", "cat", "dog"):
            place = folder / domain / kind
            place.mkdir(parents=True)
            for number in range(12):
                pixels = draws.integers(0, 256, (9, 8, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(place / f"{number}.png")
    _write_lists(folder)
    _write_icons(folder / "icons", np.random.default_rng(2))
    _write_tables(folder)
    _write_dated_table(folder)
    _write_leaf(folder / "leaf", np.random.default_rng(4))
    _write_texts(folder, np.random.default_rng(1))
    _write_bert(folder / "bert")
    _write_tiny_imagenet(folder / "tiny-imagenet-200", draws)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        torch.save(normalised((1, 6, 6), 6, width=6).state_dict(), folder / "weights.pt")
