"""Texts about 14 kinds of things, as JSON lines for raysim: python examples/dbpedia14.py [FILE].

Downloads 14,000 abstracts of DBpedia, 1,000 of each kind (4 MB), and writes FILE, by default dbpedia14.jsonl in the
folder of raysim's datasets. They are a sample of DBpedia-14 (Zhang, Zhao and LeCun, NeurIPS 2015, arXiv 1509.01626).
Jilin University's DeepTextClustering published it. DBpedia's text is under CC BY-SA. URL may be a file too.
"""

import csv
import io
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.request import urlopen

from raysim.data.loading import resolve_root

COMMIT = "b84d28cbe9db02e51b3f5fa9c6e31e540b3ad219"
URL = f"https://raw.githubusercontent.com/KEAML-JLU/DeepTextClustering/{COMMIT}/data/dbpedia/train.csv"
TOPICS = (
    *("Company", "EducationalInstitution", "Artist", "Athlete", "OfficeHolder", "MeanOfTransportation", "Building"),
    *("NaturalPlace", "Village", "Animal", "Plant", "Album", "Film", "WrittenWork"),
)


def convert(lines: Iterable[str]) -> Iterator[str]:
    """Yield a line of JSON, a text and its topic, for each line `number of the topic,text`."""
    for number, text in csv.reader(lines):
        yield json.dumps({"text": text, "label": TOPICS[int(number)]}) + "\n"


def fetch(file: Path, url: str = URL) -> int:
    """Write the texts of `url` to a file and return how many they are."""
    with urlopen(url, timeout=60) as answer:
        lines = [*convert(io.StringIO(answer.read().decode()))]
    file.write_text("".join(lines))
    return len(lines)


if __name__ == "__main__":
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else resolve_root(None) / "dbpedia14.jsonl"
    print(f"{fetch(place):,} texts in {place}")
