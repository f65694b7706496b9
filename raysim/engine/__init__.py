"""Rounds: the simulation and its schedules, orders and replies, exact sums, hosts and local training.

Nothing here uses Ray. A runner carries out the simulation's orders, in this process or on actors.
"""
