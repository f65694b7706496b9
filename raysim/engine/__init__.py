"""Rounds: the simulation and its schedules, orders and replies, exact sums, hosts and local training.

It knows no Ray: a runner carries its orders out, in this process or on actors.
"""
