"""What crosses between server and clients is the same on Ray, however clients share processes, or is refused there."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import raysim
from raysim.system.errors import RunError

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]


def test_what_halves_keep_and_change_later_is_the_same_on_ray(
    small: dict[str, Any], facts: Callable[[raysim.Result], Mapping[str, Any]], tmp_path: Path
) -> None:
    keys = {"methods": {"crossing:Keeps": {"what": "received"}}}
    expected = facts(raysim.run(small, keys, out=tmp_path / "local", local=True))
    for each in (1, 2):
        found = raysim.run(small, keys | {"resources.clients_per_actor": each}, out=tmp_path / str(each))
        assert facts(found) == expected


def test_a_changed_message_is_named_on_ray(small: dict[str, Any], tmp_path: Path) -> None:
    keys = {"methods": {"crossing:Changes": {}}, "resources.clients_per_actor": 2}
    with pytest.raises(RunError, match=r"Changes.Client.start \(.*\) changed the message\['list'\]\[1\] in p"):
        raysim.run(small, keys, out=tmp_path / "run")
