"""The stream of a config before a run, as a picture: clients by time, from what is drawn before the first step."""
