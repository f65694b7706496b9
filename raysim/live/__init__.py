"""`raysim live`: a page that follows runs while they write their directories, and replays finished ones.

The page reads files and nothing else, so it works over runs of other processes and other machines.
"""
