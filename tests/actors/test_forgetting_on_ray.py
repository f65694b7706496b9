"""Requests to forget on Ray: the same model, and the same said of them, as in one process."""

from pathlib import Path
from typing import Any

import pytest

import raysim

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]

REQUESTS = [{"round": 1, "clients": [1]}, {"round": 3, "classes": [0]}]
RUN: dict[str, Any] = {"clients": {"count": 4, "forget": REQUESTS}, "resources.clients_per_actor": 2}
METHODS: list[dict[str, Any]] = [{"er": {}}, {"analytic": {"grid": 12, "bound": 8.0}}]


@pytest.mark.parametrize("methods", METHODS, ids=["er", "analytic"])
def test_requests_on_ray_do_what_they_do_in_one_process(
    small: dict[str, Any], tmp_path: Path, methods: dict[str, Any]
) -> None:
    keys = RUN | {"methods": methods} | ({"memory.capacity": 6} if "er" in methods else {})
    runs = [raysim.run(small, keys, out=tmp_path / str(local), local=local) for local in (True, False)]
    local, on_ray = [[{**each, "seconds": 0} for each in run.forgotten] for run in runs]
    assert on_ray == local
    assert [each["what"] for each in local] == ["client 1", "class 0"]
    assert runs[0].model_sha256 == runs[1].model_sha256
