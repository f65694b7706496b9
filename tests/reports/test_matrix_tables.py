"""Tables of whole matrices on the pages of results are means over the seeds of the packed runs."""

from pathlib import Path

import matrix_tables
import pytest
from made_runs import make_run
from pack_results import pack

from raysim.config.yaml_text import to_yaml
from raysim.reports.packed import read_packed


@pytest.mark.parametrize("page", [*matrix_tables.pages()], ids=lambda page: page.stem)
def test_it_is_that_of_the_runs(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == matrix_tables.insert_matrices(text), "run `make docs`"


def test_it_has_the_mean_over_the_seeds_without_trials(tmp_path: Path) -> None:
    """On task 1 after task 2 the mean of 0.6 and 0.7 is 65.0%. The trial would move it."""
    sweep = tmp_path / "board"
    runs = {}
    for folder, seed, end in (("validation/FL, lr=1", 0, 0.0), ("FL", 0, 0.6), ("FL", 1, 0.7)):
        make_run(sweep / folder / f"seed-{seed}", {"seed": seed}, {"domain_il": ((0.8, 0.25), (end, 0.5))}, seed=seed)
        split = {"evaluation.split": "validation"} if end == 0 else {}
        runs[f"{folder}/seed-{seed}"] = {"seed": str(seed), "methods": folder.removeprefix("validation/")} | split
    (sweep / "sweep.yaml").write_text(to_yaml({"name": "board", "runs": runs}))
    assert matrix_tables.render_matrices(read_packed(pack(sweep))).splitlines()[2:] == [
        "| FL | 1 | 80.0 | 25.0 |",
        "|  | 2 | 65.0 | 50.0 |",
    ]
