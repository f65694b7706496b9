"""The interface for authors of methods: the two halves of a method, and what their hooks are given and return.

from raysim.api import Client, ClientHalf, Delta, Method, Step
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
