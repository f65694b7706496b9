"""Write a run's records into its directory and read them again.

The recorder of the run's events writes rounds, TensorBoard's files, checkpoints, the model and the summary.
"""
