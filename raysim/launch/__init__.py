"""Running one config into its directory, with recovery from lost processes and a display, or checking what the run
would cost."""
