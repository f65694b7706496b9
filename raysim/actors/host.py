"""A host as a Ray actor."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import ray
import torch

from raysim.actors.process import set_up_actor
from raysim.actors.wire import pack, unseal
from raysim.config import Config
from raysim.engine.host import ClientHost
from raysim.federation.federation import Federation
from raysim.system.device import describe_machine, set_torch
from raysim.system.errors import convert_to_run_error
from raysim.system.footprint import Peak, own_peak


class Host:
    """Actor that owns some of the clients, in a separate process.

    What `perform` and `evaluate` are given and return is as raysim.actors.wire makes it.
    """

    def __init__(self, config: Config, federation: Federation, clients: Sequence[int]) -> None:
        set_up_actor(config.resources.gpus_per_actor)
        device = torch.device("cuda" if config.resources.gpus_per_actor else "cpu")
        set_torch(device, config.resources.deterministic)
        with convert_to_run_error():
            self._host = ClientHost(config, federation, clients, device)

    def ready(self) -> tuple[str, str]:
        """Return the node's address and id and its kind of machine; Ray answers once the constructor has finished."""
        node = f"{ray.util.get_node_ip_address()} {ray.get_runtime_context().get_node_id()[:8]}"
        return node, describe_machine(self._host.model.device)

    def peak(self) -> Peak:
        """Return the peak memory of this process."""
        return own_peak()

    def perform(self, message: bytes, *fetched: Any) -> Any:
        """Carry out an order and return the sum over this host's clients, packed."""
        with convert_to_run_error():
            order, mail, posts = unseal(message, fetched)
            return pack(self._host.perform(replace(order, mail=mail), posts))

    def snapshot(self) -> dict[int, bytes]:
        """Return a record of every client here."""
        with convert_to_run_error():
            return self._host.snapshot()

    def restore(self, records: Mapping[int, bytes]) -> None:
        """Restore the clients of this host from their records."""
        self._host.restore(records)

    def evaluate(self, message: bytes, *fetched: Any) -> Any:
        """Count the correct predictions on some chunks of the test sets; return the counts, packed."""
        with convert_to_run_error():
            chunks, _, posts = unseal(message, fetched)
            return pack(self._host.evaluate(chunks, posts))
