"""Torch's code on huge pages, which all children of a fork server share.

A process that computes anew after others have looks up again where each page of torch's code is. With pages of 2 MiB
instead of 4 KiB there is little to look up: training a small network on a CPU takes about 2% less time. Linux is
rarely built such that it maps a file so (CONFIG_READ_ONLY_THP_FOR_FS). So the code is copied to memory that may have
huge pages, and that memory is moved to the code's place.
"""

import ctypes
import mmap
import os
import platform
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

LIBRARIES = ("libtorch_cpu.so", "libtorch_python.so")
SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
MAPS = Path("/proc/self/maps")
HUGE = 2 * 2**20  # bytes of a huge page
PIECE = 8 * HUGE  # bytes that are moved at a time
FILL = 23  # MADV_POPULATE_WRITE of linux/mman.h (5.14): a copy to pages that are not there yet takes ten times as long
IN_PLACE = 3  # MREMAP_MAYMOVE | MREMAP_FIXED of linux/mman.h: to this address, in place of what is there


def possible() -> bool:
    """Return whether there are huge pages here that memory can be given."""
    return platform.machine() == "x86_64" and SETTING.exists() and "[never]" not in SETTING.read_text()


def move_code(libraries: Sequence[str] = LIBRARIES) -> Iterator[float]:
    """Move the code of these libraries, which are loaded, to huge pages; yield the seconds that each piece took.

    None where there are no huge pages, or where memory that was written to may not become code.
    """
    if not possible():
        return
    for start, end in _code(libraries):
        for piece in range(-(-start // HUGE) * HUGE, end // HUGE * HUGE, PIECE):
            began = time.perf_counter()
            if not _move(piece, min(PIECE, end // HUGE * HUGE - piece)):
                return
            yield time.perf_counter() - began


def _code(libraries: Sequence[str]) -> list[tuple[int, int]]:
    """Return start and end of the mappings that are code of these libraries."""
    found = []
    for line in MAPS.read_text().splitlines():
        where, allowed, _offset, _device, _inode, *path = line.split(maxsplit=5)
        if "x" in allowed and path and os.path.basename(path[0]) in libraries:
            start, end = where.split("-")
            found.append((int(start, 16), int(end, 16)))
    return found


def _move(start: int, size: int) -> bool:
    """Move whole huge pages of code; return whether that is allowed."""
    libc = ctypes.CDLL(None)
    libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
    address, length, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    libc.mmap.argtypes = (address, length, number, number, number, ctypes.c_long)
    libc.mremap.argtypes = (address, length, length, number, address)
    libc.madvise.argtypes = libc.mprotect.argtypes = (address, length, number)
    libc.munmap.argtypes = (address, length)
    to_write, private = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    room = libc.mmap(None, size + HUGE, to_write, private, -1, 0)
    if room == ctypes.c_void_p(-1).value:
        return False
    copy = -(-room // HUGE) * HUGE
    for advice in (mmap.MADV_HUGEPAGE, FILL):
        libc.madvise(copy, size, advice)
    ctypes.memmove(copy, start, size)
    to_run = mmap.PROT_READ | mmap.PROT_EXEC
    if libc.mprotect(copy, size, to_run) or libc.mremap(copy, size, size, IN_PLACE, start) != start:
        libc.munmap(room, size + HUGE)
        return False
    libc.munmap(room, copy - room)
    libc.munmap(copy + size, room + HUGE - copy)
    return True
