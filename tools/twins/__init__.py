"""Methods of raysim beside references in plain torch: whole federated runs in float64."""
