"""The records of a run in its directory: rounds, TensorBoard's files, checkpoints, the model and the summary, written
by one recorder of its events, and reading them again."""
