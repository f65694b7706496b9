"""The site's pages besides docs/*.md: the project's own pages, files that a page links to, the gallery's figures.

MkDocs calls the functions with names that begin with on_ (mkdocs.yml: hooks). A page may link to any file of the
repository, as it does on a forge: the site has a page for each such file.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import notebook
from mkdocs.exceptions import ConfigurationError
from mkdocs.structure.files import File, Files
from site_math import DISPLAY, INLINE, convert_display, convert_inline

import raysim
from raysim.algorithms import GROUPS

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / ".gallery"  # where tools/gallery.py runs the gallery's commands
OWN = {  # the repository's pages outside docs/, and what they are called here
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "AGENTS.md": "agents.md",
    "CHANGELOG.md": "changelog.md",
}
SECTIONS = {  # a page of docs/ that stands in none of these is put into the last
    "Home": ["index.md"],
    "Learn": [
        "concepts.md",
        "tutorial.md",
        "first_pretrained.md",
        "experiments.md",
        "writing_a_method.md",
    ],
    "Choose": ["choose.md", "scenarios.md", "gallery.md", "leaderboard.md", "coming_from.md"],
    "Methods": ["methods/README.md", "methods/*.md"],
    "Reference": ["config.md", "command_line.md", "api.md", "run_directory.md", "metrics.md", "figures.md"],
    "Results": ["results/README.md", "claims.md", "results/*.md", "twins.md", "reproducing.md", "benchmarks.md"],
    "Explain": ["architecture.md", "statistics.md"],
    "Project": [
        "stability.md",
        "security.md",
        "licenses.md",
        "contributing.md",
        "agents.md",
        "releasing.md",
        "changelog.md",
    ],
    "How to": [
        "skill.md",
        "own_components.md",
        "check.md",
        "sweeps.md",
        "live.md",
        "checkpoints.md",
        "clients_in_time.md",
        "datasets.md",
        "tables.md",
        "text.md",
        "pretrained.md",
        "detection.md",
        "adapters.md",
        "own_models.md",
        "large_models.md",
        "forgetting.md",
        "cluster.md",
        "operators.md",
        "*.md",
    ],
}
NOT_SEARCHED = ("files/*", "decisions/*")  # for those who change raysim; links lead there
BOOSTS = {  # how much the search prefers a page's sections, if not by 1: the first pattern counts
    "api.md": 0.1,
    "changelog.md": 0.1,
    "contributing.md": 0.1,
    "agents.md": 0.1,
    "architecture.md": 0.1,
    "releasing.md": 0.1,
    "benchmarks.md": 0.3,
    "twins.md": 0.3,
    "results/*": 0.3,
}
ORDER = ["Home", "Learn", "Choose", "How to", "Methods", "Reference", "Explain", "Results", "Project"]
LINK = re.compile(r"(?P<before>\]\()(?P<path>[^)\s:#]+)(?P<anchor>#[^)\s]*)?(?=\))")
FENCE = re.compile(r"^ *```.*?^ *```|`[^`\n]*`", re.DOTALL | re.MULTILINE)
ARXIV = re.compile(r"(?<!\[)\barXiv[:\s](?P<number>\d{4}\.\d{4,5})\b")
PLOTS = re.compile(r"^<!-- figures: (?P<pattern>\S+)(?: (?P<words>[^\n]+))? -->$", re.MULTILINE)


def on_config(config: Any) -> Any:
    """Put the pages in their sections, those that are new too; mike's build of a version offers the others."""
    config.site_name = f"raysim {raysim.__version__}"
    if "MIKE_DOCS_VERSION" in os.environ:  # otherwise the pages would ask for a list of versions that is not there
        config.extra["version"] = {"provider": "mike", "default": "latest"}
    pages = [str(path.relative_to(ROOT / "docs")) for path in _pages()]
    parts = order_pages([*OWN.values(), *(page for page in pages if not page.startswith("decisions/"))])
    config.nav = [{name: group_methods(found) for name, found in part.items()} for part in parts]
    return config


def order_pages(pages: list[str]) -> list[dict[str, list[str]]]:
    """Return the sections with their pages, each in the first of SECTIONS that has its name or a pattern for it."""
    left, placed = sorted(pages), {}
    for section, wanted in SECTIONS.items():
        found = [page for pattern in wanted for page in left if Path(page).match(pattern)]
        placed[section] = list(dict.fromkeys(found))
        left = [page for page in left if page not in found]
    return [{section: placed[section]} for section in ORDER if placed[section]]


def rank_in_search(page: str) -> dict[str, Any]:
    """Return what the theme's search reads about a page: whether it is left out, and how much it is preferred."""
    if any(Path(page).match(pattern) for pattern in NOT_SEARCHED) or page.startswith("files/"):
        return {"exclude": True}
    return {"boost": next((boost for pattern, boost in BOOSTS.items() if Path(page).match(pattern)), 1)}


def group_methods(pages: list[str]) -> list[Any]:
    """Return a section's pages with the methods' pages in their groups. Pages of no method come first."""
    found = {
        group: [page for name in names if (page := f"methods/{name}.md") in pages] for group, names in GROUPS.items()
    }
    grouped = {page for members in found.values() for page in members}
    alone = [page for page in pages if page not in grouped]
    return [*alone, *({group: members} for group, members in found.items() if members)]


def on_files(files: Files, config: Any) -> Files:
    """Add the repository's own pages, a page for each file that one links to, the filter, and the gallery's figures."""
    for name, page in OWN.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text(encoding="utf-8")))
    for path in sorted({path for page in [*(ROOT / name for name in OWN), *_pages()] for path in _linked(page)}):
        files.append(File.generated(config, _page_of(path), content=_show_file(path)))
    filter_of_tables = (ROOT / "raysim" / "reports" / "templates" / "budget.js").read_text(encoding="utf-8")
    files.append(File.generated(config, "assets/budget.js", content=filter_of_tables))
    for figure in FIGURES.rglob("*.svg"):
        files.append(File.generated(config, f"gallery/{figure.relative_to(FIGURES)}", abs_src_path=str(figure)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Make links between the repository's files links between pages, and put in the gallery's figures."""
    uri = page.file.src_uri
    page.meta["search"] = rank_in_search(uri)
    names = {page: path for path, page in OWN.items()}
    source = ROOT / names.get(uri, f"docs/{uri}")

    def relink(link: re.Match[str]) -> str:
        target = os.path.relpath(_page_of((source.parent / link["path"]).resolve()), Path(uri).parent)
        return f"{link['before']}{target}{link['anchor'] or ''}"

    def show(mark: re.Match[str]) -> str:
        found = sorted(FIGURES.glob(mark["pattern"]))
        if not found:
            raise ConfigurationError(f"docs/{uri}: no figures {mark['pattern']} in {FIGURES}: run tools/gallery.py")
        return "\n\n".join(
            f"![{mark['words'] or figure.stem}](gallery/{figure.relative_to(FIGURES)})" for figure in found
        )

    if uri.startswith("files/"):
        return markdown

    def improve(text: str) -> str:
        linked = ARXIV.sub(r"[arXiv \g<number>](https://arxiv.org/abs/\g<number>)", LINK.sub(relink, text))
        return INLINE.sub(convert_inline, linked)

    try:
        return PLOTS.sub(show, DISPLAY.sub(convert_display, _outside_code(markdown, improve)))
    except ValueError as error:
        raise ConfigurationError(f"docs/{uri}: {error}") from error


def on_post_build(config: Any) -> None:
    """Have the theme's script load nothing from elsewhere, as it would for diagrams and for browsers of before 2020."""
    for script in Path(config.site_dir).glob("assets/javascripts/bundle.*.js"):
        script.write_text(script.read_text(encoding="utf-8").replace("https://unpkg.com/", "absent/"), encoding="utf-8")


def _show_file(path: Path) -> str:
    """Return a file of the repository as a page."""
    text, kind = path.read_text(encoding="utf-8"), path.suffix.removeprefix(".").replace("py", "python")
    if kind == "ipynb":
        docs = os.path.relpath(".", Path(_page_of(path)).parent)
        return notebook.show(json.loads(text), f"{docs}/")
    return f"# {path.relative_to(ROOT)}\n\n````{kind}\n{text}````\n"


def _pages() -> list[Path]:
    return sorted((ROOT / "docs").rglob("*.md"))


def _linked(page: Path) -> Iterator[Path]:
    """Yield the files that a page links to and that are no pages of the site yet."""
    for link in LINK.finditer(FENCE.sub("", page.read_text(encoding="utf-8"))):
        path = (page.parent / link["path"]).resolve()
        if path.is_file() and _page_of(path).startswith("files/"):
            yield path


def _page_of(path: Path) -> str:
    """Return where a file of the repository is in the site."""
    name = path.relative_to(ROOT).as_posix()
    return OWN.get(name) or (name.removeprefix("docs/") if name.startswith("docs/") else f"files/{name}.md")


def _outside_code(text: str, change: Callable[[str], str]) -> str:
    """Return text with everything changed but blocks and spans of code."""
    parts, codes = FENCE.split(text), FENCE.findall(text)
    return "".join(change(part) + code for part, code in zip(parts, [*codes, ""], strict=True))
