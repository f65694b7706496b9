"""The commands of one run: run it from a config to its directory, check what it would cost, evaluate its model;
with recovery from lost processes and a display."""
