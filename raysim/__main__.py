"""`python -m raysim` is `raysim`."""

import os
import signal
import sys
import threading

from raysim.cli import main
from raysim.system.interrupts import STARTING


def command() -> None:
    """Do what the command line says and exit; Ctrl-C during Python's own end, when all is done, changes nothing."""
    status = main()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if any(thread.name == STARTING for thread in threading.enumerate()):  # Python's own end would wait for it, or crash
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


if __name__ == "__main__":
    command()
