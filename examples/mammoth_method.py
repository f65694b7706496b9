"""A model of Mammoth (github.com/aimagelab/mammoth) at every client. Mammoth's files stay unchanged.

methods: {examples.mammoth_method:Mammoth: {model: "models.er:Er", args: {buffer_size: 200, minibatch_size: 32}}}
Put Mammoth's folder on PYTHONPATH. Not for models that make networks after their construction, such as LwF.
"""

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from raysim.api import Client, ClientHalf, Delta, FlatModel, Method

MADE_AGAIN = {*vars(nn.Module()), "device"}  # attributes that are not saved, or that state_dict() has


class Backbone(nn.Sequential):
    """raysim's network with the functions that Mammoth's models call."""

    def get_params(self) -> Tensor:
        """Return the parameters [P]."""
        return torch.cat([parameter.reshape(-1) for parameter in self.parameters()])

    def get_grads(self) -> Tensor:
        """Return the gradient [P]."""
        return torch.cat([parameter.grad.reshape(-1) for parameter in self.parameters()])


def state_of(value: Any) -> Any:
    """Return tensors and numbers unchanged, and a model, a buffer or an optimizer as a dict of them."""
    if isinstance(value, Tensor) or not hasattr(value, "__dict__"):
        return value
    state = {"state_dict": dict(value.state_dict())} if hasattr(value, "state_dict") else {}
    kept = {} if isinstance(value, torch.optim.Optimizer) else vars(value)
    return state | {name: state_of(part) for name, part in kept.items() if name not in MADE_AGAIN}


def restore(value: Any, state: Mapping[str, Any]) -> None:
    """Restore an object that was constructed in the same way."""
    for name, part in state.items():
        if name == "state_dict":
            value.load_state_dict(part)
        elif hasattr(own := getattr(value, name, None), "__dict__") and not isinstance(own, Tensor):
            restore(own, part)
        else:
            setattr(value, name, part)


class Learner:
    """A client's ContinualModel. A resumed run makes it again when it is first used."""

    model = saved = None

    def state(self) -> Any:
        """Return what a checkpoint keeps."""
        return self.saved if self.model is None else state_of(self.model)

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
                make, dataset = getattr(import_module(module), kind), dataset_of(client, client.arrived[:0])
                self.model = make(backbone, client.loss, args, None, dataset=dataset)
            self.model.device = client.model.device
            restore(self.model, self.saved or {})
        self.model.net.train()
        return self.model


def dataset_of(client: Client, positions: Tensor) -> Namespace:
    """Return a client's samples as the dataset that begin_task and end_task receive."""
    batches = [client.samples(positions[part]) for part in client.batches(len(positions))]
    loader, tasks = [(x, y, x) for x, y in batches], max(client.stream.tasks) + 1
    return Namespace(N_CLASSES=client.classes, N_TASKS=tasks, train_loader=loader)


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
                    model.end_task(dataset_of(client, client.finished))
                self.learner.network.load(client.model.copy())
                model.begin_task(dataset_of(client, client.arrived))
                model.opt = model.get_optimizer()  # as Mammoth's training loop does

        def train(self, client: Client) -> Delta:
            """Let the model observe all batches. Return the change of the network."""
            model, losses, buffers = self.learner.of(client, self.method), [0.0], client.model.buffers.clone()
            self.learner.network.load(client.model.copy())
            for group in model.opt.param_groups:
                group["lr"] = client.lr
            with client.global_draws(self.name):
                for epoch in range(client.local_epochs):
                    losses += [model.observe(x, y, plain, epoch=epoch) for x, y, plain in client.epoch()]
            client.record("loss", sum(losses) / max(client.steps, 1))
            client.model.load(self.learner.network.copy())
            return Delta(client.model.parameters - client.received, client.model.buffers - buffers)
