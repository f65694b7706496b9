"""From a config to a run directory: run, resume, recover from losses, check, and what a terminal shows.

Everything that starts something is here or in actors.
"""
