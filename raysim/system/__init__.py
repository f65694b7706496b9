"""Code independent of federated learning: random streams, devices, files, locks, signals, memory, hardware, errors
and serialized state."""
