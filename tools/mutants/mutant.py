"""A mutant: one line of code that is changed, and where. It is found again by its text when lines move."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

DRAWN = Path(__file__).with_name("drawn.json")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Mutant:
    """A changed line.

    Attributes:
        id: its name in tables.
        file: the module, relative to the repository's root.
        function: the qualified name of the function that holds the line, as in `Reply.merge`.
        before: the line without its indentation.
        after: the line in its place.
        operator: the kind of the change.
    """

    id: str
    file: str
    function: str
    before: str
    after: str
    operator: str

    @property
    def on_ray(self) -> bool:
        """Whether the line is in the folder that knows Ray."""
        return self.file.startswith("raysim/actors/")

    def apply(self, source: str) -> str:
        """Return the module's source with the changed line.

        Raises:
            ValueError: the function, or its line, is not there once, or the result is no Python.
        """
        lines = source.splitlines(keepends=True)
        spans = [span for name, span in named_functions(ast.parse(source)) if name == self.function]
        if len(spans) != 1:
            raise ValueError(f"{self.id}: found {len(spans)} functions {self.function} in {self.file}, expected one")
        found = [number for number in spans[0] if lines[number - 1].strip() == self.before]
        if len(found) != 1:
            raise ValueError(
                f"{self.id}: found {len(found)} lines `{self.before}` in {self.function} of {self.file}, expected one"
            )
        line = lines[found[0] - 1]
        lines[found[0] - 1] = line.replace(self.before, self.after)
        mutated = "".join(lines)
        try:
            ast.parse(mutated)
        except SyntaxError as error:
            raise ValueError(f"{self.id}: the changed line is no Python: {error}") from error
        return mutated


def named_functions(tree: ast.AST, above: str = "") -> Iterator[tuple[str, range]]:
    """Yield the qualified name of each function of a module, and its lines from 1."""
    for node in ast.iter_child_nodes(tree):
        inner = above
        if isinstance(node, Function | ast.ClassDef):
            inner = f"{above}.{node.name}".lstrip(".")
            if isinstance(node, Function):
                yield inner, range(node.lineno, (node.end_lineno or node.lineno) + 1)
        yield from named_functions(node, inner)


def read_list(path: Path = DRAWN) -> list[Mutant]:
    """Return the mutants of a committed list: the drawn ones, then those that were chosen."""
    values = json.loads(path.read_text(encoding="utf-8"))
    return [Mutant(**one) for one in (*values["drawn"], *values["chosen"])]


def write_list(path: Path, commit: str, seed: int, drawn: Sequence[Mutant]) -> None:
    """Write drawn mutants to a list. Its chosen mutants stay."""
    chosen = json.loads(path.read_text(encoding="utf-8"))["chosen"] if path.exists() else []
    values = {"commit": commit, "seed": seed, "drawn": [asdict(one) for one in drawn], "chosen": chosen}
    path.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
