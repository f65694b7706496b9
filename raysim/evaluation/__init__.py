"""Evaluation of a model in chunks that hosts share, continual-learning metrics, and accuracy per client."""
