"""Join text files into one of several domains, each with the same numbers of training and test texts.

python examples/join_texts.py OUT.jsonl.gz TRAIN TEST NAME=TEXTS.jsonl[.gz] [NAME=MORE.jsonl.gz ...]

Each line of OUT has `text`, `domain` (NAME) and `split`. Lines with `split: train` or without are for training, those
with `split: test` for testing. A file of test lines alone is divided: its last TEST lines are for testing. Of both,
texts are drawn at random, with the same seed for each file.
"""

import gzip
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path


def join(out: Path, train: int, test: int, files: dict[str, Path]) -> None:
    """Write the texts of all files, in the order of the files.

    Raises:
        SystemExit: a file has too few lines.
    """
    lines = [line for name, file in files.items() for line in choose(name, file, train, test)]
    with gzip.GzipFile(out, "wb", mtime=0) as written:  # no time inside: the same texts make the same bytes
        written.write("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode())


def choose(name: str, file: Path, train: int, test: int) -> Iterator[dict[str, str]]:
    """Yield training texts of a file in a random order, then test texts: many files are sorted by class."""
    draw = random.Random(0)
    with gzip.open(file, "rt", encoding="utf-8") if file.suffix == ".gz" else file.open(encoding="utf-8") as opened:
        rows = [json.loads(line) for line in opened]
    said_test = [row for row in rows if row.get("split") == "test"]
    others = [row for row in rows if row.get("split") in (None, "train")]
    if not others:  # a file of test texts alone: it is divided
        others, said_test = said_test[:-test], said_test[-test:]
    if len(others) < train or len(said_test) < test:
        raise SystemExit(
            f"{file}: found {len(others)} training and {len(said_test)} test texts, needed: {train}, {test}"
        )
    for split, chosen in (("train", draw.sample(others, train)), ("test", draw.sample(said_test, test))):
        for row in chosen:
            yield {"text": row["text"], "domain": name, "split": split}


if __name__ == "__main__":
    if len(sys.argv) < 5 or "--help" in sys.argv:
        sys.exit(__doc__)
    target, numbers, named = Path(sys.argv[1]), sys.argv[2:4], (item.split("=", 1) for item in sys.argv[4:])
    join(target, int(numbers[0]), int(numbers[1]), {key: Path(value) for key, value in named})
