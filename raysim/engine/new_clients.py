"""The clients of a host in their initial state, and what they share."""

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor

from raysim.api.messages import Broadcast
from raysim.api.method import Method
from raysim.api.shared import Shared
from raysim.config import Config
from raysim.config.experiment import Training
from raysim.engine.hook_calls import HookCalls
from raysim.engine.hosted_client import HostedClient
from raysim.engine.memory_choice import choose_memory
from raysim.federation.federation import Federation
from raysim.federation.stream import Stream
from raysim.memory import Memory
from raysim.models.flat import FlatModel
from raysim.system.device import to_device
from raysim.system.errors import locate_errors


class NewClients:
    """Makes the clients of a host.

    Args:
        config: the resolved config.
        federation: the data and the tasks.
        methods: the run's methods, by name.
        model: the host's model, on the host's device.
        broadcasts: the host's broadcasts, by name.
        calls: calls the halves' hooks.
    """

    def __init__(
        self,
        config: Config,
        federation: Federation,
        methods: Mapping[str, Method],
        model: FlatModel,
        broadcasts: Mapping[str, Broadcast],
        calls: HookCalls,
    ) -> None:
        self._federation = federation
        self._methods = methods
        self._calls = calls
        self._samples = federation.source("train", model.device)
        self._memory = choose_memory(config, methods)
        unlabelled = federation.unlabelled
        self.shared = Shared(
            model=model,
            broadcasts=broadcasts,
            seed=config.seed,
            training=config.training,
            deterministic=config.resources.deterministic,
            classes=federation.classes,
            kept_out=partial(_kept_out, federation, config.training, model.device),
            unlabelled=federation.unlabelled_source(self._samples),
            unlabelled_streams=() if unlabelled is None else unlabelled.streams,
            objective=federation.objective,
        )

    def make(self, number: int) -> HostedClient:
        """Return a client in its initial state."""
        federation, device = self._federation, self.shared.model.device
        data = self._samples if federation.opener is None else federation.open_stream(number, device)
        memory = None if self._memory is None else Memory(self._memory)
        with locate_errors(f"client {number}, at its start"):
            halves = {name: method.Client(name, method) for name, method in self._methods.items()}
        return HostedClient(number, federation.streams[number], data, memory, self.shared, halves, self._calls)


def _kept_out(
    federation: Federation, training: Training, device: torch.device, stream: Stream, window: int
) -> Tensor | None:
    """Return a mask (bool [classes]) of the classes that are not in the training softmax, or None."""
    admitted = federation.admitted(stream, window, training.logits)
    if admitted is None:
        return None
    mask = torch.ones(federation.classes, dtype=torch.bool)
    mask[list(admitted)] = False
    return to_device(mask, device)
