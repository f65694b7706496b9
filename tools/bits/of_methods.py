"""Runs of the methods: each alone with its hyperparameters, and combinations."""

from __future__ import annotations

from small_runs import config_keys, hyperparameters

from bits.run import DATA, Keys, Run, alone, classes, domains
from raysim.config.lookup import table

THREE: Keys = {**domains(3), "participation": {"fraction": 0.75}}
SHARP: Keys = {"memory": {"capacity": 6, "per": "task"}}  # a memory for each task
SECOND: Keys = {
    "dataset.unlabelled": {"name": "synthetic", "classes": 6, "shape": [1, 6, 6], "train": 50, "test": 6, "seed": 3}
}
IMAGES: Keys = {"dataset.shape": [1, 8, 8]}  # a size that generators have
GENERATES: Keys = {  # what TARGET and LANDER have in common
    "temperature": 1.5, "client_batch": 5, "images": 13, "calls": 4, "batch": 6, "steps": 2, "warmup": 2, "width": 4,
    "lr_g": 0.01, "bn": 0.5, "oh": 0.7, "adv": 1.2, "student_steps": 2, "student_temperature": 3.0,
}  # fmt: skip
TARGET: Keys = {**GENERATES, "kd": 3.0, "lr_z": 0.02, "z": 5}
LANDER: Keys = {
    **GENERATES, "anchor": 2.0, "radius": 0.01, "new": 0.3, "old": 0.5, "lr_s": 0.02, "hidden": 5, "dimension": 6,
    "scale": 0.5, "embeddings": None,
}  # fmt: skip
BATCH_NORM: Keys = {"model": {"name": "bits.own:normalised"}}


DUAL: Keys = {"kind": "dual", "general_blocks": [0], "blocks": [1], "length": 2, "pool": 3}
CODA: Keys = {"kind": "coda", "blocks": [0, 1], "pool": 6, "per_task": 2, "length": 2}
PREFIX: Keys = {"kind": "prefix", "blocks": [0, 1], "length": 2, "initial": "unit"}
CPROMPT: Keys = {**CODA, "attention": "softmax", "initial": "orthogonal"}


def prompted(prompts: Keys) -> Keys:
    """Return a small transformer with prompts, on images."""
    model = {"name": "vit", "width": 8, "depth": 2, "heads": 2, "patch": 4, "input_size": None, "prompts": prompts}
    return {**IMAGES, "model": model}


ADAPTED: Keys = {"model": {"name": "mlp", "hidden": [8], "dropout": 0.2, "adapters": {"rank": 2, "where": ["*"]}}}
FROZEN: Keys = {  # the head is computed; a fixed random layer is before it
    "model": {"name": "mlp", "hidden": [8], "random_features": 12},
    "participation": {},
}
REQUESTS = [
    {"round": 2, "clients": [1]},
    {"round": 3, "classes": [0]},
    {"round": 4, "samples": f"{DATA}/requests.csv"},
]
SMALL_MFCL: Keys = {"w_kd": 2.0, "generated": 4, "steps": 3, "batch_size": 6, "latent": 4, "width": 4}
SMALL_FEDCIL: Keys = {"width": 2, "noise": 3, "server_steps": 2, "server_batch": 4, "server_lr": 0.01}


def with_fed_a_gem(name: str, **hyperparameters: object) -> Run:
    """Return a class-incremental run of a method with Fed-A-GEM."""
    return Run({**classes(3), "methods": {name: hyperparameters, "fed_a_gem": {"sample_size": 4}}})


ALONE = {
    "fedavg": Run(),
    "fedavg, batch norm": Run(BATCH_NORM),
    "fedprox": Run(alone("fedprox", mu=0.3)),
    "scaffold": Run(alone("scaffold")),
    "scaffold, rate, batch norm": Run({**alone("scaffold", global_rate=0.7), **BATCH_NORM}),
    "fedavgm": Run(alone("fedavgm", beta=0.8, lr=0.9)),
    "fedadam": Run(alone("fedadam", lr=0.05, beta1=0.8, beta2=0.95, tau=0.01)),
    "fedyogi": Run(alone("fedyogi", lr=0.05, beta1=0.8, beta2=0.95, tau=0.01)),
    "a_gem": Run({**alone("a_gem", sample_size=5), **THREE}),
    "er": Run({**alone("er"), **THREE}),
    "er, sample size": Run({**alone("er", sample_size=3), **classes()}),
    "der": Run({**alone("der", alpha=0.7, sample_size=5), **THREE}),
    "der++": Run({**alone("der", alpha=0.5, beta=0.4, sample_size=5), **classes(3)}),
    "fed_a_gem": Run({**alone("fed_a_gem", sample_size=6), **THREE}),
    "fed_a_gem, every 2nd": Run({**alone("fed_a_gem", every=2, sample_size=4), **BATCH_NORM}),
    "fed_a_gem, average, always": Run(alone("fed_a_gem", refinement="average", when="always", sample_size=4)),
    "fed_a_gem, rotate, at a rate": Run(alone("fed_a_gem", refinement="rotate", rate=0.6, sample_size=4)),
    "fed_a_gem, project_scale": Run({**alone("fed_a_gem", refinement="project_scale", sample_size=4), **THREE}),
    "fed_a_gem, cosine": Run({**alone("fed_a_gem", aggregation="cosine", sample_size=4), **THREE}),
    "re_fed": Run({**alone("re_fed", epochs=3), **THREE}),
    "re_fed, late": Run(alone("re_fed", epochs=3, emphasis="late", lam=0.3)),
    "re_fed, average, plain": Run({**alone("re_fed", epochs=4, emphasis="average", norm="plain"), **classes(3)}),
    "re_fed, random": Run(alone("re_fed", epochs=2, importance="random")),
    "re_fed, total": Run({**alone("re_fed", epochs=2, budget="total"), "memory.capacity": 40, **BATCH_NORM}),
    "c_flag": Run({**alone("c_flag", sample_size=5), **THREE}),
    "c_flag, keep": Run(alone("c_flag", table="keep", order="cyclic", sample_size=5, alpha=0.05, beta=0.1)),
    "c_flag, average": Run(
        alone("c_flag", adaptive="average", interference="as_printed", smoothness=3.0, bias=0.5, sample_size=6)
    ),
    "c_flag, constant": Run(
        {**alone("c_flag", adaptive="off", objective_weights="h", correction="nominal", order="reshuffled"), **THREE}
    ),
    "c_flag, svrg": Run({**alone("c_flag", mode="svrg", beta_range=[0.01, 0.5], sample_size=4), **SHARP}),
    "fedtrack": Run(alone("fedtrack")),
    "fedtrack, keep": Run(alone("fedtrack", table="keep", order="reshuffled", beta=0.05)),
    "fedtrack, cyclic": Run({**alone("fedtrack", order="cyclic"), **BATCH_NORM}),
    "special": Run({**alone("special", lam=0.5), **THREE}),
    "special, rate, buffers": Run({**alone("special", global_rate=0.8, anchor_buffers=False), **BATCH_NORM}),
    "special_c": Run({**alone("special_c", lam=0.1), **THREE}),
    "special_c, step": Run(alone("special_c", prox_every="step", prox_scale="lr", global_rate=0.9)),
    "ewc": Run({**alone("ewc", strength=3.0, decay=0.9, sample_size=5), **THREE}),
    "ewc, separate, batch": Run(
        {**alone("ewc", strength=2.0, mode="separate", fisher="batch", clip=0.5), **BATCH_NORM}
    ),
    "ewc, own, expected": Run({**alone("ewc", scope="client", fisher="expected", strength=1.0), **classes(3)}),
    "fedcurv": Run({**alone("fedcurv", strength=0.5, sample_size=6), **THREE}),
    "fedcurv, batch": Run({**alone("fedcurv", strength=0.5, fisher="batch"), **BATCH_NORM}),
    "fedcurv, expected": Run(alone("fedcurv", strength=0.5, fisher="expected", sample_size=6)),
    "nccl": Run({**alone("nccl", sample_size=5), **THREE}),
    "nccl, alpha, uncapped": Run(alone("nccl", alpha=0.05, smoothness=4.0, cap=False, sample_size=5)),
    "lwf": Run({**alone("lwf", strength=2.0, temperature=3.0, t_squared=True), **classes(3), **BATCH_NORM}),
    "flwf": Run({**alone("flwf", alpha=0.5, beta=0.2, temperature=1.5), **THREE}),
    "cfed": Run({**alone("cfed", review_share=0.5, weight=0.7, temperature=1.5), **THREE, **SECOND}),
    "target": Run({**alone("target", **TARGET, meta="maml"), **classes(3), **BATCH_NORM, **IMAGES}),
    "target, reptile": Run({**alone("target", **TARGET, meta="reptile"), **classes(3), **BATCH_NORM, **IMAGES}),
    "lander": Run(
        {**alone("lander", **LANDER, keep_best=True, moments="learned"), **classes(3), **BATCH_NORM, **IMAGES}
    ),
    "lander, last": Run(
        {**alone("lander", **LANDER, keep_best=False, moments="dataset"), **classes(3), **BATCH_NORM, **IMAGES}
    ),
    "lander, named": Run(
        {
            **alone("lander", **LANDER, encoder=None, names=["one", "two", "three", "four", "five", "six"]),
            **classes(3),
            **BATCH_NORM,
            **IMAGES,
        }
    ),
    "gpm": Run({**alone("gpm", threshold=[0.7, 0.9], samples=10), **THREE}),
    "gpm, free head, batch norm": Run(
        {**alone("gpm", threshold=[0.8], per_task=0.05, head="free", freeze_rest=False), **classes(3), **BATCH_NORM}
    ),
    "fot": Run({**alone("fot", epsilon=0.7, increment=0.05, columns=2), **THREE}),
    "fot, free head, batch norm": Run(
        {**alone("fot", epsilon=0.8, samples=10, head="free"), **classes(3), **BATCH_NORM}
    ),
    "icarl": Run({**alone("icarl", temperature=3.0), **classes(3), "memory.capacity": 14}),
    "icarl, ce_kd, linear": Run({**alone("icarl", loss="ce_kd", classifier="linear", strength=2.0), **classes(3)}),
    "icarl, random, batch norm": Run({**alone("icarl", loss="ce_kd", herding=False), **THREE, **BATCH_NORM}),
    "dann": Run({**alone("dann", strength=0.7, hidden=[7]), **THREE, **BATCH_NORM}),
    "fedper": Run({**alone("fedper", layers=2), **THREE, **BATCH_NORM, "evaluation": {"model": "local"}}),
    "ditto": Run({**alone("ditto", lam=0.5, rate=0.07), **THREE, **BATCH_NORM, "evaluation": {"model": "local"}}),
    "re_fed, own": Run({**alone("re_fed", epochs=2, personal="pim"), **THREE, "evaluation": {"model": "local"}}),
    "heads": Run({**THREE, "training.logits": "task"}),
    "glfc": Run(
        {**alone("glfc", strength=0.4, old_model="previous_task"), **classes(3), "memory.capacity": 14, **BATCH_NORM}
    ),
    "mfcl": Run({**alone("mfcl", **SMALL_MFCL, lr=0.01), **classes(3), **IMAGES, **BATCH_NORM}),
    "mfcl, domains, second pass": Run(
        {
            **alone("mfcl", **SMALL_MFCL, second_pass=True, divisor=2.0, w_bn=0.0, w_ie=2.0, w_noise=0.1, w_ft=0.5),
            **THREE,
            **IMAGES,
        }
    ),
    "fedcil": Run(
        {
            **alone("fedcil", **SMALL_FEDCIL, server_betas=[0.6, 0.9], server_decay=0.01, adversarial=0.8),
            **classes(3),
            **IMAGES,
            "model": {"name": "critic", "width": 4},
        }
    ),
    "fedcil, cifar, consistency": Run(
        {
            **alone("fedcil", **SMALL_FEDCIL, generator="cifar", consistency_kl=0.5, consistency_ce=0.5, replay=0.3),
            **THREE,
            **IMAGES,
            "model": {"name": "critic", "variant": "cifar", "width": 4},
        }
    ),
    "af_fcl": Run(
        {**alone("af_fcl", width=3, flow_lr=0.01, k_flow=0.4, theta=0.3, k_last=0.3, k_feat=0.4), **classes(3)}
    ),
    "af_fcl, as published, domains": Run(
        {
            **alone(
                "af_fcl",
                width=3,
                density="as_published",
                source="last",
                tail=1,
                keep_moments=False,
                k_kdlast=0.5,
                k_out=0.3,
            ),
            **THREE,
            **BATCH_NORM,
        }
    ),
    "lora": Run({**alone("lora"), **classes(3), **ADAPTED}),
    "lora, sum": Run({**alone("lora", merge="individual_sum"), **THREE, **ADAPTED}),
    "lora, none": Run({**alone("lora", merge="none"), **THREE, **ADAPTED}),
    "ffa_lora": Run({**alone("ffa_lora"), **classes(3), **ADAPTED}),
    "ffa_lora, sum": Run({**alone("ffa_lora", merge="individual_sum"), **THREE, **ADAPTED}),
    "ffa_lora, none": Run({**alone("ffa_lora", merge="none"), **THREE, **ADAPTED}),
    "lorm": Run({**alone("lorm"), **classes(3), **ADAPTED, "evaluation.every_rounds": 1}),
    "lorm, averaged": Run({**alone("lorm", gram_at="averaged", alpha=0.5, alpha_head=1.0), **THREE, **ADAPTED}),
    "lorm, a": Run({**alone("lorm", train="a"), **THREE, **ADAPTED}),
    "lorm, b": Run({**alone("lorm", train="b", alpha_head=0.0), **THREE, **ADAPTED}),
    "analytic": Run({**alone("analytic", ridge=0.1, ridge_relative=False), **classes(3), **FROZEN}),
    "analytic, grid": Run({**alone("analytic", grid=12, bound=8.0), **THREE, **FROZEN}),
    "analytic, grid, forgetting": Run(
        {**alone("analytic", grid=12, bound=8.0), **classes(3), **FROZEN} | {"clients.forget": REQUESTS}
    ),
    "er, forgetting": Run({**alone("er"), **classes(3), "clients.forget": REQUESTS}),
    "ditto, forgetting, local": Run(
        {**alone("ditto"), **classes(3), "clients.forget": REQUESTS, "evaluation.model": "local"}
    ),
    "stsa": Run({**alone("stsa", ridge=0.1, ridge_relative=False, head="cosine"), **classes(3), **FROZEN}),
    "stsa, grid": Run({**alone("stsa", train_first=False, grid=12, bound=8.0), **classes(3), **FROZEN}),
    "stsa_e": Run(
        {**alone("stsa_e", groups=2, ridge=0.1, ridge_relative=False, head="cosine"), **classes(3), **FROZEN}
    ),
    "stsa_e, fixed": Run({**alone("stsa_e", train_first=False), **classes(3), **FROZEN}),
    "pilora": Run({**alone("pilora", sparse=0.02, temperature=0.5), **classes(3), **ADAPTED}),
    "pilora, domains": Run({**alone("pilora", compact=0.1, orthogonal=0.2), **THREE, **ADAPTED}),
    "fed_dualprompt": Run({**alone("fed_dualprompt", pull=0.5), **classes(3), **prompted(DUAL)}),
    "fed_coda_prompt": Run({**alone("fed_coda_prompt", mu=0.5, expand=True), **classes(3), **prompted(CODA)}),
    "fed_coda_prompt, given components": Run(
        {**alone("fed_coda_prompt", expand=False), **classes(3), **prompted({**CODA, "initial": "orthogonal"})}
    ),
    "fed_cprompt": Run({**alone("fed_cprompt", near=3.0, far=1.0, margin=0.5), **classes(3), **prompted(CPROMPT)}),
    "fed_cprompt, means": Run({**alone("fed_cprompt", near=3.0, reduction="mean"), **THREE, **prompted(CPROMPT)}),
    "hgp": Run(
        {**alone("hgp", rebalance_epochs=2, rebalance_lr=0.05, batch_size=7, momentum=0.5), **classes(3)}
        | {**prompted(PREFIX), "training.logits": "task"}
    ),
    "hgp, domains, last of each client": Run(
        {**alone("hgp", keeps="client", temperature=0.5, spread=1.0, batch_size=7), **THREE, **BATCH_NORM}
    ),
    "ccvr": Run({**alone("ccvr", virtual=7, batch_size=9, lr=0.05, epochs=3), **classes(3)}),
    "ccvr, diagonal, present classes, batch norm": Run(
        {**alone("ccvr", virtual=7, covariance="diagonal", earlier=False, momentum=0.5), **classes(3), **BATCH_NORM}
    ),
    "joint": Run({**alone("joint"), **THREE}),
    "fixed": Run({**alone("fixed"), **THREE}),
}

TOGETHER = {
    "er + fed_a_gem": with_fed_a_gem("er", sample_size=4),
    "der + fed_a_gem": with_fed_a_gem("der", sample_size=4),
    "a_gem + fed_a_gem": with_fed_a_gem("a_gem", sample_size=4),
    "fedprox + fed_a_gem": with_fed_a_gem("fedprox", mu=0.2),
    "scaffold + fed_a_gem": with_fed_a_gem("scaffold"),
    "fedavgm + fed_a_gem": with_fed_a_gem("fedavgm"),
    "fedadam + fed_a_gem": with_fed_a_gem("fedadam"),
    "fedyogi + fed_a_gem": with_fed_a_gem("fedyogi"),
    "re_fed + fed_a_gem": with_fed_a_gem("re_fed", epochs=2),
    "special + fed_a_gem": with_fed_a_gem("special"),
    "special_c + fed_a_gem": with_fed_a_gem("special_c"),
    "ewc + fed_a_gem": with_fed_a_gem("ewc", strength=1.0),
    "fedcurv + fed_a_gem": with_fed_a_gem("fedcurv", strength=0.5),
    "nccl + fed_a_gem": with_fed_a_gem("nccl", alpha=0.05, sample_size=4),
    "lwf + fed_a_gem": with_fed_a_gem("lwf"),
    "flwf + fed_a_gem": with_fed_a_gem("flwf"),
    "cfed + fed_a_gem": Run({**classes(3), **SECOND, "methods": {"cfed": {}, "fed_a_gem": {"sample_size": 4}}}),
    "er + lwf, replayed rows": Run({**classes(3), "methods": {"er": {}, "lwf": {"rows": "all"}}}),
    "gpm + fed_a_gem": with_fed_a_gem("gpm", threshold=[0.8]),
    "fot + fed_a_gem": with_fed_a_gem("fot", epsilon=0.8),
    "icarl + fed_a_gem": with_fed_a_gem("icarl", loss="ce_kd"),
    "dann + fed_a_gem": with_fed_a_gem("dann"),
    "fedper + ditto": Run({"methods": {"fedper": {}, "ditto": {}}, **classes(3), "evaluation.model": "local"}),
    "glfc + fed_a_gem": with_fed_a_gem("glfc"),
    "target + fed_a_gem": Run(
        {**classes(3), **IMAGES, **BATCH_NORM, "methods": {"target": TARGET, "fed_a_gem": {"sample_size": 4}}}
    ),
    "lander + fedprox": Run({**classes(3), **IMAGES, **BATCH_NORM, "methods": {"lander": LANDER, "fedprox": {}}}),
    "mfcl + fed_a_gem": Run({**classes(3), **IMAGES, "methods": {"mfcl": SMALL_MFCL | {"w_bn": 0.0}, "fed_a_gem": {}}}),
    "fed_dualprompt + fed_a_gem": Run(
        {**classes(3), **prompted(DUAL), "methods": {"fed_dualprompt": {}, "fed_a_gem": {"sample_size": 4}}}
    ),
    "fed_cprompt + fed_a_gem": Run(
        {**classes(3), **prompted(CPROMPT), "methods": {"fed_cprompt": {"near": 2.0}, "fed_a_gem": {"sample_size": 4}}}
    ),
    "fed_coda_prompt after fedavgm": Run(
        {**classes(3), **prompted(CODA), "methods": {"fedavgm": {}, "fed_coda_prompt": {}}}
    ),
    "fedcil + fedavgm": Run({**classes(3), **IMAGES, "methods": {"fedcil": SMALL_FEDCIL, "fedavgm": {}}}),
    "af_fcl + fedavgm": Run({**classes(3), "methods": {"af_fcl": {"width": 3}, "fedavgm": {}}}),
    "lora + fed_a_gem": Run({**classes(3), **ADAPTED, "methods": {"lora": {}, "fed_a_gem": {"sample_size": 4}}}),
    "ffa_lora + fedprox": Run({**classes(3), **ADAPTED, "methods": {"ffa_lora": {}, "fedprox": {}}}),
    "stsa + fed_a_gem": Run({**classes(3), **FROZEN, "methods": {"stsa": {}, "fed_a_gem": {"sample_size": 4}}}),
    "stsa_e + er": Run({**classes(3), **FROZEN, "methods": {"stsa_e": {}, "er": {}}}),
    "lorm + er": Run({**classes(3), **ADAPTED, "methods": {"lorm": {}, "er": {}}}),
    "pilora + er": Run({**classes(3), **ADAPTED, "methods": {"pilora": {}, "er": {}}}),
    "hgp + fed_a_gem": with_fed_a_gem("hgp", batch_size=7, rebalance_lr=0.05),
    "ccvr + fed_a_gem": with_fed_a_gem("ccvr", virtual=7, batch_size=9),
    "joint + fed_a_gem": with_fed_a_gem("joint"),
    "fixed + fed_a_gem": with_fed_a_gem("fixed"),
    "fed_a_gem + er": Run({**THREE, "methods": {"fed_a_gem": {}, "er": {}}}),
    "c_flag + fedavgm": Run({"methods": {"c_flag": {"sample_size": 4}, "fedavgm": {}}}),
    "er, der, a_gem and four more": Run(
        {**classes(3), "methods": {"er": {}, "der": {"beta": 0.2}, "a_gem": {}, "fedprox": {}, "scaffold": {}}}
        | {"participation.count": 2, "training.local_epochs": 2}
    ),
}


def small(name: str, *others: str) -> Run:
    """Return a class-incremental run of a method with its small run's keys, and with other methods."""
    keys = {key.replace("__", "."): value for key, value in config_keys(name).items()}
    return Run({**classes(3), **keys, "methods": {name: hyperparameters(name), **{other: {} for other in others}}})


SMALL = {
    title: run
    for name in table("method")
    if name not in ALONE
    for title, run in ((name, small(name)), (f"{name} + fed_a_gem", small(name, "fed_a_gem")))
}
"""The methods that no run above names: a new method is here by its test file."""
