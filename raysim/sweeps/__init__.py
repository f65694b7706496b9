"""Sweeps: grids of runs of one config, from a sweep's file to a directory with a run in each folder.

What is done is not done again; each run is carried out in one process, several at a time on Ray.
"""
