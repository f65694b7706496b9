"""The page about several machines: its table says how many hosts there would be, as the placement computes it."""

import re

import pytest
from pages import ROOT

from raysim.config import load
from raysim.estimate.placement import place
from raysim.system.capacity import Capacity

PAGE = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip(" `") for cell in line.strip("|").split("|")]
    for line in PAGE.partition("<!-- placements -->")[2].partition("\n\n")[0].splitlines()[3:]
]


def machine(text: str) -> Capacity:
    """What a row's machine or machines have."""
    nodes = int(found[1]) if (found := re.match(r"(\d) nodes", text)) else 1
    gpus = 1 if text.startswith("one GPU") else int(found[1]) if (found := re.search(r"(\d) GPUs", text)) else 0
    cores = re.search(r"(\d+) cores", text)
    assert cores is not None
    node = Capacity(int(cores[1]), gpus, None)
    return Capacity(nodes * node.cpus, nodes * node.gpus, None, {}, [node] * nodes if nodes > 1 else [])


@pytest.mark.parametrize(("have", "config", "add", "hosts"), ROWS)
def test_a_row_has_the_hosts_that_there_would_be(have: str, config: str, add: str, hosts: str) -> None:
    clients = re.match(r"([\d,]+) clients", config)
    assert clients is not None
    asked = load("quickstart", [f"clients.count={clients[1].replace(',', '')}", *add.split()])
    placed = place(asked, machine(have))
    sizes = sorted({*map(len, placed.clients)})
    expected = f"{placed.actors} host{'s' * (placed.actors > 1)} with {' or '.join(map(str, sizes))} client"
    assert hosts == expected + "s" * (sizes != [1])


def test_the_table_is_read() -> None:
    assert len(ROWS) >= 9
