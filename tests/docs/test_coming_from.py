"""The configs that stand for other frameworks' experiments are configs, and the keys beside their words are keys."""

import re

import pytest
from pages import ROOT, blocks

from raysim.config import load
from raysim.engine.compatibility import check_methods

PAGE = ROOT / "docs" / "coming_from.md"
CONFIGS = blocks(PAGE, "yaml")
KEYS = [ROOT / "docs" / "config.md", *(ROOT / "docs" / "methods").glob("*.md")]
REFERENCE = "".join(page.read_text(encoding="utf-8") for page in KEYS)


@pytest.mark.parametrize("number", range(4), ids=["flower", "avalanche", "mammoth", "flgo"])
def test_its_config_is_one(number: int, tmp_path) -> None:
    path = tmp_path / "theirs.yaml"
    path.write_text(CONFIGS[number])
    config = load(path)
    check_methods(config)
    assert config.name == f"from-{('flower', 'avalanche', 'mammoth', 'flgo')[number]}"
    assert len(CONFIGS) == 4


def test_our_words_are_keys() -> None:
    rows = [line.split(" | ", 1)[1] for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    keys = {
        key for row in rows for key in re.findall(r"`([a-z_]+\.[a-z_.]+)[:`]", row) if not key.startswith("raysim.")
    }
    assert len(keys) > 20
    assert {key for key in keys if f"`{key}`" not in REFERENCE} <= {"rounds.jsonl", "client.record", "server.record"}
