from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from raysim.config import lookup

BASE = """\
name: demo
dataset: {name: digits}
scenario:
  kind: domain_incremental
  tasks: 3
clients: {count: 4}
model: {name: net}
training:
  rounds_per_task: 2
  optimizer: {name: sgd, lr: 0.1}
"""


@pytest.fixture(scope="module")
def tables() -> Iterator[None]:
    """Put the tests' own tables in the place of raysim's."""
    with pytest.MonkeyPatch.context() as patch:
        for kind, name in (("dataset", "DATASETS"), ("model", "MODELS"), ("method", "METHODS")):
            patch.setitem(lookup.KINDS, kind, replace(lookup.KINDS[kind], table=f"named_components:{name}"))
        yield


@pytest.fixture
def run_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return run.yaml, a valid config in the working directory."""
    monkeypatch.chdir(tmp_path)
    path = Path("run.yaml")
    path.write_text(BASE)
    return path
