"""The table of requests to forget: means over seeds of what summaries have, before and after each request."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from made_runs import make_run

from raysim.reports.forgetting_table import tabulate_forgetting
from raysim.reports.grouping import group_runs
from raysim.reports.reading import find_runs

MATRIX = [[0.5, 0.5], [0.5, 0.5]]


def request(**values: Any) -> Mapping[str, Any]:
    made = {"request": 0, "round": 3, "what": "client 7", "samples": 20, "to_come": 5, "clients": 1, "exact": True}
    made |= {"dropped": {}, "stays": [], "accuracy_forgotten": [0.9, 0.5], "accuracy_rest": [0.8, 0.8]}
    return (
        made | {"attack": [0.75, None], "seconds": 0.5, "bytes_up": 2048, "bytes_down": 200, "said": "Said."} | values
    )


def test_a_row_has_means_over_seeds(tmp_path: Path) -> None:
    """Seeds 0 and 1: after the request 50 and 60% are 55%; before it both have 90%. The second request is of seed 0."""
    second = request(request=1, round=2, what="class 5", accuracy_forgotten=[None, None])
    make_run(tmp_path / "0", {"seed": 0}, {"domain_il": MATRIX}, forgotten=[request(), second])
    other = request(accuracy_forgotten=[0.9, 0.6], attack=[0.65, None], seconds=1.5, bytes_up=4096)
    make_run(tmp_path / "1", {"seed": 1}, {"domain_il": MATRIX}, forgotten=[other])
    (setting,) = group_runs(find_runs([tmp_path], []), [])
    table = tabulate_forgetting(setting)
    assert table is not None
    rows = [[cell.text for cell in row] for row in table.rows]
    assert rows[0][:4] == ["FedAvg", "round 2: class 5", "20", "-"]
    assert rows[1] == ["FedAvg", "round 3: client 7", "20", "90.0 to 55.0", "80.0", "0.700 to -", "3.0", "0.2", "1.00"]
    assert len(table.headings) == len(rows[0])
    assert table.sentences == ["Said."]


def test_runs_without_requests_have_no_table(tmp_path: Path) -> None:
    make_run(tmp_path / "0", {}, {"domain_il": MATRIX})
    (setting,) = group_runs(find_runs([tmp_path], []), [])
    assert tabulate_forgetting(setting) is None
