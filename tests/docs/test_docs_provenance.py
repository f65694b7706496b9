"""The table at the foot of a page of results says where the results come from, as the runs do."""

import re
from pathlib import Path
from typing import get_type_hints

import provenance
import published_values
import pytest
import row_remarks
from pydantic import TypeAdapter

from raysim.config.lookup import resolve

STATED = [
    page for page in published_values.PAGES.glob("*.md") if published_values.COMMENT.search(page.read_text("utf-8"))
]


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


def test_the_index_of_methods_has_the_remarks_of_their_pages() -> None:
    text = provenance.METHODS.read_text(encoding="utf-8")
    assert text == provenance.insert_remarks(text), "run `make docs`"


def test_all_results_have_remarks() -> None:
    """Each sweep is on a page of results, or on another page, of which the index of methods has the remarks."""
    on_pages = {sweep for page in provenance.pages() for sweep in provenance.sweeps_of(page.read_text("utf-8"))}
    packed = {file.name.removesuffix(".jsonl.gz") for file in (provenance.ROOT / "results").iterdir()}
    assert on_pages.isdisjoint(provenance.sweeps_elsewhere())
    assert packed == on_pages | set(provenance.sweeps_elsewhere())


def test_versions_and_seeds_are_read_from_the_runs() -> None:
    """results/re_fed: seeds 0 to 4, of which 3 and 4 were run with another torch."""
    row = provenance.render_provenance("<!-- results/re_fed -->").splitlines()[2]
    assert "| 0, 1, 2, 3, 4 |" in row
    assert "| 2.14.1, 2.15.0 |" in row


def test_a_row_says_how_inputs_are_normalized() -> None:
    """SPECIAL's run of PACS has raw pixels, LANDER's images the dataset's moments, FedCIL's 0.5, and MiniLM ids."""
    kinds = {"special_pacs": "none", "data_free": "given moments, standard", "adapters_banking77": "texts"}
    kinds["pretrained_pacs"] = "the network's"
    for sweep, kind in kinds.items():
        assert f" | {kind} | " in provenance.render_provenance(f"<!-- results/{sweep} -->").splitlines()[2]


def test_remarks_name_the_keys_that_are_not_the_published_values() -> None:
    """TARGET in the earlier sweep with an MLP. Its page has what the authors' code has, for two datasets."""
    found = row_remarks.remarks_of("data_free_mlp")
    wanted = {
        "kd=5.0": "25",
        "calls=4": "10 or 200",
        "batch=64": "256",
        "steps=60": "10 or 50",
        "bn=1.0": "0.1 or 10",
        "width=16": "128",
    }
    assert set(found["TARGET"]) == {f"`target.{key}` (published {values})" for key, values in wanted.items()}
    assert '`lander.moments="dataset"` (published "learned")' in found["LANDER"]
    assert "FedAvg" not in found
    table = row_remarks.render_remarks(["data_free_mlp"])
    assert "| `data_free_mlp` | TARGET | `target.kd=5.0` (published 25), " in table


def test_a_default_that_is_not_the_published_value_is_a_remark() -> None:
    """L2P's paper has 0.5, and raysim 0.1. No strength of EWC is published."""
    assert list(row_remarks.differences("fed_l2p", {"pull": 0.1})) == [("pull", 0.1, "published 0.5")]
    assert list(row_remarks.differences("fed_l2p", {"pull": 0.5})) == [("pull", 0.5, "published, default 0.1")]
    assert list(row_remarks.differences("ewc", {"strength": 1.0, "mode": "online"})) == [
        ("strength", 1.0, "default 10.0")
    ]
    assert list(row_remarks.differences("ccvr", {"virtual": 2001})) == [("virtual", 2001, "published 100 to 2000")]


def test_values_of_a_row_s_settings_are_one_remark() -> None:
    """A row of the leaderboard may have another size of a sample in each setting, and none is the default."""
    assert row_remarks.show("er.sample_size", ["16", "50", "8"], "default null") == (
        "`er.sample_size=8, 16, 50` (default null)"
    )


def test_papers_of_the_repository_add_their_values() -> None:
    """SPECIAL's lambda for Digit-10, VLCS, PACS and DN4IL, and C-FLAG's size of a sample."""
    assert str(published_values.published_of("special")["lam"]) == "0.05, 0.15, 0.25 or 0.4"
    assert str(published_values.published_of("c_flag")["sample_size"]) == "200"
    assert "beta" not in published_values.published_of("der")  # 0 in the papers' DER, and not said of DER++


def test_methods_without_a_published_value_are_named() -> None:
    assert row_remarks.unknown_of(["special_pacs"]) == ["er", "fedprox"]
    assert "without a published value: `er`, `fedprox`." in row_remarks.render_remarks(["special_pacs"])


@pytest.mark.parametrize("page", STATED, ids=lambda page: page.stem)
def test_a_page_states_values_of_keys_that_its_method_has(page: Path) -> None:
    keys = published_values.published_of(page.stem)
    assert keys
    assert keys.keys() <= published_values.defaults_of(page.stem).keys()
    hints = get_type_hints(resolve("method", page.stem), include_extras=True)
    for key, known in keys.items():
        for value in known.values:
            TypeAdapter(hints[key]).validate_python(value)
