"""The files of a report.

Documents are the templates filled in. report.csv has one row per run in summary.json's units. means.csv has the result
tables with all their digits.
"""

import base64
import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape

from raysim.reports.content import Plot, Report, count_words
from raysim.reports.grouping import ExperimentSetting, MethodGroup
from raysim.reports.latex import escape_latex, fold, split_table
from raysim.reports.paper_tables import gains_table, main_table
from raysim.reports.quantity_tables import COSTS, FAIRNESS, OVER_TIME, express, learning_of
from raysim.reports.reading import FinishedRun
from raysim.system.colors import FAINT, INK, LIGHT, PAPER, style_page
from raysim.system.errors import single_line

OF_THE_RUN = (
    *("rounds", "updates", "seconds", "seconds_per_round"),
    *("bytes_up", "bytes_down", "peak_memory_bytes", "model_sha256"),
)
PLACES = re.compile(r' (?:d|x|y)="[^"]*"')  # attributes of an SVG in points
DECIMALS = re.compile(r"(\.\d\d)\d+")  # a hundredth of a point cannot be seen, and makes pages a tenth smaller
BETWEEN = re.compile(r">\n\s*<")  # indentation
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how text begins that spreadsheets compute


def report_to_json(report: Report) -> dict[str, object]:
    """Return what `raysim report --json` prints: the rows of report.csv and means.csv as numbers, by column."""
    return {
        "directory": str(report.out),
        "runs": [*_run_rows(report)],
        "means": [*_mean_rows(report)],
        "left_out": [*report.left_out],
    }


def runs_to_csv(report: Report) -> str:
    """Return the runs as CSV, with the exact numbers of summary.json. Absent values are empty."""
    return _to_csv(_run_rows(report))


def means_to_csv(report: Report) -> str:
    """Return mean and sample standard deviation over seeds of every quantity as CSV, a row per group and protocol.

    Units are those of the tables. Absent values are empty.
    """
    return _to_csv(_mean_rows(report))


def _run_rows(report: Report) -> Iterator[Mapping[str, object]]:
    for section in report.sections:
        for group in section.setting.groups:
            yield from (dict(_run_row(section.setting, group, run)) for run in group.runs)


def _mean_rows(report: Report) -> Iterator[Mapping[str, object]]:
    for section in report.sections:
        for protocol in section.setting.protocols:
            setting = section.setting.evaluated(protocol)
            yield from (dict(_mean_row(setting, group, protocol)) for group in setting.groups)


def _to_csv(rows: Iterator[Mapping[str, object]]) -> str:
    """Return rows as CSV, with a column for every key. None and absent values are empty."""
    every = list(rows)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(key for row in every for key in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _to_cell(value) for key, value in row.items()} for row in every)
    return text.getvalue()


def _to_cell(value: object) -> object:
    """Return a value that no spreadsheet evaluates as a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def _run_row(setting: ExperimentSetting, group: MethodGroup, run: FinishedRun) -> Iterator[tuple[str, object]]:
    yield from (("directory", str(run.directory)), ("setting", setting.number), ("label", group.label))
    yield from (("name", run.summary.name), ("seed", run.summary.seed), ("methods", json.dumps(run.methods)))
    if setting.top_k > 1:
        yield "top_k", setting.top_k
    for key, value in {**setting.differing, **group.own}.items():
        yield key, value if isinstance(value, str | int | float | None) else json.dumps(value)
    for protocol, values in run.summary.evaluation.items():
        yield from ((f"{protocol}.{key}", value) for key, value in values.items() if not isinstance(value, list))
    for protocol, clients in (run.summary.per_client or {}).items():
        yield from ((f"{protocol}.clients.{key}", value) for key, value in clients.items() if key != "accuracy")
    yield from ((key, getattr(run.summary, key)) for key in OF_THE_RUN)


def _mean_row(setting: ExperimentSetting, group: MethodGroup, protocol: str) -> Iterator[tuple[str, object]]:
    yield from (("setting", setting.number), ("title", setting.title), ("protocol", protocol))
    yield from (("methods", group.label), ("seeds", len(group.runs)))
    if setting.top_k > 1:
        yield "top_k", setting.top_k
    over_time = [express(quantity, setting.metric) for quantity in OVER_TIME]
    for quantity in (*learning_of(setting.metric), *over_time, *FAIRNESS, *COSTS):
        found = quantity.average_group(group, protocol)
        yield quantity.title, found and found.mean
        yield f"{quantity.title}, std", found and found.std


@cache
def _open_templates() -> Environment:
    templates = Environment(
        loader=PackageLoader("raysim.reports"),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters |= {"markdown": escape_markdown, "inline": inline_svg, "data_uri": encode_image}
    templates.filters |= {"link_settings": link_settings, "counted": count_words}
    templates.filters |= {"latex": escape_latex, "fold": fold, "in_parts": split_table}
    return templates


def fill_template(name: str, report: Report, **more: object) -> str:
    """Return report.md, report.tex, report.html or a setting's page.

    Markdown links the plots relative to the report's directory. A page has its plots inside it and loads nothing. With
    several settings, report.html has no plots of single settings, and links their pages. LaTeX needs the packages
    booktabs and graphicx.
    """
    alone = report.sections if len(report.sections) == 1 else []
    given = {"filtered": any(section.filtered for section in alone), **more}
    return _open_templates().get_template(name).render(report=report, colors=style_page(), **given)


def fill_setting_pages(report: Report) -> Iterator[tuple[str, str]]:
    """Yield the path of each setting's page from report.html, and its text; nothing for one setting."""
    pages = report.pages if len(report.pages) > 1 else []
    links = [(section.heading, path.rpartition("/")[2]) for section, path in pages]
    files = {section.setting.number: file for (section, _), (_, file) in zip(pages, links, strict=True)}
    for place, (section, path) in enumerate(pages):
        around = {"before": links[place - 1] if place else None, "after": next(iter(links[place + 1 :]), None)}
        given = {"section": section, "filtered": section.filtered, "files": files, **around}
        yield path, fill_template("setting.html", report, **given)


def link_settings(line: str, files: Mapping[int, str]) -> Markup:
    """Return a line as HTML, in which the numbers of settings link to their pages."""

    def link(found: re.Match[str]) -> str:
        file = files.get(int(found[1]))
        return found[0] if file is None else f'<a href="{file}">{found[0]}</a>'

    return Markup(re.sub(r"\bsetting (\d+)\b", link, str(escape(line))))


def escape_markdown(text: str) -> str:
    """Escape text for Markdown, for a line or a cell of a table."""
    return re.sub(r"([\\`*_{}\[\]<>#|~$&])", r"\\\1", single_line(text))


def inline_svg(plot: Plot) -> Markup:
    """Return a plot as an element of the page, with unique ids, the page's colors, and its caption as label."""
    text = plot.file.read_text(encoding="utf-8")
    text = re.sub(
        r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", text[text.index("<svg") :], flags=re.DOTALL
    )
    used = {*re.findall(r"""(?:url\(|href=")#([^")]+)""", text)}
    text = re.sub(r' id="([^"]*)"', lambda found: f' id="{plot.stem}-{found[1]}"' if found[1] in used else "", text)
    text = re.sub(r"""((?:url\(|href=")#)""", rf"\g<1>{plot.stem}-", text)
    text = PLACES.sub(lambda found: DECIMALS.sub(r"\1", found[0]), BETWEEN.sub("><", text))
    text = text.replace(f"fill: {LIGHT['paper']}", "fill: none", 1)  # the paper
    text = text.replace(INK, "currentColor").replace(FAINT, "var(--line)").replace(PAPER, "var(--paper)")
    # what is in it was escaped when it was drawn
    return Markup(text.replace("<svg", f'<svg role="img" aria-label="{escape(plot.caption)}"', 1))


def encode_image(image: Plot) -> str:
    """Return a picture as the address of an image that is inside the page."""
    return f"data:image/png;base64,{base64.b64encode(image.file.read_bytes()).decode()}"


FORMATS: dict[str, Callable[[Report], str]] = {
    "report.csv": runs_to_csv,
    "means.csv": means_to_csv,
    "tables/main.tex": lambda report: main_table([section.setting for section in report.sections]),
    "tables/gains.tex": lambda report: gains_table([section.setting for section in report.sections]),
    **{name: partial(fill_template, name) for name in ("report.md", "report.tex", "report.html")},
}
