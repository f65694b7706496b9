"""The methods that generate images or features: tiny, and on images, for tests that run every method on vectors."""

_SYNTHESIS = {"batch": 4, "steps": 1, "images": 5, "width": 2, "calls": 2, "warmup": 1, "student_steps": 1, "bn": 0.0}
GENERATORS = {
    "target": _SYNTHESIS | {"z": 2},
    "lander": _SYNTHESIS | {"hidden": 2, "dimension": 3, "keep_best": False, "anchor": 0.1},
    "mfcl": {"generated": 2, "steps": 2, "batch_size": 3, "latent": 2, "width": 2},
    "fedcil": {"width": 1, "noise": 2, "server_steps": 1, "server_batch": 3},
    "af_fcl": {"width": 2},
}
"""By method: hyperparameters that make it cheaper to run, or steady at the tests' learning rates."""


def images_for(name: str) -> dict[str, object]:
    """The override of synthetic data that a method needs: images for generators, otherwise none."""
    return {"dataset__shape": [1, 8, 8]} if name in GENERATORS else {}
