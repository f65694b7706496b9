"""Rounds: the simulation and its schedules, orders and replies, exact sums, hosts and local training.

It does not use Ray: a runner carries out its orders, in this process or on actors.
"""
