"""The methods that need images or are large: those that generate, and those with prompts; tiny, for every method."""

_SYNTHESIS = {"batch": 4, "steps": 1, "images": 5, "width": 2, "calls": 2, "warmup": 1, "student_steps": 1, "bn": 0.0}
GENERATORS = {
    "target": _SYNTHESIS | {"z": 2},
    "lander": _SYNTHESIS | {"hidden": 2, "dimension": 3, "keep_best": False, "anchor": 0.1},
    "mfcl": {"generated": 2, "steps": 2, "batch_size": 3, "latent": 2, "width": 2},
    "fedcil": {"width": 1, "noise": 2, "server_steps": 1, "server_batch": 3},
    "af_fcl": {"width": 2},
}
"""By method: hyperparameters that make it cheaper to run, or steady at the tests' learning rates."""


_PROMPTS = {
    "fed_l2p": {"kind": "l2p", "pool": 3, "length": 2, "top": 2},
    "fed_dualprompt": {"kind": "dual", "general_blocks": [0], "blocks": [1], "length": 2, "pool": 3},
    "fed_coda_prompt": {"kind": "coda", "blocks": [0, 1], "pool": 8, "per_task": 2, "length": 2},
    "fed_cprompt": {
        **{"kind": "coda", "blocks": [0, 1], "pool": 8, "per_task": 2, "length": 2},
        **{"attention": "softmax", "initial": "orthogonal"},
    },
}
PROMPTED = {
    name: {"name": "vit", "width": 8, "depth": 2, "heads": 2, "patch": 4, "input_size": None, "prompts": prompts}
    for name, prompts in _PROMPTS.items()
}
"""By method: the model that has its prompts."""
_LORA = {"name": "mlp", "hidden": [5], "adapters": {"rank": 2, "where": ["*"]}}
ADAPTED = dict.fromkeys(("lora", "ffa_lora", "lorm", "pilora"), _LORA)
"""By method: a model with adapters."""
MODELS = PROMPTED | ADAPTED


def images_for(name: str) -> dict[str, object]:
    """The overrides of synthetic data and of the model that a method needs; most need none."""
    images = {"dataset__shape": [1, 8, 8]} if name in GENERATORS or name in PROMPTED else {}
    return images | ({"model": MODELS[name]} if name in MODELS else {})
