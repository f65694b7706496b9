"""What code of one's own gets wrong is told in the same line on Ray as in one process."""

import re
from pathlib import Path
from typing import Any

import pytest
import wrong_parts

import raysim
from raysim.system.errors import RunError

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]

CASES = {
    "in a host": ("ClientSide", "penalty shape", "client 1, round 3"),
    "from a host": ("ClientSide", "finish nan", "client 1 diverged in round 3"),
    "in the coordinator": ("ServerSide", "update none", "server, round 3"),
}
PACKED = {"resources.clients_per_actor": 4}


def test_a_breakpoint_ends_the_run_with_its_place(small: dict[str, Any], tmp_path: Path) -> None:
    keys = {"methods": {"misbehaving:Misbehaving": {"what": "stop"}}, **PACKED}
    with pytest.raises(RunError, match=r"^.*/misbehaving\.py:\d+: breakpoint\(\) needs a terminal, which Ray's "):
        raysim.run(small, keys, out=tmp_path / "out")


def test_a_host_that_cannot_start_says_what_was_raised_and_where(small: dict[str, Any], tmp_path: Path) -> None:
    """The kind, all lines of the text, the place in the code and the client. Ray alone would say "and its last"."""
    with pytest.raises(RunError) as failed:
        raysim.run(small, {"methods": {"misbehaving:Unstarted": {}}, **PACKED}, out=tmp_path / "out")
    said = r"ValueError: a first line, and its last \(Unstarted\.Client\.__init__, .*/misbehaving\.py:\d+\)"
    advice = "raysim run --local helps to debug it"
    assert re.fullmatch(f"{said}; client 0, at its start; {advice}", str(failed.value))
    assert failed.value.__notes__[0].startswith("Traceback (most recent call last):")


@pytest.mark.parametrize("case", CASES)
def test_the_line_is_the_same(case: str, small: dict[str, Any], tmp_path: Path) -> None:
    method, wrong, where = CASES[case]
    keys = {"methods": {f"wrong_parts:{method}": {"wrong": wrong}}, "checkpoint.every_rounds": 1, **PACKED}
    said = []
    for local in (True, False):
        out = tmp_path / str(local)
        with pytest.raises(RunError) as failed:
            raysim.run(small, keys, out=out, local=local)
        said.append(str(failed.value))
        assert (out / "checkpoints" / "000002").exists()
    assert said[0] == said[1]
    assert "\n" not in said[0]
    assert where in said[0]
    assert re.search(rf"{re.escape(wrong_parts.__file__)}:\d+\)", said[0])
