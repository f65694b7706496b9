"""What a run leaves in its directory: rounds, TensorBoard's files, checkpoints, the model and the summary, written by
one recorder of its events, and read again."""
