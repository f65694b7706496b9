"""What was run in a setting, as tables: its config, versions and commits, and the keys in which methods differ."""

from collections.abc import Iterable

from raysim.config.error_text import shorten
from raysim.reports.grouping import ExperimentSetting, flatten, keys_of_setting
from raysim.reports.naming import show_bare
from raysim.reports.quantity_tables import NOTHING, ReportTable, TableCell

MOST = 6  # values that a cell lists
LONGEST = 60  # letters of a value
OFF: tuple[object, ...] = (None, [], {}, "", "none", False)  # 0 is False, too
ABOUT = (
    "Keys that are null, none, false, 0 or empty are omitted. Where methods differ, this is the value of most of them, "
    "and the table of hyperparameters has the others."
)
VERSIONS = {"raysim": "raysim", "commit": "git", "torch": "torch", "Ray": "ray", "digest of the data": "data"}
IF_KNOWN = {"digest of the weights": "weights", "machine": "machine"}  # not in all summaries


def tabulate_facts(setting: ExperimentSetting) -> ReportTable:
    """Return a table of a setting's config by block, with the values of most methods, and of its runs' versions."""
    found: dict[str, list[str]] = {}
    for key, value in _find_usual(setting).items():
        block, _, name = key.partition(".")
        if value not in OFF:
            found.setdefault(block, []).append(f"{'' if name in ('name', 'kind') else name} {_show(value)}".strip())
    summaries = [run.summary for run in setting.runs]
    facts = {block: ", ".join(texts) for block, texts in found.items()}
    facts["rounds"] = _list(str(one.rounds) for one in summaries)
    facts["seeds"] = _list(str(one.seed) for one in summaries)
    for name, key in VERSIONS.items():
        facts[name] = _list((one.versions.get(key) or NOTHING)[:12] for one in summaries)
    for name, key in IF_KNOWN.items():
        if any(one.versions.get(key) for one in summaries):
            texts = (one.versions.get(key) or NOTHING for one in summaries)
            facts[name] = _list(text if key == "machine" else text[:12] for text in texts)
    rows = [[TableCell(name), TableCell(text)] for name, text in facts.items()]
    return ReportTable("What was run", ("block", "keys"), rows, ABOUT, texts=2)


def tabulate_hyperparameters(setting: ExperimentSetting) -> ReportTable | None:
    """Return a table of the methods' hyperparameters and of their values that are not the usual ones; None without."""
    usual = _find_usual(setting)
    rows = []
    for group in setting.groups:
        other = {key: value for key, value in group.own.items() if value != usual[key]}
        texts = [f"{key}={_show(value)}" for key, value in {**flatten(group.methods), **other}.items() if value != {}]
        rows.append([TableCell(group.label), TableCell(", ".join(texts) or NOTHING)])
    caption = "Hyperparameters, and values that most methods do not have"
    told = any(text.text != NOTHING for _, text in rows)
    return ReportTable(caption, ("methods", "keys"), rows, texts=2) if told else None


def _find_usual(setting: ExperimentSetting) -> dict[str, object]:
    """Return for each key the value that most methods of a setting have."""
    every = [keys_of_setting(group.runs[0]) for group in setting.groups]
    keys = dict.fromkeys(key for values in every for key in values)
    columns = {key: [values.get(key) for values in every] for key in keys}
    return {key: max(column, key=column.count) for key, column in columns.items()}


def _show(value: object) -> str:
    return shorten(show_bare(value), LONGEST)


def _list(texts: Iterable[str]) -> str:
    """Return the different texts, with how many more there are."""
    found = [*dict.fromkeys(texts)]
    return "; ".join(found[:MOST]) + (f" and {len(found) - MOST} more" if len(found) > MOST else "")
