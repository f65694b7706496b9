"""Everything that knows Ray: the cluster, the coordinator and the hosts as actors, and the runner between them."""

import os

from raysim.actors import authentication

# Before Ray is imported. Of a host that died raysim speaks itself, and Ray's paragraph would come even with --quiet.
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "^A worker died or was killed while executing")

# A host's sum of up to a mebibyte comes with its answer: by way of the object store, ten answers took twice as long.
os.environ.setdefault("RAY_max_direct_call_object_size", str(2**20))

authentication.show_what_there_is()
