"""What happens to one config: it is run into its directory, with recovery from lost processes and a display, or checked
for what its run would cost."""
