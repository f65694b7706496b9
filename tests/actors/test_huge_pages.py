"""Torch's code is moved in processes of their own, as nothing moves it back."""

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from raysim.actors.forking import huge_pages, server
from raysim.actors.forking.huge_pages import HUGE, PIECE, move_code, possible

needs_huge_pages = pytest.mark.skipif(
    not possible(),
    reason="this machine has no transparent huge pages for x86-64, so raysim leaves torch's code where it is, which "
    "test_without_huge_pages_or_on_another_processor_nothing_is_moved shows on every machine",
)

SAY = """
import json, os, torch
from torch.nn import functional
from raysim.actors.forking.huge_pages import LIBRARIES, _code, move_code

def compute():
    x = torch.linspace(-1, 1, 4 * 28 * 28).reshape(4, 1, 28, 28).requires_grad_()
    weight = torch.linspace(-1, 1, 50).reshape(2, 1, 5, 5)
    functional.cross_entropy(functional.conv2d(x, weight).flatten(1), torch.arange(4)).backward()
    return x.grad.double().sum().item()

def refused():
    try:
        return torch.zeros(2, 3) @ torch.zeros(2, 3)
    except RuntimeError as error:  # thrown in C++, through what was moved
        return str(error)

def executable():
    found = {}
    for line in open("/proc/self/maps"):
        where, allowed, *_, inode = line.split()[:5]
        if "x" in allowed:
            start, end = (int(address, 16) for address in where.split("-"))
            found[where] = start, end, "w" in allowed, inode != "0"
    return list(found.values())
"""
MOVED = f"""{SAY}
torch.set_num_threads(1)
code, before = _code(LIBRARIES), (compute(), refused())
pieces = list(move_code())
again = list(move_code())
child = os.fork()
if not child:
    os._exit((compute(), refused()) != before)
_, status = os.waitpid(child, 0)
print(json.dumps([code, pieces, again, executable(), (compute(), refused()) == before, before[1], status]))
"""
REFUSED = f"""{SAY}
import sys
from raysim.actors.forking import huge_pages
setattr(*{{"mprotect": (huge_pages.mmap, "PROT_EXEC", 2**30), "mremap": (huge_pages, "IN_PLACE", 64)}}[sys.argv[1]])
code = _code(LIBRARIES)
print(json.dumps([list(move_code()), _code(LIBRARIES) == code, refused()]))
"""


def run(script: str, *arguments: str) -> Any:
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs_huge_pages
def test_all_whole_huge_pages_of_the_code_are_moved_and_compute_the_same() -> None:
    code, pieces, again, executable, same, refused, status = run(MOVED)
    assert same
    assert "cannot be multiplied" in refused
    assert status == 0  # a child's, too
    assert again == []
    assert len(code) == 2
    assert len(pieces) == sum(-(-(end // HUGE - -(-start // HUGE)) // (PIECE // HUGE)) for start, end in code)
    for start, end in code:
        first, last = -(-start // HUGE) * HUGE, end // HUGE * HUGE
        within = sorted(part for part in executable if start <= part[0] and part[1] <= end)
        assert sum(part[1] - part[0] for part in within) == end - start  # nothing is missing
        for begins, ends, written, of_a_file in within:
            assert not written
            assert of_a_file == (ends <= first or begins >= last)  # what is no whole huge page stays


@needs_huge_pages
@pytest.mark.parametrize("call", ["mprotect", "mremap"])
def test_where_linux_refuses_a_part_of_it_all_stays(call: str) -> None:
    """As a hardened kernel or a container's sandbox does; here it is given a flag that it does not know."""
    pieces, same, refused = run(REFUSED, call)
    assert pieces == []
    assert same
    assert "cannot be multiplied" in refused


@pytest.mark.parametrize(
    ("setting", "machine"),
    [("always madvise [never]\n", "x86_64"), (None, "x86_64"), ("[always] madvise never\n", "aarch64")],
)
def test_without_huge_pages_or_on_another_processor_nothing_is_moved(
    setting: str | None, machine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def moved(start: int, size: int) -> bool:
        raise AssertionError

    path = tmp_path / "enabled"
    if setting is not None:
        path.write_text(setting)
    monkeypatch.setattr(huge_pages, "SETTING", path)
    monkeypatch.setattr(huge_pages.platform, "machine", lambda: machine)
    monkeypatch.setattr(huge_pages, "_code", lambda libraries: [(0, 10 * HUGE)])
    monkeypatch.setattr(huge_pages, "_move", moved)
    assert list(move_code()) == []


def test_pieces_are_moved_with_pauses_while_ray_starts_and_without_when_it_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The fork server is told over its standard input, which is closed if Ray does not start."""
    read, write = os.pipe()
    moved: list[int] = []

    def pieces() -> Any:
        for number in range(9):
            moved.append(number)
            if number == 4:
                os.write(write, b"{}")
            yield 0.001 if number < 4 else 600.0  # a pause of so long would fail this test

    pauses: list[float] = []

    def wait(readable: Any, writable: Any, broken: Any, seconds: float) -> Any:
        pauses.append(seconds)
        return select.select(readable, writable, broken, seconds)

    monkeypatch.setattr(server, "move_code", pieces)
    monkeypatch.setattr(server, "select", SimpleNamespace(select=wait))
    with open(read, encoding="utf-8") as told:
        monkeypatch.setattr(sys, "stdin", told)
        server.use_huge_pages()
        assert moved == list(range(9))
        assert pauses == [0.001] * 4 + [600.0] * 5
        os.close(write)
        assert told.read() == "{}"


def test_the_code_of_a_library_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    maps = """\
7f0000000000-7f0000001000 r--p 00000000 fe:00 17   /a b/torch/lib/libtorch_cpu.so
7f0000001000-7f0000401000 r-xp 00001000 fe:00 17   /a b/torch/lib/libtorch_cpu.so
7f0000600000-7f0000a00000 r-xp 00000000 00:00 0
7f0000b00000-7f0000c00000 r-xp 00000000 fe:00 18   /a b/torch/lib/libtorch_cpu.so.old
"""
    monkeypatch.setattr(huge_pages, "MAPS", type("Maps", (), {"read_text": staticmethod(lambda: maps)}))
    assert huge_pages._code(["libtorch_cpu.so"]) == [(0x7F0000001000, 0x7F0000401000)]
