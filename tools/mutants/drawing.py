"""Draw mutants of modules: single lines inside functions, each with a change of one of these kinds."""

from __future__ import annotations

import ast
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

from mutants.mutant import Function, Mutant, named_functions

FOLDERS = tuple(f"raysim/{name}" for name in ("api", "engine", "actors", "federation", "records", "evaluation"))
COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "is": "is not", "is not": "is"}
COMPARISONS |= {"in": "not in", "not in": "in"}
ARITHMETIC = {"+": "-", "-": "+", "*": "/", "/": "*", "//": "*", "%": "*", "|": "&", "&": "|"}
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
TOKEN = re.compile(r"not\s+in|is\s+not|//|\*\*|[<>=!]=|[-+*/%<>|&]|\b(?:is|in|and|or)\b")


def draw_mutants(sources: Mapping[str, str], seed: int, count: int) -> list[Mutant]:
    """Draw lines, each with the same probability, and a change of each line.

    Args:
        sources: the modules' code by file.
        seed: the same sources and seed draw the same mutants.
        count: the number of mutants, or of lines that can be changed if there are fewer.
    """
    lines = [(file, places) for file in sorted(sources) for places in _changes_by_line(sources[file])]
    draws = random.Random(seed)
    chosen = sorted(draws.sample(range(len(lines)), min(count, len(lines))))
    drawn = []
    for number, index in enumerate(chosen, 1):
        file, changes = lines[index]
        function, before, after, operator = draws.choice(changes)
        drawn.append(Mutant(f"{number:02d}", file, function, before, after, operator))
    return drawn


Change = tuple[str, str, str, str]  # the function, the line before and after, the kind


def _changes_by_line(source: str) -> list[list[Change]]:
    """Return the changes of each line that has some, in the order of the lines."""
    tree, lines = ast.parse(source), source.splitlines()
    spans = [*named_functions(tree)]
    found: dict[int, list[Change]] = defaultdict(list)
    for node, kind, start, end, text in _edits(tree, lines):
        line = lines[node.lineno - 1].encode()
        holding = [(name, span) for name, span in spans if node.lineno in span]
        if not holding:
            continue
        name, span = min(holding, key=lambda one: len(one[1]))
        before = line.decode().strip()
        if [lines[number - 1].strip() for number in span].count(before) != 1:
            continue  # it could not be found again by its text
        if [other for other, _ in spans].count(name) != 1:
            continue  # a property and its setter, or overloads
        after = (line[:start] + text.encode() + line[end:]).decode().strip()
        found[node.lineno].append((name, before, after, kind))
    return [found[number] for number in sorted(found)]


Edit = tuple[ast.expr | ast.stmt, str, int, int, str]  # a node on one line, the kind, columns in bytes, the new text


def _edits(tree: ast.Module, lines: list[str]) -> Iterator[Edit]:
    """Yield the changes of the code inside functions, apart from errors' texts, signatures and docstrings."""
    for function in ast.walk(tree):
        if isinstance(function, Function):
            for statement in function.body:
                yield from _edits_below(statement, lines)


def _edits_below(node: ast.AST, lines: list[str]) -> Iterator[Edit]:
    if isinstance(node, Function | ast.ClassDef | ast.Raise | ast.Import | ast.ImportFrom | ast.JoinedStr | ast.Assert):
        return  # a function inside has its own turn
    if isinstance(node, ast.expr | ast.stmt) and node.lineno == node.end_lineno:
        yield from _edits_of(node, lines[node.lineno - 1].encode())
    elif isinstance(node, ast.If | ast.While | ast.IfExp) and node.test.lineno == node.test.end_lineno:
        yield from _edits_of_condition(node)
    for field, value in ast.iter_fields(node):
        if field != "annotation":
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _edits_below(child, lines)


def _edits_of_condition(node: ast.If | ast.While | ast.IfExp) -> Iterator[Edit]:
    for value in ("False",) if isinstance(node, ast.While) else ("True", "False"):  # while True does not end
        yield node.test, "condition", node.test.col_offset, node.test.end_col_offset or 0, value


def _edits_of(node: ast.expr | ast.stmt, line: bytes) -> Iterator[Edit]:
    start, end = node.col_offset, node.end_col_offset or 0
    match node:
        case ast.Compare(left=left, ops=[_], comparators=[right]):
            yield from _other_token(node, "comparison", left, right, line, COMPARISONS)
        case ast.BoolOp(values=[left, right, *_]):
            yield from _other_token(node, "and/or", left, right, line, {"and": "or", "or": "and"})
        case ast.BinOp(left=left, right=right):
            yield from _other_token(node, "arithmetic", left, right, line, ARITHMETIC)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, "not", start, operand.col_offset, ""
        case ast.Constant(value=bool() as value):
            yield node, "true/false", start, end, str(not value)
        case ast.Constant(value=int() as value):
            yield node, "off by one", start, end, str(value + 1)
        case ast.Call(func=ast.Name(id=name) as called) if name in CALLS:
            yield called, "min/max/any/all", called.col_offset, called.end_col_offset or 0, CALLS[name]
        case ast.AugAssign() | ast.Expr(value=ast.Call()):
            yield node, "dropped statement", start, end, "pass"
        case ast.IfExp():
            yield from _edits_of_condition(node)


def _other_token(
    node: ast.expr, kind: str, left: ast.expr, right: ast.expr, line: bytes, others: Mapping[str, str]
) -> Iterator[Edit]:
    """Yield the change of the operator between two expressions on the node's line."""
    after_left, before_right = left.end_col_offset or 0, right.col_offset
    found = TOKEN.search(line[after_left:before_right].decode())
    if found and (word := " ".join(found[0].split())) in others:
        yield node, kind, after_left + found.start(), after_left + found.end(), others[word]
