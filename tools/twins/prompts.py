"""Fed-L2P, Fed-DualPrompt, Fed-CODA-P and Fed-CPrompt on a frozen transformer, which is written out in `outputs`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy, gelu, layer_norm, linear

from raysim.system.seeding import seed_torch, torch_restored
from twins.problem import Problem, Round, mean

Named = Mapping[str, Tensor]
Prefixes = Mapping[int, tuple[Tensor, Tensor]]
"""Block -> keys and values [n, m, 8] in front of the attention's own."""

Loss = Callable[[Round, Tensor, Named, Tensor, Tensor], Tensor]
"""The loss in a round in which w [P] was received, of parameters by name on x [n, 1, 4, 4] with labels y [n]."""

IMAGES = {"dataset.shape": [1, 4, 4], "training.local_epochs": 1}


def trained_part(p: Problem) -> Tensor:
    """Return the initial prompts and head."""
    return torch.cat([value.flatten() for name, value in p.named.items() if is_trained(name)])


def is_trained(name: str) -> bool:
    """Return whether a parameter is trained: the head, and prompts but their position codes."""
    return name.startswith(("prompts.", "head.")) and name != "prompts.codes"


def by_name(p: Problem, w: Tensor) -> dict[str, Tensor]:
    """Return all parameters, with the trained ones of w [P]."""
    found, place = dict(p.named), 0
    for name in filter(is_trained, p.named):
        found[name] = w[place : place + found[name].numel()].view_as(found[name])
        place += found[name].numel()
    return found


def whole(p: Problem, w: Tensor) -> Tensor:
    """Return the frozen and the trained parameters as a vector."""
    return torch.cat([value.flatten() for value in by_name(p, w).values()])


def layer(t: Named, name: str, x: Tensor) -> Tensor:
    """Return a linear layer's outputs."""
    return linear(x, t[f"{name}.weight"], t[f"{name}.bias"])


def normalized(t: Named, name: str, x: Tensor) -> Tensor:
    """Return the outputs of a layer norm."""
    return layer_norm(x, (8,), t[f"{name}.weight"], t[f"{name}.bias"], 1e-6)


def tokens(t: Named, x: Tensor) -> Tensor:
    """Return the class token and four patches with their position codes [n, 5, 8]."""
    corners = [x[:, :, i : i + 2, j : j + 2].flatten(1) for i in (0, 2) for j in (0, 2)]
    patches = linear(torch.stack(corners, 1), t["patch_embed.proj.weight"].flatten(1), t["patch_embed.proj.bias"])
    return torch.cat([t["cls_token"].expand(len(x), 1, 8), patches], 1) + t["pos_embed"]


def outputs(t: Named, x: Tensor, prefixes: Prefixes) -> Tensor:
    """Return the transformer's outputs of tokens [n, m, 8]. Prefixes are as in prefix tuning."""
    for number in (0, 1):
        name, mixed = f"blocks.{number}", []
        q, k, v = layer(t, f"{name}.attn.qkv", normalized(t, f"{name}.norm1", x)).split(8, 2)
        if number in prefixes:
            k, v = torch.cat([prefixes[number][0], k], 1), torch.cat([prefixes[number][1], v], 1)
        for head in (slice(0, 4), slice(4, 8)):
            mixed.append((q[..., head] @ k[..., head].mT / 4**0.5).softmax(2) @ v[..., head])
        x = x + layer(t, f"{name}.attn.proj", torch.cat(mixed, 2))
        x = x + layer(t, f"{name}.mlp.fc2", gelu(layer(t, f"{name}.mlp.fc1", normalized(t, f"{name}.norm2", x))))
    return normalized(t, "norm", x)


def query(t: Named, x: Tensor) -> Tensor:
    """Return the class token's outputs [n, 8] of the transformer without prompts."""
    return outputs(t, tokens(t, x), {})[:, 0].detach()


def federated(p: Problem, loss: Loss) -> Tensor:
    """Return FedAvg's parameters with this loss."""
    w = trained_part(p)
    for r in p.rounds():
        w = mean([trained(p, k, r, w, loss) for k in r.cohort])
    return whole(p, w)


def trained(p: Problem, client: int, r: Round, w: Tensor, loss: Loss) -> Tensor:
    """Return a client's parameters after a local training from w with this loss."""
    return p.train(client, r.task, w, lambda v, x, y: loss(r, w, by_name(p, v), x, y))


def l2p_loss(pull: float) -> Loss:
    """Return the loss of L2P."""

    def loss(r: Round, sent: Tensor, t: Named, x: Tensor, y: Tensor) -> Tensor:
        near, chosen = cosine_similarity(query(t, x)[:, None], t["prompts.keys"], dim=2).topk(2, 1)
        prompts = t["prompts.entries"][chosen].flatten(1, 2) + t["prompts.codes"]
        plain = tokens(t, x)
        found = outputs(t, torch.cat([plain[:, :1], prompts, plain[:, 1:]], 1), {})
        return cross_entropy(layer(t, "head", found[:, :5].mean(1)), y) - pull * near.sum(1).mean()

    return loss


def l2p(p: Problem, pull: float) -> Tensor:
    """L2P (Wang et al., CVPR 2022): CE - pull sum_i cos(q(x), k_i), with the prompts of the two nearest keys."""
    return federated(p, l2p_loss(pull))


def l2p_averaged(p: Problem) -> Tensor:
    """FedAvg of L2P's prompts."""
    return federated(p, l2p_loss(0))


def dual_loss(pull: float) -> Loss:
    """Return the loss of DualPrompt."""

    def loss(r: Round, sent: Tensor, t: Named, x: Tensor, y: Tensor) -> Tensor:
        general, own = t["prompts.general"][0], t["prompts.entries"][0, :, r.task]
        prefixes = {
            block: (pair[0].expand(len(x), -1, 8), pair[1].expand(len(x), -1, 8))
            for block, pair in ((0, general), (1, own))
        }
        z = layer(t, "head", outputs(t, tokens(t, x), prefixes)[:, 0])
        return cross_entropy(z, y) - pull * cosine_similarity(query(t, x), t["prompts.keys"][r.task], dim=1).mean()

    return loss


def dualprompt(p: Problem, pull: float) -> Tensor:
    """DualPrompt (Wang et al., ECCV 2022): CE - pull cos(q(x), k_t), with prefixes of all tasks and of task t."""
    return federated(p, dual_loss(pull))


def dual_averaged(p: Problem) -> Tensor:
    """FedAvg of DualPrompt's prefixes."""
    return federated(p, dual_loss(0))


def rows(t: Named, kind: str, block: int, task: int) -> Tensor:
    """Return the first 2 (task + 1) rows of a block's components, keys or attention vectors; 2 have a gradient."""
    table = t[f"prompts.{kind}.{block}"]
    return torch.cat([table[: 2 * task].detach(), table[2 * task : 2 * task + 2]])


def coda_features(t: Named, x: Tensor, task: int, softmax: bool = False) -> Tensor:
    """Return the class token's outputs [n, 8] with the sums of components as prefixes (Smith et al., 2023)."""
    q, prefixes = query(t, x), {}
    for block in (0, 1):
        p, k, a = (rows(t, kind, block, task) for kind in ("components", "keys", "attention"))
        weights = cosine_similarity(q[:, None] * (a.softmax(1) if softmax else a), k, dim=2)
        prompt = (weights[:, :, None, None] * p).sum(1)
        prefixes[block] = (prompt[:, :1], prompt[:, 1:])
    return outputs(t, tokens(t, x), prefixes)[:, 0]


def coda_prompt(p: Problem, mu: float) -> Tensor:
    """CODA-Prompt (Smith et al., CVPR 2023): p = sum_i cos(q * a_i, k_i) p_i, and a penalty on M M^T - I."""

    def loss(r: Round, sent: Tensor, t: Named, x: Tensor, y: Tensor) -> Tensor:
        penalty = torch.zeros(()).double()
        for name in ("components", "keys", "attention"):
            for block in (0, 1):
                m = rows(t, name, block, r.task).flatten(1)
                penalty = penalty + (m @ m.T - torch.eye(len(m))).square().mean()
        return cross_entropy(layer(t, "head", coda_features(t, x, r.task)), y) + mu * penalty

    w = trained_part(p)
    for r in p.rounds():
        w = mean([trained(p, k, r, w, loss) for k in r.cohort])
        if not r.ends or r.task == 2:
            continue
        with torch_restored():
            seed_torch(p.config.seed, "server", r.number, "fed_coda_prompt")
            for name, table in by_name(p, w).items():  # views of w
                for i in (2 * r.task + 2, 2 * r.task + 3) if name.startswith("prompts.") else ():
                    before, row = table[:i].flatten(1), torch.randn(table[i].numel(), dtype=torch.float64)
                    row = row - (before @ row / before.square().sum(1)) @ before
                    table[i] = (row / row.norm()).view_as(table[i])
    return whole(p, w)


def coda_averaged(p: Problem) -> Tensor:
    """FedAvg of CODA-Prompt's components."""
    return federated(p, lambda r, w, t, x, y: cross_entropy(layer(t, "head", coda_features(t, x, r.task)), y))


def cprompt(p: Problem, near: float, far: float, margin: float) -> Tensor:
    """Fed-CPrompt (Bagwe et al., 2023): CE + max(0, near sum (z - z_g)^2 - far sum (z - z_p)^2 + margin)."""
    w = previous = trained_part(p)
    for r in p.rounds():
        previous = w if r.begins else previous

        def loss(r: Round, sent: Tensor, t: Named, x: Tensor, y: Tensor, old: Tensor = previous) -> Tensor:
            z, received, last = (coda_features(u, x, r.task, True) for u in (t, by_name(p, sent), by_name(p, old)))
            contrast = near * (z - received).square().sum()
            if r.task:
                contrast = (contrast - far * (z - last).square().sum() + margin).clamp(min=0)
            return cross_entropy(layer(t, "head", z), y) + contrast

        w = mean([trained(p, k, r, w, loss) for k in r.cohort])
    return whole(p, w)


def cprompt_averaged(p: Problem) -> Tensor:
    """FedAvg of Fed-CPrompt's components."""
    return federated(p, lambda r, w, t, x, y: cross_entropy(layer(t, "head", coda_features(t, x, r.task, True)), y))
