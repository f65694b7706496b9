"""Everything that knows Ray: the cluster, the coordinator and the hosts as actors, and the runner between them."""

import os

# Before Ray is imported: of a host that died raysim speaks itself, and Ray's paragraph would come even with --quiet.
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "^A worker died or was killed while executing")
