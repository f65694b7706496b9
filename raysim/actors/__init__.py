"""Everything that knows Ray: the cluster, the coordinator and the hosts as actors, and the runner between them."""
