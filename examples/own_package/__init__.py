"""A custom package: one component of each kind, and run.yaml and stream.yaml, which name them."""
