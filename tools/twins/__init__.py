"""methods of raysim against references in plain torch: whole federated runs in float64."""
