"""The method: a ContinualModel of Mammoth at every client. Mammoth's files stay unchanged.

methods: {examples.mammoth:Mammoth: {model: "models.er:Er", args: {buffer_size: 200, minibatch_size: 32}}}
Put Mammoth's folder on PYTHONPATH.
"""

from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from examples.mammoth.kept import restore, state_of
from raysim import ConfigError
from raysim.api import Client, ClientHalf, Delta, FlatModel, Method


class Backbone(nn.Sequential):
    """raysim's network with the functions that Mammoth's models call."""

    def get_params(self) -> Tensor:
        """Return the parameters [P]."""
        return torch.cat([parameter.reshape(-1) for parameter in self.parameters()])

    def get_grads(self) -> Tensor:
        """Return the gradient [P]."""
        return torch.cat([parameter.grad.reshape(-1) for parameter in self.parameters()])

    def set_params(self, values: Tensor) -> None:
        """Set the parameters [P]."""
        with torch.no_grad():
            nn.utils.vector_to_parameters(values, self.parameters())


class Learner:
    """A client's ContinualModel. A resumed run makes it again when it is first used."""

    model = saved = None

    def state(self) -> Any:
        """Return what a checkpoint keeps."""
        return self.saved if self.model is None else state_of(self.model, self.model.net, self.early)

    def restore(self, state: Any) -> None:
        """Restore what a checkpoint kept."""
        self.model, self.saved = None, state

    def of(self, client: Client, method: "Mammoth") -> Any:
        """Return the model, with its network in training mode."""
        if self.model is None:
            module, _, kind = method.model.partition(":")
            self.network = FlatModel(client.network_at())
            defaults = {"lr": client.lr, "optimizer": "sgd", "optim_wd": 0.0, "optim_mom": 0.0, "optim_nesterov": False}
            backbone, args = Backbone(self.network.module), Namespace(**defaults | method.args)
            with client.global_draws(f"making {method.model}"):
                make, dataset = getattr(imported(module), kind), dataset_of(client, client.arrived[:0])
                self.model = make(backbone, client.loss, args, None, dataset=dataset)
            self.model.device = client.model.device
            self.early = [name for name, _ in self.model.named_children()]
            if self.saved is not None:
                restore(self.model, self.saved, self.model.net)
        self.model.net.train()
        return self.model


def imported(module: str) -> ModuleType:
    """Return a module of Mammoth. Raises ConfigError: it cannot be imported."""
    try:
        return import_module(module)
    except ImportError as error:
        words = f"the module {module} cannot be imported ({error}); put Mammoth's folder on PYTHONPATH"
        raise ConfigError(words, "model") from error


def dataset_of(client: Client, positions: Tensor) -> Namespace:
    """Return a client's samples as the dataset that a model's constructor and hooks receive."""
    batches = [client.samples(positions[part]) for part in client.batches(len(positions))]
    loader, tasks = [(x, y, x) for x, y in batches], max(client.stream.tasks) + 1
    return Namespace(N_CLASSES=client.classes, N_TASKS=tasks, train_loader=loader)


def hook(model: Any, name: str) -> Callable[..., Any]:
    """Return a hook of the model: the one that Mammoth's loop calls around it, if its version has one; or nothing."""
    return getattr(model, f"meta_{name}", None) or getattr(model, name, None) or (lambda *given, **keys: None)


@dataclass(frozen=True, kw_only=True)
class Mammoth(Method):
    """Any ContinualModel of Mammoth at every client."""

    model: str
    args: Mapping[str, int | float | bool | str] = field(default_factory=dict)
    needs: ClassVar = frozenset({"plain_sgd", "unclipped", "classes", "earlier_logits"})

    class Client(ClientHalf):
        """Trains the ContinualModel on the client's data. Its network begins with the received model."""

        def __init__(self, name: str, method: Method) -> None:
            super().__init__(name, method)
            self.learner = Learner()

        def begin_task(self, client: Client) -> None:
            """End the last task with the client's own last model. Begin the new one with the received model."""
            model = self.learner.of(client, self.method)
            with client.global_draws(self.name):
                if len(client.finished):
                    hook(model, "end_task")(dataset_of(client, client.finished))
                self.learner.network.load(client.model.copy())
                hook(model, "begin_task")(dataset_of(client, client.arrived))
                model.opt = model.get_optimizer()  # as Mammoth's training loop does

        def train(self, client: Client) -> Delta:
            """Let the model observe all batches. Return the change of the network."""
            model, losses, buffers = self.learner.of(client, self.method), [0.0], client.model.buffers.clone()
            self.learner.network.load(client.model.copy())
            for group in model.opt.param_groups:
                group["lr"] = client.lr
            observe, data = hook(model, "observe"), dataset_of(client, client.arrived[:0])
            with client.global_draws(self.name):
                for epoch in range(client.local_epochs):
                    hook(model, "begin_epoch")(epoch, data)
                    losses += [observe(x, y, plain, epoch=epoch) for x, y, plain in client.epoch()]
                    hook(model, "end_epoch")(epoch, data)
            client.record("loss", sum(losses) / max(client.steps, 1))
            client.model.load(self.learner.network.copy())
            return Delta(client.model.parameters - client.received, client.model.buffers - buffers)
