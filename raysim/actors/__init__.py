"""All code that uses Ray: the cluster, the coordinator and host actors, and the runner that sends orders to them."""

import os

from raysim.actors import authentication

# Set before Ray is imported. raysim reports a loss itself; Ray would print a paragraph, even with --quiet.
SAID_BY_RAYSIM = (
    "A worker died or was killed while executing",
    "Raylet is terminated",
    r"The node .* and address: 127\.0\.0\.1 ",
    r"WARNING: \d+ PYTHON worker processes have been started",  # that many were asked for
)
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", f"^({'|'.join(SAID_BY_RAYSIM)})")
# An error that nobody reads is a run's that was ended at once: the coordinator sees its hosts end.
os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")

# A host's sum of up to 1 MiB is sent inside its answer: through the object store, ten answers took twice as long.
os.environ.setdefault("RAY_max_direct_call_object_size", str(2**20))

authentication.show_what_there_is()
