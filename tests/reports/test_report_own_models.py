"""Reports keep what clients' own models come to apart from what the global one does."""

from made_runs import make_run

from raysim.reports.grouping import group_runs
from raysim.reports.quantity_tables import tabulate_results
from raysim.reports.reading import find_runs


def test_reports_do_not_average_them_with_others(tmp_path):
    """Four runs of one setting but for what was tested make two settings; columns of clients stand in both."""
    over = {"domain_il": {"accuracy": [0.4, 0.6], "mean": 0.5, "worst": 0.4, "std": 0.1}}
    for seed in (0, 1):
        for model in ("local", "global_per_client"):
            keys = {"seed": seed, "evaluation": {"model": model}}
            make_run(tmp_path / f"{model}-{seed}", keys, tested=model, per_client=over)
    settings = group_runs(find_runs([tmp_path], []), [])
    assert [setting.label("domain_il") for setting in settings] == [
        "domain-IL of the global model on clients' own data",
        "domain-IL of clients' own models",
    ]
    for setting in settings:
        table = tabulate_results(setting, "domain_il")
        assert "worst client, %" in table.headings
        assert "40.00 ± 0.00" in [cell.text for cell in table.rows[0]]
