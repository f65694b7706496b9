"""What the layers above stand on and what has nothing to do with learning: errors, random streams,

files, locks, signals, memory, hardware, and the state that checkpoints hold.
"""
