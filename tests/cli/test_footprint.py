import json
import os
import socket
import subprocess
import sys

import numpy as np
import psutil
import pytest

from raysim.system.footprint import Footprint, Peak, own_peak

MIB = 2**20


IN_ALL = f"""
import json, subprocess, sys
from raysim.system.footprint import Footprint
footprint, found = Footprint(), []
def sample():
    footprint.sample()
    found.append(footprint.peak_bytes)
sample()
held = bytearray({80 * MIB})
code = "held = bytearray({60 * MIB}); print(flush=True); input()"
child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
sample()
child.communicate(b"\\n")
del held
sample()
print(json.dumps(found))
"""


def test_the_peak_is_of_all_processes_and_stays_when_they_are_gone() -> None:
    """In a small process of its own: of a large one the system may take pages back meanwhile."""
    made = subprocess.run([sys.executable, "-c", IN_ALL], capture_output=True, text=True, check=True)
    before, full, after = json.loads(made.stdout)
    assert 140 * MIB < full - before < 160 * MIB  # and what Python takes for a process
    assert after == full


def test_memory_that_does_not_change_is_not_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []
    full = psutil.Process.memory_full_info

    def noted(process: psutil.Process) -> object:
        counted.append(process.pid)
        return full(process)

    monkeypatch.setattr(psutil.Process, "memory_full_info", noted)
    footprint = Footprint()
    for _ in range(5):
        footprint.sample()
    assert len(counted) == 1
    held = np.ones(200 * MIB, np.uint8)
    for _ in range(5):
        footprint.sample()
    assert len(counted) == 2
    assert footprint.peak_bytes > len(held)


HIGHER_ONCE = f"""
import json
from raysim.system.footprint import own_peak
peaks = [own_peak()]
held = bytearray({80 * MIB})
peaks.append(own_peak())
del held
peaks.append(own_peak())
print(json.dumps([peak.nbytes for peak in peaks]))
"""


def test_a_process_knows_what_it_has_taken_at_most() -> None:
    made = subprocess.run([sys.executable, "-c", HIGHER_ONCE], capture_output=True, text=True, check=True)
    before, full, after = json.loads(made.stdout)
    assert full - before == pytest.approx(80 * MIB, rel=0.05)
    assert after == pytest.approx(full, rel=0.05)


def test_processes_of_other_machines_are_added_and_those_that_are_seen_are_not() -> None:
    footprint, here = Footprint(), socket.gethostname()
    footprint.sample()
    alone = footprint.peak_bytes
    footprint.add([own_peak(), Peak("elsewhere", os.getpid(), 100)])
    assert footprint.peak_bytes == alone + 100
    footprint.add([Peak(here, -1, 60), Peak("elsewhere", 1, 70)])  # the first is no descendant of this process
    assert footprint.peak_bytes == alone + 130
    footprint.add([Peak("elsewhere", 1, 70)])
    assert footprint.peak_bytes == alone + 130


def test_a_peak_that_another_found_is_kept_where_it_is_higher() -> None:
    footprint = Footprint()
    footprint.sample()
    own = footprint.peak_bytes
    footprint.reach(own - 1)
    assert footprint.peak_bytes == own
    footprint.reach(own + 1)
    assert footprint.peak_bytes == own + 1


def test_where_another_process_tells_its_peak_this_ones_does_not_count() -> None:
    """As in a sweep, whose own memory is none of its runs'."""
    footprint = Footprint()
    footprint.reach(100)
    footprint.add([])
    assert footprint.peak_bytes == 100
