"""`python -m raysim` is `raysim`."""

import signal
import sys

from raysim.cli import main
from raysim.system.output import unfailing_output


def command() -> None:
    """Do what the command line says and exit; Ctrl-C during Python's own end, when all is done, changes nothing."""
    with unfailing_output(also_results=sys.argv[1:2] in (["run"], ["sweep"], ["report"])):
        status = main()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(status)


if __name__ == "__main__":
    command()
