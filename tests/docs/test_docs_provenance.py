"""The table at the foot of a page of results says where the results come from, as the runs do."""

import re
from pathlib import Path

import provenance
import pytest
import row_remarks


@pytest.mark.parametrize("page", provenance.pages(), ids=lambda page: page.stem)
def test_it_is_that_of_the_runs(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == provenance.insert_provenance(text), "run `make docs`"


def test_every_page_of_results_but_the_index_has_one() -> None:
    folder = provenance.ROOT / "docs" / "results"
    assert {page.name for page in folder.glob("*.md")} - {page.name for page in provenance.pages()} == {"README.md"}


def test_the_index_has_the_hours_of_all_runs() -> None:
    text = provenance.INDEX.read_text(encoding="utf-8")
    assert text == provenance.insert_total(text), "run `make docs`"
    assert re.search(r"The [\d,]{5,} finished runs in `results/` took \d+ hours", text)


def test_versions_and_seeds_are_read_from_the_runs() -> None:
    """results/re_fed: seeds 0 to 4, of which 3 and 4 were run with another torch."""
    row = provenance.render_provenance("<!-- results/re_fed -->").splitlines()[2]
    assert "| 0, 1, 2, 3, 4 |" in row
    assert "| 2.14.1, 2.15.0 |" in row


def test_remarks_name_the_keys_that_are_not_the_defaults() -> None:
    """TARGET in configs/sweeps/data_free.yaml; the method's defaults are 25, 10, 256, 10, 10 and 128."""
    found = row_remarks.remarks_of("data_free")
    wanted = {"kd=5.0", "calls=4", "batch=64", "steps=60", "bn=1.0", "width=16"}
    assert set(found["TARGET"]) == {f"target.{key}" for key in wanted}
    assert "FedAvg" not in found
    assert "| `data_free` | TARGET | `target.kd=5.0`, " in row_remarks.render_remarks(["data_free"])
    assert row_remarks.render_remarks(["adapters"]) == ""
