"""Formulas of the documentation as MathML, which browsers draw without a script: $...$ in text, ```math on its own."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import latex2mathml.converter

INLINE = re.compile(r"(?P<before>\(?)\$(?P<text>[^$\n]+)\$(?P<after>[.,:;)]*)")
DISPLAY = re.compile(r"^```math\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
ENVIRONMENTS = {"aligned": "align*", "cases": "cases"}  # GitHub's name: latex2mathml's
ENVIRONMENT = re.compile(r"(?P<mark>\\(?:begin|end))\{(?P<name>[^}]*)\}")
FUNCTION = re.compile(r"(<mi>[a-z]{2,}</mi>)(<mo [^>]*>&#x00028;)?")  # log x, but exp(x)
THIN = '<mspace width="0.17em" />'
PARTS = {"mfrac": 2, "mroot": 2, "msub": 2, "msup": 2, "msubsup": 3, "munder": 2, "mover": 2, "munderover": 3}


def convert_inline(formula: re.Match[str]) -> str:
    """Return the MathML of a formula in text, with the punctuation around it, which stays on its line.

    Markdown would take a <math> that begins a line for a block.
    """
    return f'<span class="formula">{formula["before"]}{to_mathml(formula["text"], "inline")}{formula["after"]}</span>'


def convert_display(formula: re.Match[str]) -> str:
    """Return the MathML of a formula on its own. On narrow screens its <div> scrolls."""
    return f'<div class="math">{to_mathml(formula["text"], "block")}</div>'


def to_mathml(latex: str, display: str) -> str:
    """Return a formula in LaTeX as MathML.

    latex2mathml itself shows a command that it does not know as text, and closes open braces.

    Raises:
        ValueError: it cannot be converted whole.
    """
    try:
        made: str = latex2mathml.converter.convert(ENVIRONMENT.sub(_rename, latex), display=display)
        fault = _find_fault(latex, ElementTree.fromstring(made))
    except Exception as error:  # latex2mathml has an exception for each mistake, and KeyErrors
        raise ValueError(f"the formula {latex.strip()!r} does not convert: {error!r}") from error
    if fault:
        raise ValueError(f"the formula {latex.strip()!r} does not convert: {fault}")
    return FUNCTION.sub(lambda name: f"{THIN}{name[1]}{name[2] or THIN}", made)


def _rename(environment: re.Match[str]) -> str:
    return f"{environment['mark']}{{{ENVIRONMENTS[environment['name']]}}}"


def _find_fault(latex: str, made: ElementTree.Element) -> str | None:
    braces = re.sub(r"\\[{}]", "", latex)
    if braces.count("{") != braces.count("}"):
        return "its braces are not balanced"
    for element in made.iter():
        name = element.tag.rpartition("}")[2]
        if "\\" in (element.text or ""):
            return f"{element.text} is an unknown command"
        if element.get("linebreak"):
            return "a line ends outside of aligned and cases"
        if len(element) != PARTS.get(name, len(element)):
            return f"an argument is missing ({name})"
    return None
