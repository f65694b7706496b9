"""Evaluation of a model on test sets: right answers counted in chunks that hosts share, continual-learning metrics,
and the accuracy for each client."""
