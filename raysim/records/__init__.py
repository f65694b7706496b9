"""The run directory: rounds, TensorBoard, checkpoints, model and summary, and reading them again.

What is written is whole or not there.
"""
