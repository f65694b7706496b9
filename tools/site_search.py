"""Does the site's search find what people look for? They type a question, and want a page among the first three.

The questions are in tests/docs/search_questions.tsv, each with the pages that answer it.
"""

from __future__ import annotations

import json
import re
import shutil
import string
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from html import unescape
from pathlib import Path

QUESTIONS = Path(__file__).parents[1] / "tests" / "docs" / "search_questions.tsv"
SHOWN = 3  # pages that a reader looks at
LETTERS = string.ascii_lowercase  # each is searched as the beginning of words; one broken word leaves nothing for it
MAY_MISS = 2  # questions that may find their page further down
# types each question into the search box, as a person does, and notes the links of the results in their order
TYPE = r"""<script>
addEventListener("load", async () => {
  const wait = (ms) => new Promise((done) => setTimeout(done, ms));
  await wait(3000);
  const box = document.querySelector(".md-search__input");
  const found = {};
  document.getElementById("__search").click();
  for (const question of QUESTIONS) {
    for (const text of ["", question]) {
      box.focus();
      box.value = text;
      box.dispatchEvent(new KeyboardEvent("keyup", { bubbles: true }));
      await wait(500);
    }
    found[question] = [...document.querySelectorAll(".md-search-result__item a")].map((link) => link.href);
  }
  const shown = document.createElement("pre");
  shown.id = "found";
  shown.textContent = JSON.stringify(found);
  document.body.append(shown);
});
</script>"""


def read_questions() -> Mapping[str, Sequence[str]]:
    """Return the wanted pages of the site by question."""
    rows = (line.split("\t") for line in QUESTIONS.read_text(encoding="utf-8").splitlines())
    return {question: [_file_of(page) for page in pages.split("|")] for question, pages in rows}


def search(site: Path, questions: Sequence[str], browser: Sequence[str]) -> Mapping[str, Sequence[str]]:
    """Return the pages that the site's own search finds for each question, the best first.

    Args:
        site: the built site.
        questions: what is typed.
        browser: the command that opens a page of a given address and writes its document.
    """
    with tempfile.TemporaryDirectory() as made:
        copy = Path(made) / "site"
        shutil.copytree(site, copy)
        home = copy / "index.html"
        script = TYPE.replace("QUESTIONS", json.dumps(questions))
        home.write_text(home.read_text(encoding="utf-8").replace("<head>", "<head>" + script, 1), encoding="utf-8")
        command = [*browser, f"--user-data-dir={made}/profile", "--dump-dom", home.as_uri()]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout
        links = json.loads(unescape(shown.partition('<pre id="found">')[2].partition("</pre>")[0]) or "{}")
        base = copy.as_uri() + "/"
    return {
        question: list(dict.fromkeys(re.sub(r"[?#].*", "", link.removeprefix(base)) for link in found))
        for question, found in links.items()
    }


def find_misses(wanted: Mapping[str, Sequence[str]], found: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield a line for each question that has no wanted page among the first ones."""
    for question, pages in wanted.items():
        first = found.get(question, [])[:SHOWN]
        if not set(first) & set(pages):
            yield f"search {question!r}: found {', '.join(first) or 'nothing'}, wanted {' or '.join(pages)}"


def _file_of(page: str) -> str:
    """Return the site's file of a page of docs/."""
    return re.sub(r"README\.md$", "index.md", page).removesuffix(".md") + ".html"
