"""The data of a run: which samples of which task reach which client, in what order, and when.

All of it is known before the run starts.
"""
