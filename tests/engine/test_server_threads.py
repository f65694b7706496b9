"""Server halves compute on `resources.server_cpus` threads, clients on one; and the device of their networks."""

import pytest
import torch

from raysim.config.schema import Resources
from raysim.engine.hosted_server import HostedServer
from raysim.federation.federation import build_federation
from raysim.models.building import check_model


@pytest.mark.parametrize(("cpus", "threads"), [(0, 1), (1, 1), (3, 3)])
def test_the_servers_hooks_have_its_threads_and_clients_have_one(tiny, simulate, cpus, threads):
    """A plan waits for clients between two of its parts: they have one thread meanwhile."""
    run = simulate(tiny(methods={"probes:Threads": {}}, resources__server_cpus=cpus))
    expected = {"announce": threads, "before": threads, "meanwhile": 1, "after": threads, "phase": 1}
    assert [done.records for done in run.rounds] == [expected] * 4


@pytest.mark.parametrize(("share", "device"), [(0.0, "cpu"), (0.2, "cuda")])
def test_the_server_has_a_gpu_if_it_has_a_share(tiny, share, device):
    config = tiny()
    federation = build_federation(config)
    model = check_model(config, federation.shape, federation.classes)
    asked = config.model_copy(update={"resources": Resources(server_gpus=share)})
    assert HostedServer(asked, federation, model).device == torch.device(device)
