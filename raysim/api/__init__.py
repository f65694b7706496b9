"""The interface for writing methods. It is stable; the rest of the package may change between versions.

A method is a frozen dataclass with two optional nested classes. `Client` runs beside each client's data, and `Server`
runs in the simulation. This method makes every client send only a part of its update:

>>> from dataclasses import dataclass
>>> import torch
>>> from raysim.api import ClientHalf, Delta, Method
>>> @dataclass(frozen=True, kw_only=True)
... class Shrink(Method):
...     '''Every client sends `factor` times its update.'''
...     factor: float = 0.5
...     class Client(ClientHalf):
...         def finish(self, client, delta):
...             return Delta(self.method.factor * delta.parameters, delta.buffers), {}
>>> shrink = Shrink(factor=0.25)
>>> delta, terms = shrink.Client("shrink", shrink).finish(None, Delta(torch.ones(2), torch.zeros(0)))
>>> delta.parameters
tensor([0.2500, 0.2500])

Saved in my_module.py, it runs with `raysim run quickstart 'methods={my_module:Shrink: {factor: 0.25}}'`.

Words and shapes:

    half       one side of a method, ClientHalf or ServerHalf; its attributes are its state
    phase      one client's local training in one round
    cohort     the clients of a round
    delta      a change, to be added to the model
    broadcast  a value for all clients that lasts longer than one message
    plan       a generator in the server half that yields requests to clients and receives their replies
    term       one client's part of a reply
    [P], [B]   one flat vector of all trainable parameters, of all float buffers (BatchNorm statistics)
    [n, ...]   one row for each sample of a batch
"""

from raysim.api.client import Client
from raysim.api.encoded import Encoded
from raysim.api.messages import Broadcast, Delta, Reduction, Request, Term, Terms
from raysim.api.method import ClientHalf, Method, Need, Plan, ServerHalf
from raysim.api.server import Server
from raysim.api.setting import Setting
from raysim.api.step import Step
from raysim.memory import Entries, MemoryUse
from raysim.models.flat import FlatModel, Weights
from raysim.system.device import to_device
from raysim.system.errors import Diverged, RunError

__all__ = [
    "Broadcast",
    "Client",
    "ClientHalf",
    "Delta",
    "Diverged",
    "Encoded",
    "Entries",
    "FlatModel",
    "MemoryUse",
    "Method",
    "Need",
    "Plan",
    "Reduction",
    "Request",
    "RunError",
    "Server",
    "ServerHalf",
    "Setting",
    "Step",
    "Term",
    "Terms",
    "Weights",
    "to_device",
]
