"""The guide to writing a method shows all of EWC, and the numbers that its commands give."""

import re
from pathlib import Path

import pytest
from pages import ROOT, blocks
from small import small

import raysim
from raysim.config import load

PAGE = ROOT / "docs" / "writing_a_method.md"
SOURCE = (ROOT / "raysim" / "algorithms" / "ewc.py").read_text(encoding="utf-8")
QUICKSTART = "configs/quickstart.yaml"


def lines_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]


def test_its_blocks_are_all_of_ewc_below_the_docstring() -> None:
    shown = "\n".join(block for block in blocks(PAGE, "python") if block in SOURCE)
    assert lines_of(shown) == lines_of(SOURCE[SOURCE.index("from __future__") :])


def test_the_first_method_on_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its term has a gradient unless its strength is 0, with which the run is FedAvg's."""
    first = blocks(PAGE, "python")[0]
    (tmp_path / "my_method.py").write_text(first)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    found = {}
    for strength in (None, 0.0, 0.1):
        methods = {} if strength is None else {"my_method:SmallLogits": {"strength": strength}}
        config = load(ROOT / QUICKSTART, {"methods": methods, "logging.tensorboard": False})
        run = raysim.run(load(config, small(config)), out=tmp_path / str(strength), local=True)
        found[strength] = run.model_sha256
    assert found[None] == found[0.0] != found[0.1]


@pytest.mark.soak
def test_the_table_has_what_the_commands_above_it_give(tmp_path: Path) -> None:
    """Up to a point: other versions of torch give other last digits. FedAvg is the first column."""
    text = PAGE.read_text(encoding="utf-8")
    given = re.findall(rf"^raysim run {QUICKSTART} '(methods=.*?)'", text, re.MULTILINE)
    assert all("ewc" in methods for methods in given)
    rows = {
        name: [float(figure) for figure in re.findall(r"([\d.]+)%", figures)]
        for name, figures in re.findall(r"^\| (forgetting|average accuracy) \|(.*)$", text, re.MULTILINE)
    }
    runs = [
        raysim.run(QUICKSTART, [methods, "logging.tensorboard=false"], out=tmp_path / str(number), local=True)
        for number, methods in enumerate(["methods={}", *given])
    ]
    assert len(runs) == 3
    assert rows["forgetting"] == pytest.approx([100 * (run.forgetting() or 0) for run in runs], abs=1)
    assert rows["average accuracy"] == pytest.approx([100 * (run.accuracy() or 0) for run in runs], abs=1)
