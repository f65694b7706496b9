"""A sweep: a grid of runs of one config, each a run directory of its own; resumable."""
