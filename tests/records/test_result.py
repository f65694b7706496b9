"""A result in Python: its numbers by short names, and how a notebook shows it."""

import ast
import inspect
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

import raysim
from raysim.evaluation.accuracy_matrix import summarise

ONE = [[0.9, 0.1], [0.2, 0.8]]
OTHER = [[1.0, 1.0], [0.5, 1.0]]


@pytest.fixture
def result(tiny, tmp_path: Path) -> raysim.Result:
    done = raysim.run(tiny(logging__tensorboard=False), out=tmp_path / "run", local=True)
    both = {"class_il": summarise(ONE, [0.1, 0.1]), "task_il": summarise(OTHER, [0.5, 0.5])}
    return replace(done, name="<tiny>", evaluation=both)


def test_the_first_protocol_is_meant_unless_one_is_named(result: raysim.Result) -> None:
    assert (result.accuracy(), result.accuracy("class_il"), result.accuracy("task_il")) == (0.5, 0.5, 0.75)
    assert (result.forgetting(), result.forgetting("task_il")) == (pytest.approx(0.7), 0.5)
    np.testing.assert_array_equal(result.matrix, np.array(ONE))
    assert replace(result, evaluation={"task_il": result.evaluation["task_il"]}).accuracy() == 0.75


def test_a_protocol_that_was_not_tested_is_named_with_those_that_were(result: raysim.Result) -> None:
    with pytest.raises(raysim.ConfigError, match=r"^unknown protocol 'clas_il'; did you mean 'class_il'\? allowed: cl"):
        result.accuracy("clas_il")


def test_what_is_undefined_is_none(result: raysim.Result) -> None:
    alone = replace(result, evaluation={"class_il": summarise([[0.5]], [0.1])})
    assert (alone.accuracy(), alone.forgetting(), alone.matrix.shape) == (0.5, None, (1, 1))
    failed = replace(result, evaluation={}, status="failed", problem="client 1 diverged: found <nan>")
    assert (failed.accuracy(), failed.forgetting(), failed.matrix.size) == (None, None, 0)
    assert "(failed: client 1 diverged: found &lt;nan&gt;)" in failed._repr_html_()


def test_a_shell_shows_a_short_line(result: raysim.Result) -> None:
    here = replace(result, directory=Path("runs/tiny"))
    assert repr(here) == "<result of <tiny>, seed 0: FedAvg, done, class-IL 50.0%; runs/tiny>"
    assert repr(replace(here, evaluation={}, status="failed")).endswith("FedAvg, failed; runs/tiny>")
    names, folder = [f"method_{place}" for place in range(9)], Path("/", *["folder"] * 40, "seed-0")
    longest = repr(replace(here, name="n" * 200, methods=names, directory=folder))
    assert len(longest) < 200
    assert longest.endswith("folder/seed-0>")


def test_a_notebook_shows_a_colored_matrix(result: raysim.Result) -> None:
    page = result._repr_html_()
    assert page.count("<table>") == 2
    assert "<b>&lt;tiny&gt;</b>, seed 0: FedAvg (done)" in page
    assert '<td style="color: black; background: rgb(182, 209, 69)">90.0</td>' in page  # 94 + 0.6 (240 - 94), ...
    assert '<td style="color: white; background: rgb(66, 96, 164)">20.0</td>' in page  # 94 + 0.8 (59 - 94), ...
    assert "average accuracy 50.0, forgetting 70.0, backward transfer -70.0, forward transfer 0.0" in page


def test_every_field_is_documented() -> None:
    (tree,) = ast.parse(inspect.getsource(raysim.Result)).body
    assert isinstance(tree, ast.ClassDef)
    pairs = zip(tree.body, tree.body[1:], strict=False)
    documented = {
        one.target.id
        for one, after in pairs
        if isinstance(one, ast.AnnAssign)
        and isinstance(one.target, ast.Name)
        and isinstance(after, ast.Expr)
        and isinstance(after.value, ast.Constant)
    }
    assert {field.name for field in fields(raysim.Result)} <= documented
