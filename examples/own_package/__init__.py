"""A package of one's own: one component of each kind, and run.yaml, which names them."""
