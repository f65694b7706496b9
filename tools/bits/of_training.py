"""Runs of training, memory, evaluation, and of ways to carry a run out: on Ray, cut off and resumed, evaluated."""

from __future__ import annotations

from bits.run import DATA, Keys, Run, alone, classes, domains

ADAM = {"name": "adam", "lr": 0.01, "betas": [0.8, 0.95], "eps": 1e-6, "weight_decay": 0.01}
FILLED = {
    "arrival": ("reservoir", "class_balanced", "class_ring", "task_ring", "sliding_window", "random"),
    "boundary": ("reservoir", "class_balanced", "class_ring", "task_ring", "sliding_window", "random"),
}
OWN: Keys = {"model": {"name": "bits.own:normalised", "width": 6}}
DROPPING: Keys = {"model": {"name": "bits.own:dropping"}}
CHECKPOINTS: Keys = {"checkpoint": {"every_rounds": 2, "keep": 1}, "evaluation.every_rounds": 1}

TRAINING = {
    "adam": Run({"training.optimizer": ADAM, "training.local_epochs": 2}),
    "momentum, decay": Run(
        {"training.optimizer": {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}, **alone("er"), **OWN}
    ),
    "nesterov": Run({"training.optimizer": {"lr": 0.05, "momentum": 0.9, "nesterov": True}, **alone("er")}),
    "adamw": Run({"training.optimizer": {**ADAM, "name": "adamw"}, **alone("fedprox")}),
    "falling rate": Run({"training.lr_decay": {"per_round": 0.8, "per_task": 0.5, "restart": False}}),
    "falling rate, anew": Run({"training.lr_decay": {"per_round": 0.7}, **alone("fedprox")}),
    "kept momentum, bf16": Run(
        {"training.optimizer": {"lr": 0.05, "momentum": 0.9}, "training.keep_optimizer": True}
        | {"training.precision": "bf16", **alone("er")}
    ),
    "accumulated": Run({"training.accumulate": 3, "methods": {"er": {}, "scaffold": {}}}),
    "steps, der": Run({"training.local_epochs": None, "training.local_steps": 5, **alone("der")}),
    "cosine rate": Run({"training.lr_decay": {"name": "cosine", "per": "run", "warmup": 1, "least": 0.1}}),
    "rising rate": Run({"training.lr_decay": {"name": "warmup", "per": "task", "rounds": 2}}),
    "clipped": Run({"training.clip_norm": 0.4, **alone("fed_a_gem", sample_size=4)}),
    "together": Run({"training.vectorise": 2, "methods": {"scaffold": {}, "er": {}, "fed_a_gem": {}}}),
    "together, dropout": Run({"training.vectorise": 3, **DROPPING, **alone("fedprox")}),
    "mlp, batch norm": Run({"model": {"name": "mlp", "hidden": [8, 6], "batch_norm": True}, **alone("er")}),
    "dropout in a module": Run({**DROPPING, **alone("der", beta=0.3)}),
    "mnist_cnn": Run(
        {"model": {"name": "mnist_cnn"}, "dataset": {"name": "npz", "path": "large.npz", "root": DATA}}
        | {**alone("fed_a_gem", sample_size=4), "training.batch_size": 10}
    ),
    "mcmahan_cnn": Run(
        {"model": {"name": "mcmahan_cnn"}, "dataset": {"name": "npz", "path": "large.npz", "root": DATA}}
        | {"participation.count": 1, "training.rounds_per_task": 1, "training.batch_size": 10}
    ),
    "resnet18": Run(
        {"model": {"name": "resnet18"}, "training.rounds_per_task": 1, "training.batch_size": 36, **alone("scaffold")}
        | {"participation.count": 1}
    ),
    "small_resnet": Run(
        {"model": {"name": "small_resnet", "depth": 14, "width": 3}, "training.rounds_per_task": 1, **alone("er")}
    ),
    "torchvision": Run(
        {
            "model": {"name": "torchvision", "architecture": "shufflenet_v2_x0_5", "input_size": 32, "normalize": True},
            "training.rounds_per_task": 1,
        }
    ),
    "from given weights": Run({"model": {"name": "bits.own:normalised", "width": 6, "weights": f"{DATA}/weights.pt"}}),
    "another seed": Run({"seed": 11, **alone("er")}),
}

VIT: Keys = {"name": "vit", "width": 8, "depth": 2, "heads": 2, "mlp_ratio": 2.0, "patch": 3, "input_size": 6}

FROZEN = {
    "frozen parts": Run(
        {"model": {"name": "bits.own:normalised", "width": 6, "freeze": ["first.*", "norm.*"]}}
        | {"training.lr_scales": {"last.bias": 3.0}}
    ),
    "a file for a part": Run(
        {
            "model": {
                "name": "bits.own:inside",
                "weights": f"{DATA}/weights.pt",
                "prefix": "body.",
                "freeze": ["body.f*"],
            }
        }
    ),
    "local parts": Run({"model": {"name": "bits.own:normalised", "local": ["norm.*"]}, "evaluation.model": "local"}),
    "lora": Run(
        {"model": {"name": "bits.own:normalised", "adapters": {"kind": "lora", "rank": 2, "where": ["first"]}}}
        | {"model.adapters.scale": 2.0, **alone("er")}
    ),
    "lora alone, dropout": Run(
        {"model": {"name": "bits.own:normalised", "adapters": {"rank": 2, "where": ["first"], "head": False}}}
        | {"model.adapters.dropout": 0.3, **alone("er")}
    ),
    "vit, lora": Run({"model": {**VIT, "adapters": {"rank": 2, "where": ["qkv", "fc1"]}}, **alone("fedprox")}),
    "vit": Run({"model": {**VIT, "input_size": None}}),
    "vit in bfloat16": Run(
        {"model": {**VIT, "adapters": {"rank": 2, "where": ["blocks.1.*"]}, "precision": "bfloat16"}, **alone("der")}
    ),
    "features in bfloat16": Run(
        {"model": {**VIT, "adapters": {"rank": 2, "where": ["blocks.1.*"]}, "cache": True, "precision": "bfloat16"}}
        | {"dataset.root": DATA, **classes(3)}
    ),
    "recomputed blocks": Run(
        {"model": {**VIT, "adapters": {"rank": 2, "where": ["qkv", "fc1"]}, "checkpointing": True}, **alone("lwf")}
        | classes(3)
    ),
    "features": Run(
        {"model": {**VIT, "adapters": {"rank": 2, "where": ["blocks.1.*"]}, "cache": True}, "dataset.root": DATA}
        | {**classes(3), **alone("er")}
    ),
    "timm, cached": Run(
        {
            "model": {
                "name": "timm",
                "architecture": "test_efficientnet",
                "input_size": 32,
                "freeze": ["conv_stem.*", "bn1.*", "blocks.[0-3].*"],
                "cache": True,
            },
            "dataset.root": DATA,
            "training.rounds_per_task": 1,
        }
        | classes(2)
    ),
    "l2p": Run(
        {"model": {**VIT, "prompts": {"kind": "l2p", "pool": 3, "length": 2, "top": 2, "average": "prompts"}}}
        | {**classes(3), "training.logits": "task", "model.prompts.faithful_positions": True}
    ),
    "dual": Run(
        {"model": {**VIT, "prompts": {"kind": "dual", "pool": 3, "length": 2, "general_length": 2}}}
        | {**classes(3), "model.prompts.general_blocks": [0], "model.prompts.blocks": [1]}
    ),
    "coda": Run(
        {"model": {**VIT, "prompts": {"kind": "coda", "pool": 6, "per_task": 2, "length": 4, "blocks": [0, 1]}}}
        | classes(3)
    ),
    "prefix": Run({"model": {**VIT, "prompts": {"kind": "prefix", "length": 2, "blocks": [1]}}, **classes(2)}),
    "coda, softmax": Run(
        {"model": {**VIT, "prompts": {"kind": "coda", "pool": 4, "per_task": 2, "length": 2, "blocks": [1]}}}
        | {"model.prompts.attention": "softmax", "model.prompts.initial": "orthogonal", **classes(2)}
    ),
}

MEMORY = {
    f"memory, {policy}, {fill}": Run({**classes(3), **alone("er"), "memory.policy": policy, "memory.fill": fill})
    for fill, policies in FILLED.items()
    for policy in policies
} | {
    "memory, importance, boundary": Run(
        {**classes(3), "methods": {"re_fed": {"epochs": 2}, "a_gem": {}}}
        | {"memory": {"capacity": 7, "policy": "importance", "fill": "boundary"}}
    ),
    "memory per task": Run({**domains(3), **alone("a_gem"), "memory": {"capacity": 4, "per": "task"}}),
    "memory per task, class_balanced": Run(
        {**classes(3), **alone("der"), "memory": {"capacity": 4, "per": "task", "policy": "class_balanced"}}
    ),
}

EVALUATION = {
    "evaluated every round": Run({"evaluation.every_rounds": 1, **classes(3)}),
    "evaluated every 3rd round only": Run({"evaluation": {"every_rounds": 3}}),
    "evaluated per client": Run({"evaluation.per_client": True, "partition": {"kind": "shards"}, **classes(3)}),
    "own models": Run({"evaluation": {"model": "local", "every_rounds": 1}, "partition": {"kind": "shards"}}),
    "global on own data": Run({"evaluation.model": "global_per_client", "partition": {"kind": "shards"}, **classes(3)}),
    "validated": Run(
        {"evaluation": {"split": "validation", "validation_fraction": 0.25, "per_client": True}, **alone("er")},
        evaluate={"evaluation.split": "test"},
    ),
    "evaluated again": Run({**classes(3), **OWN}, evaluate={"evaluation.per_client": True}),
}

RESUMED = {
    "resumed, er + scaffold": Run(
        {"methods": {"er": {}, "scaffold": {}}, "training.rounds_per_task": 3, **CHECKPOINTS, **OWN}, cut_after=3
    ),
    "resumed, re_fed": Run({**alone("re_fed", epochs=2), **CHECKPOINTS, **domains(3)}, cut_after=5),
    "resumed, fedbuff": Run(
        {"schedule": {"kind": "asynchronous", "concurrency": 3, "buffer_size": 2, "speeds": {"kind": "pareto"}}}
        | {"participation": {}, **alone("der"), **CHECKPOINTS, "training.rounds_per_task": 3},
        cut_after=3,
    ),
}


def on_ray(per_actor: object, **keys: object) -> Keys:
    """Return the keys of a run on Ray, with a module that checks which code the actors have."""
    return {**OWN, "resources": {"clients_per_actor": per_actor}, **keys}


RAY = {
    "ray, one client each": Run(
        on_ray(1, methods={"fed_a_gem": {}, "er": {}}, evaluation={"per_client": True}), way="ray"
    ),
    "ray, two clients each": Run(
        on_ray(2, methods={"scaffold": {}, "der": {}}, training={"rounds_per_task": 2, "local_epochs": 2}), way="ray"
    ),
    "ray, spawned": Run(
        {**on_ray(2, methods={"fedprox": {"mu": 0.1}}), "resources.workers": "spawned", "resources.rebalance": False},
        way="ray",
    ),
    "ray, forked": Run({**on_ray(2, methods={"fedavgm": {}, "der": {}}), "resources.workers": "forked"}, way="ray"),
    "ray, packed": Run({**on_ray("auto", methods={"c_flag": {"sample_size": 4}}), **domains(3)}, way="ray"),
    "ray, fedbuff": Run(
        on_ray("auto", participation={}, methods={"fed_a_gem": {"reference": "with_update"}})
        | {"schedule": {"kind": "asynchronous", "concurrency": 3, "buffer_size": 2, "speeds": {"kind": "pareto"}}},
        way="ray",
    ),
    "ray, windows of a custom stream": Run(
        on_ray("auto", methods={"er": {}}, training={"batch_size": 6})
        | classes(boundaries={"asynchronous": {"window": 10, "windows": 3, "stream": "bits.own:stream"}})
        | {"scenario.boundaries.asynchronous.rounds_per_window": 1},
        way="ray",
    ),
    "ray, dropout in a module, domains": Run(
        {**on_ray("auto", methods={"re_fed": {"epochs": 2}}), **DROPPING}
        | {"dataset": {"name": "npz", "path": "one.npz", "root": DATA}}
        | domains(shift={"domains": [{"name": "npz", "path": file} for file in ("one.npz", "two.npz")]}),
        way="ray",
    ),
    "ray, resumed": Run(
        {**on_ray("auto", methods={"er": {}, "fedavgm": {}}), **CHECKPOINTS, "training.rounds_per_task": 3},
        way="ray",
        cut_after=3,
    ),
    "ray, command line": Run(
        {**on_ray(4, methods={"special": {}, "der": {}}), **CHECKPOINTS, "logging.tensorboard": True},
        way="command",
        evaluate={"evaluation.per_client": True},
    ),
}
