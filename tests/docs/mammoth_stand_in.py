"""A stand-in for Mammoth with its interface: ContinualModel, Buffer, and ER, DER++, online EWC and SI as it has them.

Written from the papers and Mammoth's documented interface. It knows nothing of raysim. As in Mammoth, buffers draw from
NumPy's global generator; the buffer here also draws from torch's and Python's.
"""

import copy
import random
from abc import abstractmethod

import numpy as np
import torch
from torch import nn
from torch.nn import functional


class Buffer:
    """A reservoir. Its tensors are made by the first samples that it receives."""

    def __init__(self, buffer_size, device="cpu"):
        self.buffer_size = buffer_size
        self.device = torch.device(device)
        self.num_seen_examples = 0
        self.attributes = ["examples", "labels", "logits"]

    def __len__(self):
        return min(self.num_seen_examples, self.buffer_size)

    def is_empty(self):
        return self.num_seen_examples == 0

    def add_data(self, examples, labels=None, logits=None):
        given = {"examples": examples, "labels": labels, "logits": logits}
        for name, values in given.items():
            if values is not None and not hasattr(self, name):
                setattr(self, name, torch.zeros((self.buffer_size, *values.shape[1:]), dtype=values.dtype))
        for row in range(len(examples)):
            place = self.num_seen_examples
            if place >= self.buffer_size:
                place = np.random.randint(0, place + 1)
            self.num_seen_examples += 1
            if place < self.buffer_size:
                for name, values in given.items():
                    if values is not None:
                        getattr(self, name)[place] = values[row]

    def get_data(self, size, transform=None, device=None):
        chosen = np.random.choice(len(self), size=min(size, len(self)), replace=False)
        random.shuffle(chosen)
        chosen = torch.from_numpy(chosen)[torch.randperm(len(chosen))]
        found = [getattr(self, name)[chosen].to(device) for name in self.attributes if hasattr(self, name)]
        return tuple(found if transform is None else [transform(found[0]), *found[1:]])


class ContinualModel(nn.Module):
    NAME: str
    COMPATIBILITY: list

    def __init__(self, backbone, loss, args, transform, dataset=None):
        super().__init__()
        self.net = backbone
        self.loss = loss
        self.args = args
        self.transform = transform
        self.dataset = dataset
        self.opt = self.get_optimizer()
        self.device = torch.device("cpu")

    def get_parameters(self):
        return self.net.parameters()

    def get_optimizer(self):
        args = self.args
        return torch.optim.SGD(
            self.get_parameters(),
            lr=args.lr,
            weight_decay=args.optim_wd,
            momentum=args.optim_mom,
            nesterov=args.optim_nesterov,
        )

    def forward(self, x):
        return self.net(x)

    def begin_task(self, dataset):
        pass

    def end_task(self, dataset):
        pass

    @abstractmethod
    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        """Take a step on a batch, and return its loss."""


class Er(ContinualModel):
    NAME = "er"

    def __init__(self, backbone, loss, args, transform, dataset=None):
        super().__init__(backbone, loss, args, transform, dataset=dataset)
        self.buffer = Buffer(args.buffer_size)

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        size = len(inputs)
        self.opt.zero_grad()
        if not self.buffer.is_empty():
            x, y = self.buffer.get_data(self.args.minibatch_size, transform=self.transform, device=self.device)
            inputs, labels = torch.cat([inputs, x]), torch.cat([labels, y])
        loss = self.loss(self.net(inputs), labels)
        loss.backward()
        self.opt.step()
        self.buffer.add_data(examples=not_aug_inputs, labels=labels[:size])
        return loss.item()


class Derpp(ContinualModel):
    NAME = "derpp"

    def __init__(self, backbone, loss, args, transform, dataset=None):
        super().__init__(backbone, loss, args, transform, dataset=dataset)
        self.buffer = Buffer(args.buffer_size)

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        self.opt.zero_grad()
        outputs = self.net(inputs)
        loss = self.loss(outputs, labels)
        if not self.buffer.is_empty():
            x, _, logits = self.buffer.get_data(self.args.minibatch_size, device=self.device)
            loss = loss + self.args.alpha * functional.mse_loss(self.net(x), logits)
            x, y, _ = self.buffer.get_data(self.args.minibatch_size, device=self.device)
            loss = loss + self.args.beta * self.loss(self.net(x), y)
        loss.backward()
        self.opt.step()
        self.buffer.add_data(examples=not_aug_inputs, labels=labels, logits=outputs.data)
        return loss.item()


class EwcOn(ContinualModel):
    NAME = "ewc_on"

    def __init__(self, backbone, loss, args, transform, dataset=None):
        super().__init__(backbone, loss, args, transform, dataset=dataset)
        self.logsoft = nn.LogSoftmax(dim=1)
        self.checkpoint = None
        self.fish = None

    def penalty(self):
        if self.checkpoint is None:
            return torch.tensor(0.0)
        return (self.fish * (self.net.get_params() - self.checkpoint) ** 2).sum()

    def end_task(self, dataset):
        fish = torch.zeros_like(self.net.get_params())
        for inputs, labels, _ in dataset.train_loader:
            for x, y in zip(inputs, labels, strict=True):
                self.opt.zero_grad()
                loss = -functional.nll_loss(self.logsoft(self.net(x.unsqueeze(0))), y.unsqueeze(0), reduction="none")
                likelihood = torch.mean(torch.exp(loss.detach().clone()))
                torch.mean(loss).backward()
                fish += likelihood * self.net.get_grads() ** 2
        fish /= len(dataset.train_loader) * self.args.batch_size
        self.fish = fish if self.fish is None else self.fish * self.args.gamma + fish
        self.checkpoint = self.net.get_params().data.clone()

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        self.opt.zero_grad()
        loss = self.loss(self.net(inputs), labels) + self.args.e_lambda * self.penalty()
        loss.backward()
        self.opt.step()
        return loss.item()


class Si(ContinualModel):
    NAME = "si"

    def __init__(self, backbone, loss, args, transform, dataset=None):
        super().__init__(backbone, loss, args, transform, dataset=dataset)
        self.checkpoint = self.net.get_params().data.clone()
        self.big_omega = None
        self.small_omega = 0

    def penalty(self):
        if self.big_omega is None:
            return torch.tensor(0.0)
        return (self.big_omega * (self.net.get_params() - self.checkpoint) ** 2).sum()

    def end_task(self, dataset):
        if self.big_omega is None:
            self.big_omega = torch.zeros_like(self.net.get_params())
        self.big_omega += self.small_omega / ((self.net.get_params().data - self.checkpoint) ** 2 + self.args.xi)
        self.checkpoint = self.net.get_params().data.clone()
        self.small_omega = 0

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        self.opt.zero_grad()
        loss = self.loss(self.net(inputs), labels) + self.args.c * self.penalty()
        loss.backward()
        nn.utils.clip_grad_value_(self.net.parameters(), 1)
        self.opt.step()
        self.small_omega += self.args.lr * self.net.get_grads().data ** 2
        return loss.item()


class Lwf(ContinualModel):
    """Learning without forgetting: begin_task makes a network, a frozen copy of the old one in evaluation mode."""

    NAME = "lwf"

    def __init__(self, backbone, loss, args, transform, dataset=None):
        super().__init__(backbone, loss, args, transform, dataset=dataset)
        self.old_net = None

    def end_task(self, dataset):
        self.old_net = copy.deepcopy(self.net).eval()
        for parameter in self.old_net.parameters():
            parameter.requires_grad_(False)

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        self.opt.zero_grad()
        outputs = self.net(inputs)
        loss = self.loss(outputs, labels)
        if self.old_net is not None:
            assert not self.old_net.training
            loss = loss + self.args.alpha * functional.mse_loss(outputs, self.old_net(inputs))
        loss.backward()
        self.opt.step()
        return loss.item()


class Grown(ContinualModel):
    """What papers' models make late: a head and a prototype for each task, a list of old networks, and a parameter.

    The optimizer has them, too. It counts with Mammoth's loop, which calls the hooks with meta_ where they exist.
    """

    NAME = "grown"

    def __init__(self, backbone, loss, args, transform, dataset=None):
        self.late = []
        super().__init__(backbone, loss, args, transform, dataset=dataset)
        self.current_task = self.epochs = 0
        self.old, self.means = [], {}

    def get_parameters(self):
        return [
            *self.net.parameters(),
            *(parameter for part in self.late for parameter in getattr(self, part).parameters()),
        ]

    def meta_begin_task(self, dataset):
        self.begin_task(dataset)

    def meta_end_task(self, dataset):
        self.current_task += 1
        self.end_task(dataset)

    def meta_observe(self, *given, **keys):
        return self.observe(*given, **keys)

    def begin_task(self, dataset):
        if not self.current_task:
            self.heads, self.late = nn.ModuleList(), ["heads", "project"]
            self.project = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
            self.scale = nn.Parameter(torch.ones(1))
        self.heads.append(nn.Linear(3, dataset.N_CLASSES))
        self.register_buffer("seen", torch.full((1,), float(self.current_task)))

    def end_task(self, dataset):
        self.old = [*self.old[-1:], copy.deepcopy(self.net)]
        self.means[self.current_task] = torch.stack([x.mean() for x, _, _ in dataset.train_loader]).mean()

    def end_epoch(self, epoch, dataset):
        self.epochs += 1

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        self.opt.zero_grad()
        outputs = self.net(inputs)
        late = self.heads[-1](self.project(outputs)) * self.scale
        loss = self.loss(outputs + late, labels) + 0.1 * (self.epochs + self.seen[0]) * outputs.square().mean()
        for old, mean in zip(self.old, self.means.values(), strict=False):
            loss = loss + (1 + mean) * functional.mse_loss(outputs, old(inputs).detach())
        loss.backward()
        self.opt.step()
        return loss.item()


class Unknown(Er):
    """It makes a network late that no recipe describes."""

    def begin_task(self, dataset):
        self.side = Side()


class Side(nn.Module):
    pass
