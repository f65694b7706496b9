"""Messages as long as a client's data: their bytes follow from two rehearsals of different size, and a line."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from costs import cost_of

from raysim.api import ClientHalf, Method, Request, ServerHalf, Term
from raysim.estimate.lines import ByteLine, Sizes, add_up, fit

RANK = 2


@dataclass(frozen=True, kw_only=True)
class Replaying(Method):
    """As FedCBDR: features of all samples go up at a task's end, each client's own rows come back, then scores go up.

    What clients remember, a third of their samples, goes up as positions in the next task.
    """

    replies: ClassVar = {"features": "by_client", "scores": "by_client", "remembered": "by_client"}

    class Client(ClientHalf):
        kept = 0

        def embed(self, client, message):
            x, _ = client.samples(client.arrived)
            return {"features": Term(x.flatten(1))}

        def scores(self, client, message):
            assert message.shape == (len(client.arrived), RANK)
            self.kept += len(message) // 3
            return {"scores": Term(message[:, 0].clone())}

        def finish(self, client, delta):
            return delta, {"remembered": Term(torch.zeros(self.kept))} if self.kept else {}

    class Server(ServerHalf):
        def end_task(self, server):
            features = (yield Request("embed", to="everyone"))["features"]
            for client, rows in features.items():
                yield Request("scores", rows[:, :RANK].clone(), to=[client])


FEDERATIONS = {
    "few": {"clients__count": 5, "dataset__train": 61, "partition": {"kind": "dirichlet", "alpha": 0.5}},
    "some": {"clients__count": 4, "dataset__train": 500},
    "many": {"clients__count": 50, "dataset__train": 500},
}


@pytest.mark.parametrize("name", FEDERATIONS)
def test_messages_that_grow_with_the_data_are_within_a_tenth(tiny, simulate, name):
    config = tiny(methods={f"{__name__}:Replaying": {}}, **FEDERATIONS[name])
    traffic, cost = simulate(config).simulation.exchange.traffic, cost_of(config)
    assert cost.unsure_bytes
    assert cost.up["Replaying"] == pytest.approx(traffic.up - cost.up["model"], rel=0.1)
    assert cost.down["Replaying"] == pytest.approx(traffic.down_by_method["Replaying"], rel=0.1)


def sizes(arrived, so_far):
    return Sizes(arrived, so_far - arrived, so_far)


def test_a_line_goes_through_what_was_seen():
    """7 bytes and 3 for each sample so far; the line of the samples of a window would be off."""
    seen = [(sizes(n, n * task), 7 + 3 * n * task) for n in (4, 6) for task in (1, 2, 3)]
    line, is_exact = fit(seen, ("arrived", "so_far", "finished"))
    assert (line.of, is_exact, line.at(sizes(100, 500)), line.at(sizes(0, 0))) == ("so_far", True, 1507, 7)
    assert fit([(size, 9) for size, _ in seen], ("arrived",)) == (ByteLine(9.0), True)
    assert not fit([*seen, (sizes(4, 4), 20)], ("arrived", "so_far", "finished"))[1]
    assert line.at(add_up([sizes(1, 2), sizes(3, 5)])) == 7 + 3 * 7
