"""A package of one's own: one component of each kind, and run.yaml and stream.yaml, which name them."""
