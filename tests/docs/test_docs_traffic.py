"""What the methods' pages say that they send is what a run counts."""

import re
from collections.abc import Callable

import pytest
from generators import GENERATORS, images_for
from pages import ROOT

from raysim.config import lookup

# what takes the place of a model of 59 float32: one entry with its place; 59 codes of a byte and a norm
ENCODED = {"top_k": 4 + 4, "quantize": 59 + 4}
A, HEAD = 2 * 6, 5 * 4 + 4  # the numbers of A of rank 2 for 6 inputs, and of the head, from 5 to 4
WITHHELD = {"fedper": 4 * HEAD, "ffa_lora": 4 * A}
KNOBS = {"re_fed": {"epochs": 1}, **GENERATORS}
ATT = {"lander": 4 * (3 * 5 + 3)}  # a layer from 5 features to vectors of 3, both ways
LOSS = {"lander": 4, "fedcil": 4, "lorm": 4 * (6 + 15), "pilora": 4 * 4 * (2 * 5 + 1)}
# up: a loss; which of the 4 classes a client has; Grams of 6 and 5 x 5 inputs; prototypes, means, counts of 4 classes
LINE = re.compile(r"[Uu]p (\d), down (\d)")


@pytest.mark.parametrize("name", list(lookup.table("method")))
def test_the_page_has_the_bytes_of_a_round(name: str, tiny: Callable, simulate: Callable) -> None:
    """Three clients, all in every round; in a task's second round, as vectors as long as the model per client."""
    page = (ROOT / "docs" / "methods" / f"{name}.md").read_text(encoding="utf-8")
    said = LINE.findall(page.partition("## What it sends")[2])
    second = {"name": "synthetic", "shape": [6], "classes": 4, "train": 12, "test": 4}
    more = {"dataset__unlabelled": second} if name == "cfed" else images_for(name)
    if name in ("fot", "icarl", "glfc", "dann", "lorm"):  # what it sends at a task's end is not as long as the model
        more |= {"training__rounds_per_task": 5}
    run = simulate(tiny(methods={name: KNOBS.get(name, {})}, **more))
    model = 3 * run.simulation.model.weights().nbytes
    for row, (up, down) in ((run.rounds[1], said[0]), (run.rounds[3], said[-1])):
        encoded, withheld = 3 * ENCODED.get(name, 0), 3 * WITHHELD.get(name, 0)
        besides = 3 * (ATT.get(name, 0) + generator_of(run.simulation)) - withheld
        orders = 3 * 4 * 8 * 64 * (name == "af_fcl")  # of a flow of 4 layers over 64 features, int64
        assert row.bytes_up == int(up) * model + encoded + besides + 3 * LOSS.get(name, 0)
        assert row.bytes_down == int(down) * model + besides + orders


def generator_of(simulation):
    """The bytes of FedCIL's generator, if there is one; its second head has 5 weights and a bias. Of AF-FCL's flow."""
    networks = simulation.server.networks.state()
    if "af_fcl.flow" in networks:
        return 4 * len(networks["af_fcl.flow"][0])
    return 4 * (len(networks["fedcil.generator"][0]) + 5 + 1) if "fedcil.generator" in networks else 0
