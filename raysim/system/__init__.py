"""Code independent of federated learning: random streams, devices, files, locks, signals, memory use, hardware, errors
and serialized state."""
