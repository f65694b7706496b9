"""The interface for writing methods. It is stable; the rest of the package may change between versions.

A method is a frozen dataclass with two optional nested classes. The simulator creates one `Client` per client and one
`Server` per run. With this method, every client multiplies its update by a factor before sending it:

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

    side       one of a method's two classes, a ClientHalf or a ServerHalf; its attributes are its state
    hook       a function that a side may override, and that raysim calls at a fixed place, such as `finish`
    stream     a client's training data, in order of arrival; a position is a sample's index in it
    task       a part of the stream with its own distribution, such as its own classes
    window     the samples of a client's stream that are available for training now
    stage      the windows between two task boundaries; the whole stream if clients are not notified of boundaries
    round      one update of the server's model
    cohort     the clients of a round
    share      a client's aggregation weight in the cohort; shares sum to 1
    phase      one client's local training in one round
    op         a public function of the client side, other than a hook, that the server side may request
    exchange   one op that clients carry out outside a phase: each receives a message and may return terms
    plan       a generator in the server side that yields requests to clients and receives their reduced terms
    term       a named value that one client returns; the server receives a mean, a sum, a total or all values
    broadcast  a value that clients keep until a newer version replaces it, such as the model
    delta      a change, to be added to the model
    protocol   how accuracy is measured: task_il predicts among the classes of the sample's task, class_il among all
    row        a sample of a dataset or a batch; in the accuracy matrix: the accuracies on all tasks at one time
    [P]        a flat vector of all trainable parameters
    [B]        a flat vector of all float buffers (BatchNorm statistics)
    [n, ...]   a tensor with one entry for each sample of a batch
"""

from raysim.api.client import Client
from raysim.api.encoded import Encoded
from raysim.api.forgetting import ForgettingServer
from raysim.api.local_optimizer import LocalAdam, LocalOptimizer, LocalSgd
from raysim.api.messages import Broadcast, Delta, GradientRequests, Reduction, Request, Term, Terms
from raysim.api.method import ClientHalf, Method, Plan, ServerHalf
from raysim.api.repeats import Repeats
from raysim.api.server import Server
from raysim.api.setting import Need, Setting
from raysim.api.step import Step
from raysim.memory import Entries, MemoryUse
from raysim.models.batch_statistics import BatchStatistics, with_batch_statistics
from raysim.models.flat import FlatModel, Weights
from raysim.system.device import to_device
from raysim.system.errors import Diverged, RunError

__all__ = [
    "BatchStatistics",
    "Broadcast",
    "Client",
    "ClientHalf",
    "Delta",
    "Diverged",
    "Encoded",
    "Entries",
    "FlatModel",
    "ForgettingServer",
    "GradientRequests",
    "LocalAdam",
    "LocalOptimizer",
    "LocalSgd",
    "MemoryUse",
    "Method",
    "Need",
    "Plan",
    "Reduction",
    "Repeats",
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
    "with_batch_statistics",
]
