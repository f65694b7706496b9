"""The methods that generate images: tiny, and on images, for tests that run every method on vectors."""

GENERATORS = {
    "mfcl": {"generated": 2, "steps": 2, "batch_size": 3, "latent": 2, "width": 2},
    "fedcil": {"width": 1, "noise": 2, "server_steps": 1, "server_batch": 3},
}
"""By method: hyperparameters that only make it cheaper to run."""


def images_for(name: str) -> dict[str, object]:
    """The override of synthetic data that a method needs: images for generators, otherwise none."""
    return {"dataset__shape": [1, 8, 8]} if name in GENERATORS else {}
