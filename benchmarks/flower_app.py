"""The benchmark's federation in Flower, for flower.py; runs in Flower's environment, without raysim.

    python -c "import flower_app; flower_app.main()" DATA.npz CLIENTS ROUNDS train|idle CORES

Written like Flower's own examples, and in its favor if there is a choice. The data are read once per process. There is
no evaluation. Every client trains in each round. There are as many processes as cores, each with one torch thread.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from timing import WARM_UP, Clock
from torch import nn

BATCH, LR = 32, 0.01  # workload.py's
client_app, server_app = ClientApp(), ServerApp()


@lru_cache(maxsize=1)
def model() -> nn.Module:
    """Return raysim's MNIST CNN, loaded from its file, since importing the package requires its dependencies."""
    path = Path(__file__).parents[1] / "raysim" / "models" / "mnist_cnn.py"
    spec = importlib.util.spec_from_file_location("mnist_cnn", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net: nn.Module = module.MnistCnn(1, 10)
    return net


@lru_cache(maxsize=1)
def parts(path: str, clients: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return every client's images (uint8 [n, 28, 28, 1]) and labels."""
    with np.load(path) as found:
        x, y = torch.from_numpy(found["x_train"]), torch.from_numpy(found["y_train"])
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(y))).view(clients, -1)
    return [(x[part], y[part]) for part in order]


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """Do one local epoch, or nothing."""
    asked: Any = message.content["config"]
    received: Any = message.content["arrays"]
    x, y = parts(asked["data"], asked["clients"])[int(context.node_config["partition-id"])]
    if asked["train"]:
        net = model()
        net.load_state_dict(received.to_torch_state_dict())
        net.train()
        optimizer = torch.optim.SGD(net.parameters(), lr=LR)
        for part in torch.randperm(len(y)).split(BATCH):
            batch = (x[part].float() / 255).permute(0, 3, 1, 2)
            loss = nn.functional.cross_entropy(net(batch), y[part])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        received = ArrayRecord(net.state_dict())
    content = RecordDict({"arrays": received, "metrics": MetricRecord({"num-examples": len(y)})})
    return Message(content=content, reply_to=message)


class Timed(FedAvg):
    """FedAvg that measures the time of its rounds."""

    def __init__(self, clock: Clock, clients: int) -> None:
        super().__init__(fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients)
        self.clock = clock

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        replies = list(replies)
        if any(reply.has_error() for reply in replies):
            raise RuntimeError("a client failed")
        result = super().aggregate_train(server_round, replies)
        self.clock.round_done()
        return result


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    """Run the rounds and print their seconds."""
    data, clients, rounds, what, _ = sys.argv[1:]
    clock = Clock(int(rounds))
    asked = ConfigRecord({"data": data, "clients": int(clients), "train": what == "train"})
    Timed(clock, int(clients)).start(
        grid=grid,
        initial_arrays=ArrayRecord(model().state_dict()),
        num_rounds=WARM_UP + int(rounds) + 1,
        train_config=asked,
    )
    print(json.dumps({"seconds": clock.seconds, "cpu": clock.cpu}), flush=True)


def main() -> None:
    logging.getLogger("flwr").setLevel(logging.ERROR)
    cores = int(sys.argv[5])
    backend: Any = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": cores}}
    run_simulation(server_app, client_app, int(sys.argv[2]), backend_config=backend)
