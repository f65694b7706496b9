"""The runs of a setting as a table, with the keys in which their configs differ."""

from collections.abc import Mapping, Sequence

from raysim.reports.grouping import ExperimentSetting, MethodGroup, flatten
from raysim.reports.naming import show_bare
from raysim.reports.quantity_tables import NOTHING, ReportTable, TableCell, learning_of

CAPTION = "Runs"
MOST = 6  # keys with a column each
REST = "other keys"


def tabulate_runs(setting: ExperimentSetting) -> ReportTable:
    """Return a row for each run: its methods, the keys that differ, its seed, its results and its costs.

    The keys with the most different values have a column each. The others share one.
    """
    protocol = setting.protocols[0]
    learning = learning_of(setting.metric)[:2]
    by_group = _find_keys(setting.groups)
    counts = {key: len({of_group.get(key) for of_group in by_group}) for of_group in by_group for key in of_group}
    keys = sorted((key for key, count in counts.items() if count > 1), key=lambda key: -counts[key])
    shown, rest = keys[:MOST], keys[MOST:]
    headings = ["methods", *shown, *[REST] * bool(rest)]
    texts = len(headings)
    headings += ["seed", *(quantity.title for quantity in learning), "seconds", "sent, MiB"]
    rows = []
    for group, values in zip(setting.groups, by_group, strict=True):
        others = ", ".join(f"{key}={values[key]}" for key in rest if key in values)
        about = [group.label, *(values.get(key, NOTHING) for key in shown), *[others or NOTHING] * bool(rest)]
        found = [quantity.by_seed(group, protocol) for quantity in learning]
        for run in group.runs:
            one = run.summary
            results = [
                quantity.show(by_seed[one.seed]) if one.seed in by_seed else NOTHING
                for quantity, by_seed in zip(learning, found, strict=True)
            ]
            sent = (one.bytes_up + one.bytes_down) / 2**20
            texts_of_run = (*about, str(one.seed), *results, f"{one.seconds:.1f}", f"{sent:.2f}")
            rows.append([*map(TableCell, texts_of_run)])
    note = f"The results are those of {setting.label(protocol)}."
    return ReportTable(CAPTION, headings, rows, note, texts)


def _find_keys(groups: Sequence[MethodGroup]) -> list[Mapping[str, str]]:
    """Return for each group its methods' hyperparameters, and the keys that its sweep sets by row, as texts."""
    return [
        {key: show_bare(value) for key, value in {**flatten(group.methods), **group.own}.items() if value != {}}
        for group in groups
    ]
