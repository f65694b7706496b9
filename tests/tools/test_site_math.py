"""The documentation's formulas: all become MathML, GitHub reads them too, and a wrong one is an error."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

site_math = pytest.importorskip("site_math", reason="no latex2mathml: pip install '.[docs]'")
ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]*`", re.DOTALL | re.MULTILINE)


def shape(element: ElementTree.Element) -> str:
    """Return an element as name(children), with the text of those that have no children; empty ones are left out."""
    name = element.tag.removeprefix("{http://www.w3.org/1998/Math/MathML}")
    inner = ",".join(shape(child) for child in element) or element.text or ""
    return f"{name}({inner})"


def test_a_formula_on_two_lines_is_a_table_of_aligned_cells() -> None:
    """m = b m + d and w = w + m: the cells before = to the right, those from it on to the left."""
    text = "```math\n\\begin{aligned}\nm &= b m + d \\\\\nw &= w + m_t\n\\end{aligned}\n```"
    made = site_math.DISPLAY.sub(site_math.convert_display, text)
    (math,) = ElementTree.fromstring(made)
    assert made.startswith('<div class="math"><math ')
    assert math.get("display") == "block"
    (table,) = math.findall(".//{*}mtable")
    assert [[cell.get("columnalign") for cell in row] for row in table] == [["right", "left"]] * 2
    assert [[shape(cell).replace("mi(),", "") for cell in row] for row in table] == [
        ["mtd(mi(m))", "mtd(mo(=),mi(b),mi(m),mo(+),mi(d))"],
        ["mtd(mi(w))", "mtd(mo(=),mi(w),mo(+),msub(mi(m),mi(t)))"],
    ]


def test_a_formula_in_text_is_within_a_span() -> None:
    made = site_math.INLINE.sub(site_math.convert_inline, r"as ($\frac{a_{t,i}}{2}$), is")
    assert made.startswith(
        'as <span class="formula">(<math xmlns="http://www.w3.org/1998/Math/MathML" display="inline">'
    )
    assert made.endswith("</math>),</span> is")
    (math,) = ElementTree.fromstring(made.removeprefix("as ").removesuffix(" is"))
    top = "mrow(msub(mi(a),mrow(mi(t),mo(,),mi(i))))"
    assert shape(math) == f"math(mrow(mfrac({top},mrow(mn(2)))))"


def test_functions_stand_apart_from_what_precedes_them_and_from_their_argument() -> None:
    made = ElementTree.fromstring(site_math.to_mathml(r"q \log p + \exp(x)", "inline"))
    thin = "mspace()"
    log, exp = f"mi(q),{thin},mi(log),{thin},mi(p)", f"{thin},mi(exp),mo((),mi(x),mo())"
    assert shape(made) == f"math(mrow({log},mo(+),{exp}))"


@pytest.mark.parametrize(
    ("latex", "why"),
    [
        (r"\frac{a}", "an argument is missing"),
        (r"a \unheardof b", r"\\unheardof is an unknown command"),
        (r"\frac{a}{b", "braces are not balanced"),
        (r"a \\ b", "a line ends outside of aligned"),
        (r"\begin{array} a \end{array}", "'array'"),
        (r"\begin{aligned} a &= b", "MissingEnd"),
        ("a & b", "not well-formed"),
        ("a_", "MissingSuperScriptOrSubscript"),
    ],
)
def test_a_formula_that_does_not_convert_is_an_error(latex: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"does not convert: .*{why}"):
        site_math.to_mathml(latex, "block")


def formulas(page: Path) -> tuple[list[str], list[str]]:
    """Return the formulas of a page: those on their own, and those in text."""
    text = page.read_text(encoding="utf-8")
    inline = [formula["text"] for formula in site_math.INLINE.finditer(CODE.sub("`code`", text))]
    return [formula["text"] for formula in site_math.DISPLAY.finditer(text)], inline


def test_every_formula_of_the_documentation_converts() -> None:
    found = {page.relative_to(ROOT).as_posix(): formulas(page) for page in PAGES}
    for display, inline in found.values():
        for latex in display:
            ElementTree.fromstring(site_math.to_mathml(latex, "block"))
        for latex in inline:
            ElementTree.fromstring(site_math.to_mathml(latex, "inline"))
    assert len(found["docs/methods/c_flag.md"][0]) > 3
    assert len(found["docs/metrics.md"][1]) > 10


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_github_reads_the_formulas_too(page: Path) -> None:
    """Markdown comes first there: in text it takes \\, for a comma, * for emphasis, and _ after a brace, too."""
    text = page.read_text(encoding="utf-8")
    assert text.count("```math") == len(formulas(page)[0])  # all at the margin, none in a list
    assert [one for one in formulas(page)[1] if re.search(r"\\[^A-Za-z]|\*|(?<![A-Za-z0-9])_|^ | $", one)] == []
    around = CODE.sub("code", text)
    for formula in site_math.INLINE.finditer(around):
        before, after = around[: formula.start("text") - 1][-1:], around[formula.end("text") + 1 :][:1]
        assert re.fullmatch(r"[\s(|]?[\s.,:;)|]?", before + after), formula[0]
