"""A method of tests that sends each client a message of its own."""

import os
import sys
from dataclasses import dataclass
from typing import ClassVar

import torch

from raysim.api import Broadcast, ClientHalf, Method, Request, ServerHalf, Term

TO = {
    "no others": lambda ids: {},
    "everyone": lambda ids: {"to": "everyone"},
    "the same": lambda ids: {"to": [*reversed(ids)]},
    "others": lambda ids: {"to": ids[:2]},
    "absent": lambda ids: {"messages": {0: 1, 99: 2}},
    "list": lambda ids: {"messages": [1, 2, 3]},
    "tensor": lambda ids: {"messages": {torch.tensor(k): {"numbers": torch.full((k + 1,), float(k))} for k in ids}},
    "both": lambda ids: {"message": 1},
}


def given_to_the_host():
    """The clients whose messages the host of the client that calls this has: those of its work, in a frame below."""
    frame = sys._getframe()
    while "work" not in frame.f_locals:
        frame = frame.f_back
    return [*frame.f_locals["work"].message.by_client]


@dataclass(frozen=True, kw_only=True)
class Letters(Method):
    """At a task's end, client k receives k + 1 numbers of value k and answers with their sum and its own id."""

    to: str = "no others"
    spoils: bool = False
    some: int = 1000
    tells_process: bool = False
    sends_model: ClassVar = False
    replies: ClassVar = {"answer": "by_client"}

    class Client(ClientHalf):
        def read(self, client, letter):
            if self.method.spoils:
                letter["numbers"].add_(1)
            process = [os.getpid()] if self.method.tells_process else []
            said = [float(letter["numbers"].sum()), *process, *given_to_the_host()]
            return {"answer": Term(torch.tensor(said, dtype=torch.float64))}

    class Server(ServerHalf):
        answers = ()

        def end_task(self, server):
            ids = server.present[-self.method.some :]
            letters = {k: {"numbers": torch.full((k + 1,), float(k))} for k in ids}
            keys = {"messages": letters} | TO[self.method.to](server.present)
            sent = [Broadcast("Letters.all", server.round, torch.zeros(2))]
            reply = yield Request("read", broadcasts=sent, **keys)
            for letter in letters.values():
                letter["numbers"].zero_()  # a copy was sent
            self.answers = {k: answer.tolist() for k, answer in reply["answer"].items()}
            for k, answer in self.answers.items():
                server.record(f"answer of {k}", answer[0])
                server.record(f"beside {k}", len(answer) - 1 - self.method.tells_process)
                if self.method.tells_process:
                    together = sum(answer[1] == other[1] for other in self.answers.values())
                    server.record(f"in its process {k}", together)
