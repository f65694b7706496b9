import subprocess
import sys

import numpy as np
import psutil
import pytest

from raysim.footprint import Footprint

MIB = 2**20


def test_the_peak_is_of_all_processes_and_stays_when_they_are_gone() -> None:
    footprint = Footprint()
    footprint.sample()
    before = footprint.peak_bytes
    held = np.ones(80 * MIB, np.uint8)
    child = subprocess.Popen(
        [sys.executable, "-c", f"held = bytearray({60 * MIB}); print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout
    child.stdout.readline()
    footprint.sample()
    child.communicate(b"\n")
    assert footprint.peak_bytes - before > (len(held) + 30 * MIB)  # the system may take back other pages meanwhile
    peak = footprint.peak_bytes
    del held
    footprint.sample()
    assert footprint.peak_bytes == peak


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
