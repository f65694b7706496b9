"""The table of twins: methods of raysim, their settings, and their references."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from raysim.engine.runner import LocalRunner
from twins import generators
from twins.adapters import ADAPTERS, averaged, ffa_lora, lora, lorm, pilora
from twins.adversaries import fedcil
from twins.anchors import lander
from twins.exemplars import CAPACITY, glfc, icarl_bce, icarl_ce_kd
from twins.flows import af_fcl
from twins.gaussians import ccvr, hgp, prefix_averaged
from twins.penalties import ewc, fedavg, fedcurv, fedprox, scaffold
from twins.personal import ditto, fedper
from twins.problem import DOMAINS, PARTIAL, Problem, run_raysim
from twins.prompts import (
    IMAGES,
    coda_averaged,
    coda_prompt,
    cprompt,
    cprompt_averaged,
    dual_averaged,
    dualprompt,
    l2p,
    l2p_averaged,
)
from twins.rates import c_flag, fedtrack, nccl
from twins.re_fed import CAPACITY as CACHED
from twins.re_fed import re_fed
from twins.replay import a_gem, der, er, fed_a_gem
from twins.servers import fedadam, fedavgm, fedyogi
from twins.special import special, special_c
from twins.subspaces import fot, gpm
from twins.teachers import cfed, flwf, lwf


@dataclass(frozen=True)
class Twin:
    """A method in a setting, and the same computed by a reference."""

    name: str
    methods: Mapping[str, Any]
    reference: Callable[..., Tensor]
    given: Mapping[str, float] = field(default_factory=dict)  # what the reference takes besides the problem
    changes: Mapping[str, Any] = field(default_factory=dict)
    of_raysim: Callable[[Tensor, LocalRunner], Tensor] = lambda final, runner: final
    plain: Callable[[Problem], Tensor] = fedavg  # FedAvg of the same network
    bound: float = 1e-11  # what the difference does not exceed

    def compare(self) -> tuple[float, float]:
        """Return the largest differences of any parameter: from the reference, and of that from FedAvg."""
        torch.set_num_threads(1)
        problem, final, runner = run_raysim(self.methods, self.changes)
        found = self.of_raysim(final, runner)
        wanted = self.reference(problem, **self.given)
        problem.trained.clear()
        plain = self.plain(problem)
        plain = plain.repeat(len(wanted) // len(plain)) if len(wanted) > len(plain) else plain[: len(wanted)]
        return float((found - wanted).abs().max()), float((plain - wanted).abs().max())


def personal_models(final: Tensor, runner: LocalRunner) -> Tensor:
    """Return the personalized models of all clients, one after the other."""
    return torch.cat([runner.host.clients[k].personalized[0] for k in sorted(runner.host.clients)])


def without_a_and_b(final: Tensor, runner: LocalRunner) -> Tensor:
    """Return the merged weight of the adapted layer, its bias, and the head. A and B are new at the end of a run."""
    return torch.cat([final[:45], final[71:]])


def with_prompts(kind: str) -> Mapping[str, Any]:
    """Return the changes of the config for the transformer with prompts of a kind, on images."""
    return {**PARTIAL, **IMAGES, "model": {"name": "twins.network:transformer", "prompts": kind}}


def with_statistics(final: Tensor, runner: LocalRunner) -> Tensor:
    """Return the parameters of the network with BatchNorm, and the running means and variances after them."""
    return torch.cat([final[:335], final[-36:], final[335:345]])


EXEMPLARS = {"memory.capacity": CAPACITY}
LOCAL = {"evaluation.model": "local"}
WHOLE = {"memory.capacity": 1000}
PICTURES = {**PARTIAL, **generators.IMAGES}
MFCL = {
    "w_ft": 0.8,
    "w_kd": 0.4,
    "generated": 3,
    "steps": 4,
    "lr": 0.01,
    "latent": 6,
    "width": 4,
    "divisor": 2.0,
    "w_ie": 1.5,
    "w_bn": 0.001,
    "w_noise": 0.5,
}
TARGET = {
    "kd": 2.0,
    "temperature": 2.0,
    "client_batch": 5,
    "calls": 2,
    "batch": 11,
    "steps": 3,
    "lr_g": 0.01,
    "lr_z": 0.02,
    "bn": 3.0,
    "oh": 0.5,
    "width": 4,
}
STUDENT = {"calls": 24, "steps": 1, "adv": 8.0, "warmup": 2, "student_steps": 1, "student_temperature": 3.0}
AF_FCL = {
    "k_flow": 0.5,
    "theta": 0.2,
    "k_last": 0.4,
    "k_kdlast": 0.6,
    "k_feat": 0.5,
    "k_out": 0.4,
    "width": 4,
    "flow_lr": 0.01,
}
LANDER = {
    "dimension": 4,
    "anchor": 2.0,
    "radius": 0.25,
    "new": 0.3,
    "old": 0.4,
    "client_batch": 5,
    "hidden": 4,
    "width": 4,
    "warmup": 2,
    "calls": 3,
    "batch": 13,
    "steps": 2,
    "student_steps": 2,
    "lr_g": 0.01,
    "lr_s": 0.02,
    "bn": 1.0,
    "oh": 0.5,
    "adv": 1.0,
}
FEDCIL = {"noise": 3, "width": 2, "replay": 0.4, "server_steps": 2}
TOGETHER = {"training.vectorise": 3}
LOW_RANK = {**PARTIAL, **ADAPTERS}
UNLABELLED = {"dataset.unlabelled": {"name": "synthetic", "classes": 6, "shape": [8], "train": 40, "test": 6}}

TWINS = (
    Twin("Fed-A-GEM", {"fed_a_gem": {"sample_size": 1000}}, fed_a_gem, changes={**DOMAINS, **PARTIAL, **WHOLE}),
    Twin("SPECIAL", {"special": {"lam": 0.4}}, special, {"lam": 0.4}, {**DOMAINS, **PARTIAL}),
    Twin("SPECIAL-C", {"special_c": {"lam": 0.4}}, special_c, {"lam": 0.4}, {**DOMAINS, **PARTIAL}),
    Twin(
        "Re-Fed",
        {"re_fed": {"lam": 0.2, "epochs": 3}},
        re_fed,
        {"lam": 0.2, "epochs": 3},
        {"memory.capacity": CACHED, "dataset.train": 160},  # with fewer samples, no pull changes which are cached
    ),
    Twin("C-FLAG", {"c_flag": {"sample_size": 1000}}, c_flag, {"smoothness": 5.0}, {**DOMAINS, **WHOLE}),
    Twin("NCCL", {"nccl": {"sample_size": 1000}}, nccl, {"smoothness": 5.0}, WHOLE),
    Twin("FedTrack", {"fedtrack": {}}, fedtrack, changes={**DOMAINS, **PARTIAL}),
    Twin("FedAvgM", {"fedavgm": {"beta": 0.6, "lr": 0.8}}, fedavgm, {"beta": 0.6, "lr": 0.8}, PARTIAL),
    Twin("FedAdam", {"fedadam": {"lr": 0.02, "tau": 0.01}}, fedadam, {"lr": 0.02, "tau": 0.01}, PARTIAL),
    Twin("FedYogi", {"fedyogi": {"lr": 0.02, "tau": 0.01}}, fedyogi, {"lr": 0.02, "tau": 0.01}, PARTIAL),
    Twin("FedProx", {"fedprox": {"mu": 0.5}}, fedprox, {"mu": 0.5}, PARTIAL),
    Twin("SCAFFOLD", {"scaffold": {"global_rate": 0.7}}, scaffold, {"global_rate": 0.7}, PARTIAL),
    Twin("EWC", {"ewc": {"strength": 3.0, "decay": 0.7}}, ewc, {"strength": 3.0, "decay": 0.7}, DOMAINS),
    Twin("EWC, strong", {"ewc": {"strength": 100.0}}, ewc, {"strength": 100.0, "decay": 1.0}, DOMAINS),
    Twin("FedCurv", {"fedcurv": {"strength": 0.5}}, fedcurv, {"strength": 0.5}, {**DOMAINS, **PARTIAL}),
    Twin("LwF", {"lwf": {"strength": 3.0}}, lwf, {"strength": 3.0, "temperature": 2.0}, PARTIAL),
    Twin(
        "FLwF-2T",
        {"flwf": {"alpha": 0.3, "beta": 0.5}},
        flwf,
        {"alpha": 0.3, "beta": 0.5, "temperature": 2.0},
    ),
    Twin(
        "CFeD",
        {"cfed": {"review_share": 0.4, "weight": 0.5}},
        cfed,
        {"review_share": 0.4, "weight": 0.5, "temperature": 2.0},
        {**PARTIAL, **UNLABELLED},
    ),
    Twin("ER", {"er": {"sample_size": 1000}}, er, changes=WHOLE),
    Twin("A-GEM", {"a_gem": {"sample_size": 1000}}, a_gem, changes={**DOMAINS, **WHOLE}),
    Twin("DER", {"der": {"alpha": 0.5, "sample_size": 1000}}, der, {"alpha": 0.5, "beta": 0.0}, WHOLE),
    Twin(
        "DER++",
        {"der": {"alpha": 0.5, "beta": 0.7, "sample_size": 1000}},
        der,
        {"alpha": 0.5, "beta": 0.7},
        WHOLE,
    ),
    Twin("iCaRL, BCE", {"icarl": {"classifier": "linear"}}, icarl_bce, changes=EXEMPLARS),
    Twin(
        "iCaRL, CE + KD",
        {"icarl": {"loss": "ce_kd", "classifier": "linear", "strength": 1.5}},
        icarl_ce_kd,
        {"strength": 1.5, "temperature": 2.0},
        EXEMPLARS,
    ),
    Twin("GLFC", {"glfc": {"strength": 0.4}}, glfc, {"strength": 0.4}, EXEMPLARS),
    Twin("GPM", {"gpm": {"threshold": [0.7]}}, gpm, {"threshold": 0.7}, DOMAINS),
    Twin("FOT", {"fot": {"epsilon": 0.7}}, fot, {"epsilon": 0.7}, DOMAINS),
    Twin("Ditto", {"ditto": {"lam": 0.5}}, ditto, {"lam": 0.5}, LOCAL, personal_models),
    Twin("FedPer", {"fedper": {}}, fedper, {}, PARTIAL, lambda final, runner: final[:45]),
    Twin("Fed-LoRA", {"lora": {}}, lora, {}, LOW_RANK, of_raysim=without_a_and_b, plain=averaged),
    Twin("FFA-LoRA", {"ffa_lora": {}}, ffa_lora, {}, LOW_RANK, of_raysim=without_a_and_b, plain=averaged),
    Twin(
        "LoRM",
        {"lorm": {"alpha": 0.6}},
        lorm,
        {"alpha": 0.6, "alpha_head": 0.5},
        LOW_RANK,
        of_raysim=without_a_and_b,
        plain=averaged,
    ),
    Twin(
        "PILoRA",
        {"pilora": {"compact": 0.1, "orthogonal": 0.2}},
        pilora,
        {"compact": 0.1, "sparse": 0.01, "orthogonal": 0.2, "temperature": 0.2},
        LOW_RANK,
        of_raysim=without_a_and_b,
        plain=averaged,
    ),
    Twin("Fed-L2P", {"fed_l2p": {"pull": 0.5}}, l2p, {"pull": 0.5}, with_prompts("l2p"), plain=l2p_averaged),
    Twin(
        "Fed-DualPrompt",
        {"fed_dualprompt": {}},
        dualprompt,
        {"pull": 1.0},
        with_prompts("dual"),
        plain=dual_averaged,
    ),
    Twin("Fed-CODA-P", {"fed_coda_prompt": {}}, coda_prompt, {"mu": 0.1}, with_prompts("coda"), plain=coda_averaged),
    Twin(
        "Fed-CPrompt",
        {"fed_cprompt": {"near": 3.0, "far": 9.0, "margin": 0.001}},
        cprompt,
        {"near": 3.0, "far": 9.0, "margin": 0.001},
        with_prompts("cprompt"),
        plain=cprompt_averaged,
    ),
    Twin(
        "HGP",
        {"hgp": {"rebalance_epochs": 2, "batch_size": 16, "rebalance_lr": 0.05, "temperature": 0.2}},
        hgp,
        {"epochs": 2, "size": 16, "rate": 0.05, "temperature": 0.2, "spread": 3.0},
        with_prompts("prefix"),
        plain=prefix_averaged,
    ),
    Twin(
        "CCVR",
        {"ccvr": {"virtual": 20, "batch_size": 16, "lr": 0.05}},
        ccvr,
        {"virtual": 20, "epochs": 5, "size": 16, "rate": 0.05},
        PARTIAL,
    ),
    Twin(
        "MFCL",
        {"mfcl": {**MFCL, "batch_size": 16}},
        generators.mfcl,
        {**MFCL, "batch": 16},
        PICTURES,
        with_statistics,
        generators.averaged,
        bound=1e-8,  # gradients of biases before BatchNorm are rounding alone, and Adam makes steps of it
    ),
    Twin(
        "MFCL, two passes",
        {"mfcl": {**MFCL, "batch_size": 16, "second_pass": True}},
        generators.mfcl,
        {**MFCL, "batch": 16, "passes": 2},
        PICTURES,
        with_statistics,
        generators.averaged,
        bound=1e-8,
    ),
    Twin(
        "TARGET",
        {"target": {**TARGET, "z": 6}},
        generators.target,
        {**TARGET, "latent": 6},
        PICTURES,
        with_statistics,
        generators.averaged,
        bound=1e-10,  # divides by deviations, which are small
    ),
    Twin(
        "TARGET, student",
        {"target": {**TARGET, **STUDENT, "z": 6}},
        generators.target,
        {**TARGET, **STUDENT, "latent": 6},
        {**PICTURES, "training.rounds_per_task": 1},
        with_statistics,
        generators.averaged,
        bound=1e-10,
    ),
    Twin("AF-FCL", {"af_fcl": {**AF_FCL, "tail": 1}}, af_fcl, AF_FCL, {"training.local_epochs": 1}),
    Twin(
        "LANDER",
        {"lander": LANDER},
        lander,
        LANDER,
        {**PICTURES, "seed": 7},  # in a task of this seed, the first round has the least loss
        with_statistics,
        generators.averaged,
        bound=1e-10,
    ),
    Twin(
        "FedCIL",
        {"fedcil": {**FEDCIL, "server_batch": 7, "server_lr": 0.01}},
        fedcil,
        {**FEDCIL, "size": 7, "lr": 0.01},
        {**PICTURES, "training.batch_size": 16, "training.local_epochs": 1, "dataset.train": 160},
        with_statistics,
        generators.averaged,
        bound=1e-8,  # four layers of BatchNorm on batches of some images enlarge what was rounded
    ),
    Twin("FedProx, vectorised", {"fedprox": {"mu": 0.5}}, fedprox, {"mu": 0.5}, {**PARTIAL, **TOGETHER}),
    Twin(
        "SCAFFOLD, vectorised",
        {"scaffold": {"global_rate": 0.7}},
        scaffold,
        {"global_rate": 0.7},
        {**PARTIAL, **TOGETHER},
    ),
    Twin(
        "EWC, vectorised",
        {"ewc": {"strength": 3.0, "decay": 0.7}},
        ewc,
        {"strength": 3.0, "decay": 0.7},
        {**DOMAINS, **TOGETHER},
    ),
    Twin(
        "LwF, vectorised",
        {"lwf": {"strength": 3.0}},
        lwf,
        {"strength": 3.0, "temperature": 2.0},
        {**PARTIAL, **TOGETHER},
    ),
    Twin(
        "FedProx, BatchNorm, vectorised",
        {"fedprox": {"mu": 0.5}},
        generators.proximal,
        {"mu": 0.5},
        {**PICTURES, **TOGETHER},
        with_statistics,
        generators.averaged,
    ),
)
