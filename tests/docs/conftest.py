import gzip
import os
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from pages import ROOT
from small import small

import raysim
from raysim.config import load


@pytest.fixture(scope="session")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working directory that looks like a checkout in which something was run, and may be written to."""
    place = tmp_path_factory.mktemp("checkout")
    for folder in ("configs", "examples"):
        (place / folder).symlink_to(ROOT / folder)
    (place / "results").mkdir()
    for sweep in (ROOT / "results").iterdir():  # a run of each, so that reports have little to draw
        with gzip.open(sweep, "rt", encoding="utf-8") as whole, gzip.open(place / "results" / sweep.name, "wt") as part:
            part.writelines(islice(whole, 2))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setattr(sys, "path", [*sys.path, os.fspath(place)])
        patch.setenv("MPLBACKEND", "Agg")
        patch.setenv("COLUMNS", "200")
        config = load("configs/split_digits.yaml")
        for name, methods in (
            ("one", {}),
            ("two", {"er": {}}),
            ("three", {"der": {}}),
            ("four", {"ewc": {}}),
            ("gallery/one", {}),
            ("unequal/one", {}),
            ("tutorial/one", {}),
        ):
            raysim.run(load(config, small(config)), {"methods": methods}, out=f"runs/{name}", local=True)
        yield place
