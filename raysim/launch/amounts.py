"""Durations and bytes in words."""

from collections.abc import Mapping

from raysim.system.capacity import GIB, MIB


def in_number(count: float, what: str) -> str:
    """Return a number of things, such as "2 hosts"; a fraction to five digits."""
    number = f"{count:,}" if isinstance(count, int) else f"{count:,.5g}"
    return f"{number} {what}{'' if count == 1 else 's'}"


def in_hours(seconds: float) -> str:
    """Return seconds as hours, minutes or seconds."""
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def in_milliseconds(seconds: float) -> str:
    """Return a short time in milliseconds, to two digits; from a second on in seconds."""
    return f"{seconds:.1f} s" if seconds >= 1 else f"{float(f'{1e3 * seconds:.2g}'):g} ms"


def in_units(nbytes: float) -> str:
    """Return bytes in the largest unit that they fill."""
    for size, unit in ((GIB, "GiB"), (MIB, "MiB"), (2**10, "KiB")):
        if nbytes >= size:
            return f"{nbytes / size:.1f} {unit}"
    return f"{nbytes:.0f} bytes"


def in_bytes_by_method(by_method: Mapping[str, int], rounds: int) -> str:
    """Return the bytes of a run, in total and by method, with their means over its rounds."""
    total = sum(by_method.values())
    parts = ", ".join(f"{name} {nbytes:,} ({in_units(nbytes / rounds)} a round)" for name, nbytes in by_method.items())
    return f"{total:,} ({in_units(total)}; {in_units(total / rounds)} a round)" + f": {parts}" * (len(by_method) > 1)
