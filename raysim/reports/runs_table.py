"""The runs of a setting as a table, with the keys in which their configs differ."""

from collections.abc import Mapping, Sequence

from raysim.reports.grouping import ExperimentSetting, MethodGroup, flatten
from raysim.reports.naming import show_bare
from raysim.reports.quantity_tables import NOTHING, ReportTable, TableCell, learning_of

CAPTION = "Results and configs, a row for each run"
MOST = 4  # keys with a column each
REST = "other keys"


def tabulate_runs(setting: ExperimentSetting) -> ReportTable:
    """Return a row for each run: its methods, its seed, its results and costs, and the keys that differ.

    The keys in which most groups differ from the others have a column each. The other keys share one, without the
    values that most groups have.
    """
    protocol = setting.protocols[0]
    learning = learning_of(setting.metric)[:2]
    by_group = _find_keys(setting.groups)
    columns = {key: [of_group.get(key) for of_group in by_group] for of_group in by_group for key in of_group}
    usual = {key: max(column, key=column.count) for key, column in columns.items()}
    unusual = {key: sum(value != usual[key] for value in column) for key, column in columns.items()}
    keys = sorted((key for key, count in unusual.items() if count), key=lambda key: -unusual[key])
    shown, rest = keys[:MOST], keys[MOST:]
    results = [quantity.title for quantity in learning]
    rows = []
    for group, values in zip(setting.groups, by_group, strict=True):
        others = ", ".join(f"{key}={values[key]}" for key in rest if key in values and values[key] != usual[key])
        config = [*(values.get(key, NOTHING) for key in shown), *[others or NOTHING] * bool(rest)]
        found = [quantity.by_seed(group, protocol) for quantity in learning]
        for run in group.runs:
            one = run.summary
            numbers = [
                quantity.show(by_seed[one.seed]) if one.seed in by_seed else NOTHING
                for quantity, by_seed in zip(learning, found, strict=True)
            ]
            sent = (one.bytes_up + one.bytes_down) / 2**20
            texts = (group.label, str(one.seed), *numbers, f"{one.seconds:.1f}", f"{sent:.2f}", *config)
            rows.append([*map(TableCell, texts)])
    headings = ("methods", "seed", *results, "seconds", "sent, MiB", *shown, *[REST] * bool(rest))
    return ReportTable(CAPTION, headings, rows, f"The results are those of {setting.label(protocol)}.")


def _find_keys(groups: Sequence[MethodGroup]) -> list[Mapping[str, str]]:
    """Return for each group its methods' hyperparameters, and the keys that its sweep sets by row, as texts."""
    return [
        {key: show_bare(value) for key, value in {**flatten(group.methods), **group.own}.items() if value != {}}
        for group in groups
    ]
