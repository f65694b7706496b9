"""`python -m raysim` is `raysim`."""

import sys

from raysim.cli import main

sys.exit(main())
