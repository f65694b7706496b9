"""Sweeps: grids of runs of one config, from a sweep's file to a directory with a run in each folder.

Finished runs are not repeated; each run is carried out in one process, several at a time on Ray.
"""
