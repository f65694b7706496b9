"""The methods, one file each. FedAvg is no method at all: an empty list."""

METHODS = {
    "fedprox": "raysim.algorithms.fedprox:FedProx",
}
