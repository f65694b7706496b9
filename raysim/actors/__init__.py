"""All code that uses Ray: the cluster, the coordinator and host actors, and the runner that sends orders to them."""
