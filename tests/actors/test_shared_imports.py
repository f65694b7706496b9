"""What the fork server of a run's own cluster imports, so that its hosts share it."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

from raysim.actors import cluster
from raysim.system.capacity import Capacity

pytest.importorskip("transformers")


@pytest.mark.parametrize("gpus", [0, 0.5])
def test_hosts_share_the_module_of_a_pretrained_model_except_on_gpus(
    gpus: float, tiny: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one of the model that this process has imported, once, and not all of transformers."""
    import_module("transformers.models.bert.modeling_bert")

    asked: list[Any] = []
    monkeypatch.setattr(cluster, "own_cluster", lambda *arguments: asked.append(arguments))
    cluster.cluster_of([tiny(resources={"gpus_per_actor": gpus})], Capacity(2, 1, None), print)
    *_, modules = asked[0]
    assert modules.count("transformers.models.bert.modeling_bert") == (gpus == 0)
    assert not gpus or modules == []
    assert "transformers" not in modules
